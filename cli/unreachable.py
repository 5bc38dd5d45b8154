"""What to say of a call that failed: where no server is, what to do rather than gRPC's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.client import TranslationError


def describe(server: str, error: TranslationError) -> str:
    """The failure of a call to `server`, in a line."""
    # A server's answer carries the request's id, also when it refuses because it is going away.
    if error.request_id:
        return f"{server}: {error}"
    match error.code.name:
        case "UNAVAILABLE":
            if "errors resolving" in error.message or "resolution failed" in error.message:
                return f"the host in {server} is not known"
            return (
                f'no server at {server} takes calls; is "dragoman serve" running there, and ready? '
                "(/readyz on its metrics port says why not)"
            )
        case "DEADLINE_EXCEEDED":
            return f"no answer from {server} in time: the server may be busy, or not there"
        case "UNIMPLEMENTED":
            return (
                f"what answers at {server} is not a Dragoman server, or an old one: {error.message}"
            )
    return f"{server}: {error}"
