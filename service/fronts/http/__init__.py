"""The HTTP front: the contract as JSON, streams as server-sent events, and the page.

The same calls as gRPC's, by the same servicer and `CallTracker`. Owns Starlette and uvicorn, which
no other package knows.
"""
