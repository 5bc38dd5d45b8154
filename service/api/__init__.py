"""The gRPC interface: interceptor, servicer, conversions, errors to status, health, reflection.

Owns protobuf and gRPC, which no package below knows, the registry of models, and the HTTP endpoint
for metrics and probes. May import every package below it.
"""
