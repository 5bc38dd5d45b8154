"""The gRPC server with health, reflection and administration."""
