"""Logs and Prometheus metrics. May import no other package of the service."""
