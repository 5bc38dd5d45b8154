"""The APIs that the server speaks: its own contract, and those of other translation services.

A front parses a request, calls a use case and renders the answer, and has its own table of errors.
`dragoman/` is the contract, over gRPC by `grpc/` and as JSON by `http/`. Each of the other modules
is the API of another service. Its requests have the same limits, keys, quotas, metrics and log
lines as those of the contract.
"""
