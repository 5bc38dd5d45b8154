"""The contract in `proto/dragoman/v1`: its servicer, and protobuf to the domain and back."""
