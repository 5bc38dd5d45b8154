"""The APIs that the server speaks: its own contract, and those of other translation services.

A front parses a request, makes a call and renders the answer, with a table of errors of its own.
`dragoman/` is the contract, over gRPC by `grpc/` and as JSON by `http/`. Each of the other modules
is the API of another service: a request of it runs with the same limits, keys, quotas, metrics and
log lines as one of the contract.
"""
