"""The context of a call over HTTP: headers, address and deadline, by the names of gRPC."""

from __future__ import annotations

import re
import time
from urllib.parse import quote

from starlette.types import Scope

from service.access.authentication import KEY_HEADER, credential_in_query
from service.fronts.http.answers import bad_request

# A call without a header `grpc-timeout` ends after this. Envoy's configuration has the same.
DEFAULT_SECONDS = 300.0
_TIMEOUT = "grpc-timeout"
_TIMEOUT_VALUE = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class HttpContext:
    """A `service.calls.call_context.Context`.

    Attributes:
        headers: headers by name in lower case, the first of each name, and a key among the URL's
            parameters.

    Raises:
        HttpError: bad headers.
    """

    def __init__(self, scope: Scope) -> None:
        pairs = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"]]
        self.headers = dict(reversed(pairs))
        if key := credential_in_query(scope["query_string"]):
            self.headers.setdefault(KEY_HEADER, key)
        host, port = scope.get("client") or ("", 0)
        # As gRPC writes it, so that a client is the same over both.
        is_ipv6 = ":" in host
        self._peer = (
            f"ipv6:{quote(f'[{host}]', safe=':')}:{port}" if is_ipv6 else f"ipv4:{host}:{port}"
        )
        self._deadline = time.monotonic() + self._timeout_seconds()

    def invocation_metadata(self) -> list[tuple[str, str]]:
        """The headers, as pairs of name and value."""
        return list(self.headers.items())

    def peer(self) -> str:
        """Address and port that the call came from."""
        return self._peer

    def time_remaining(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    def _timeout_seconds(self) -> float:
        value = self.headers.get(_TIMEOUT)
        if value is None:
            return DEFAULT_SECONDS
        if not (found := _TIMEOUT_VALUE.fullmatch(value)):
            raise bad_request(
                400, _TIMEOUT, "must be up to 8 digits and one of H, M, S, m, u, n, such as 10S"
            )
        return int(found[1]) * _UNIT_SECONDS[found[2]]
