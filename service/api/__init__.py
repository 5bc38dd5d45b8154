"""The gRPC boundary: interceptor, servicer, conversions, errors to status, health, reflection.

Protobuf and gRPC stop here: nothing below knows the wire format.
It owns the registry of models and the HTTP endpoint for metrics and probes. It may import every
package below it.
"""
