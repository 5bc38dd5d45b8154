"""Addresses of servers."""

from __future__ import annotations

import re

DEFAULT_PORT = 50051
DEFAULT_SERVER = f"127.0.0.1:{DEFAULT_PORT}"

# Other schemes, which gRPC checks itself. A host may have such a name, with a port after it.
_SCHEME = re.compile(r"(unix|unix-abstract|ipv4|ipv6|vsock|xds):(?!\d+$)")
_HOST_AND_PORT = re.compile(r"(dns:/{2,3}(?:[^/]*/)?)?(\[[^]/]+]|[^:/\s]+)(?::(\d+))?")


# Of hosts that are this machine, in any form that gRPC takes.
_LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1]|ip6-localhost)(:\d+)?")


def is_local(address: str) -> bool:
    """Whether an address is on this machine."""
    if address.startswith(("unix:", "unix-abstract:", "vsock:")):
        return True
    name = re.sub(r"^(dns:/{2,3}([^/]*/)?|dns:|ipv4:|ipv6:)", "", address)
    return all(_LOOPBACK.fullmatch(each) for each in name.split(","))


def server_address(text: str) -> str:
    """`text` with a port, for gRPC, whose default is 443.

    Raises:
        ValueError: it is not an address. The message may be shown to users.
    """
    if _SCHEME.match(text):
        return text
    if text.count(":") > 1 and re.fullmatch(r"[0-9a-fA-F:.]+", text):
        text = f"[{text}]"  # an IPv6 address
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not 0 < int(match[3] or DEFAULT_PORT) < 65536:
        raise ValueError(f"must be HOST:PORT, such as {DEFAULT_SERVER}, not {text!r}")
    return text if match[3] else f"{text}:{DEFAULT_PORT}"
