"""Load balancing, retries and other options of a client's channel."""

from __future__ import annotations

import json


def service_config() -> str:
    """Load balancing and retries of the channel (https://grpc.io/docs/guides/service-config/).

    Calls go round-robin over all addresses of the name whose health service says SERVING. Calls
    that failed with UNAVAILABLE are retried, on another address if possible: a repeated translation
    does no harm. So are those that a server ended with CANCELLED, as gRPC does with calls that
    arrive while it stops; what this client itself cancels is never retried.
    """
    return json.dumps(
        {
            "loadBalancingConfig": [{"round_robin": {}}],
            "healthCheckConfig": {"serviceName": ""},
            "methodConfig": [
                {
                    "name": [{"service": "dragoman.v1.TranslationService"}],
                    "retryPolicy": {
                        "maxAttempts": 5,
                        "initialBackoff": "0.1s",
                        "maxBackoff": "2s",
                        "backoffMultiplier": 2,
                        "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
                    },
                }
            ],
        }
    )


def channel_options() -> list[tuple[str, str | int]]:
    """Options of a client's channel."""
    return [
        ("grpc.service_config", service_config()),
        ("grpc.enable_retries", 1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        # Detect a server that vanished without closing the connection.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]
