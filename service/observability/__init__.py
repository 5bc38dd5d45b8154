"""Logs, Prometheus metrics and traces. Imports no other package of the service."""
