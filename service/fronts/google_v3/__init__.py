"""Google's Cloud Translation API, version 3, of which people use three calls.

`contract.proto` has those calls with the names and numbers of Google's own contract; `calls.py`
answers them, over gRPC by `grpc_service.py`, and over HTTP by `service/api/http/fronts`.
"""
