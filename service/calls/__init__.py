"""The servicer and its fronts: gRPC (interceptor, health, reflection), and HTTP in `http/`.

Owns protobuf and gRPC, which no package below knows, the registry of models, and the HTTP endpoint
for metrics and probes. May import every package below it.
"""
