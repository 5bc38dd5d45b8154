"""The ports: a gRPC server, an HTTP server, a port for metrics and probes, and TLS for all of them.

Bytes in, bytes out. Owns grpcio's server, uvicorn and Starlette. May import every package below.
"""
