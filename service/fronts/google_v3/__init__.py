"""Google's Cloud Translation API, version 3: its three most used calls.

`contract.proto` has those calls with the names and numbers of Google's own contract. `calls.py`
answers them, over gRPC by `grpc_service.py`, over HTTP by `rest.py`.
"""
