"""Processes that speak gRPC for a server, which itself decides about every call (`group.py`)."""
