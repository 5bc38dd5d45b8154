"""The sockets on which processes listen, as Linux's /proc has them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_LISTENS = "0A"


def listening(pids: Iterable[int]) -> list[str]:
    """The addresses, in hexadecimal, on which some processes listen for TCP or UDP."""
    held = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                held.add(os.readlink(descriptor))
            except FileNotFoundError:  # closed meanwhile
                continue
    found = []
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{protocol}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            is_open = fields[3] == _LISTENS or protocol.startswith("udp")
            if is_open and f"socket:[{fields[9]}]" in held:
                found.append(fields[1])
    return found


def ports_of(pid: int) -> set[int]:
    """The numbers of the ports on which a process listens."""
    return {int(address.rpartition(":")[2], 16) for address in listening([pid])}
