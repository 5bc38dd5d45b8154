"""Runs calls over gRPC: the interceptor, and requests that cannot be decoded."""
