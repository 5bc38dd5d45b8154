"""Logs and Prometheus metrics. It imports no other package of the service."""
