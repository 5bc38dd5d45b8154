"""The environment variables that begin with DRAGOMAN_: settings, others of ours, and the rest."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

from service.errors import StartupError

PREFIX = "DRAGOMAN_"

# Of clients, tests, benchmarks and docker/.
_OTHERS = frozenset(
    {
        *("CONFIG", "SERVER", "DATA_ROOT", "REQUIRE_TOOLS", "CONTAINERS_DIR", "STAND_IN"),
        *("GPU_SENTENCES", "TEST_DEVICE"),
    }
)
# Kubernetes describes a Service `dragoman` (or `dragoman-...`) to all pods of its namespace:
# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
_LINK_NAME = re.compile(
    r".*SERVICE_(HOST|PORT(_.+)?)|.*PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://.*")
_SIMILARITY = 0.75  # from which on a name is taken for a misspelling: "prot" for "port"


def without_service_links(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment but for what Kubernetes says of Services: `DRAGOMAN_PORT=tcp://...`."""
    return {
        name: value
        for name, value in environment.items()
        if not (name.startswith(PREFIX) and _is_service_link(name.removeprefix(PREFIX), value))
    }


def unknown_variables(environment: Mapping[str, str], settings: Iterable[str]) -> Iterator[str]:
    """Names of variables that have the prefix and no meaning here.

    Args:
        environment: without service links.
        settings: names of the settings, such as `max_rows`.

    Raises:
        StartupError: such a name resembles that of a setting; the message has both.
    """
    known = {name.upper() for name in settings}
    for variable in sorted(environment):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in known or name in _OTHERS:
            continue
        if nearest := difflib.get_close_matches(name, known, n=1, cutoff=_SIMILARITY):
            raise StartupError(
                f"environment variable {variable}: there is no such setting; "
                f"did you mean {PREFIX}{nearest[0]}?"
            )
        yield variable


def _is_service_link(name: str, value: str) -> bool:
    if _LINK_NAME.fullmatch(name):
        return True
    return name.endswith("PORT") and _LINK_VALUE.fullmatch(value) is not None
