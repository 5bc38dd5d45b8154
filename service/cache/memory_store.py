"""Results in memory: the least recently used ones make room."""

from __future__ import annotations

from collections import OrderedDict

# Memory of an entry beside the bytes of its value: key, objects, place in the table (measured:
# 250 bytes).
_ENTRY_BYTES = 256


class MemoryStore:
    """Values by key, bounded in bytes.

    Args:
        capacity: most bytes of all values together, with what Python adds to them.

    Attributes:
        num_bytes: bytes in use.
    """

    def __init__(self, capacity: int) -> None:
        self.num_bytes = 0
        self._capacity = capacity
        self._values: OrderedDict[bytes, bytes] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, which counts as used; None without one."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value, unless it is larger than the whole store."""
        self.remove(key)
        if _size(value) > self._capacity:
            return
        self._values[key] = value
        self.num_bytes += _size(value)
        while self.num_bytes > self._capacity:
            _, oldest = self._values.popitem(last=False)
            self.num_bytes -= _size(oldest)

    def remove(self, key: bytes) -> None:
        """Forget a value, if it is there."""
        value = self._values.pop(key, None)
        if value is not None:
            self.num_bytes -= _size(value)


def _size(value: bytes) -> int:
    return len(value) + _ENTRY_BYTES
