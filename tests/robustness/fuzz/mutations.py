"""Random texts and bytes, and random changes of given ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

AnyText = TypeVar("AnyText", str, bytes)

# Characters on which text processing has failed elsewhere: of each plane, direction and width,
# joiners, line ends of Unicode, controls, half a surrogate pair, and what changes length with case.
ODD_CHARACTERS = (
    "\0\x01\x1b\x7f\x85\xa0\xad\u0130\u0131\u0345\u061c\u0e33\u1e9e\u200b\u200d\u200e\u2028\u2029"
    "\u202e\u2060\u3000\ud800\udfff\ufdfa\ufe0f\ufeff\ufffd\uffff\U0001f468\U0001f3fb\U000e0041"
    "\U0010ffff\n\r\t\v\f ßﬁŉıſ"
)
WORDS = (
    "a", "the", "dog", "She", "reads", "a book.", "Hello,", "World!", "über", "Straße", "naïve",
    "U.S.", "e.g.", "Mr.", "3.14", "1,000", "2026-11-23", "don't", "co-op", "ALL CAPS", "x" * 300,
    "漢字", "かな。", "العربية", "हिन्दी", "ไทย", "🎉", "👩‍👩‍👧", "{name}", "%s", "%(n)d", "$HOME",
    "{{ x }}", "https://example.com/a?b=1&c=%20#d", "tom@example.com", "`code`", "src/main.py",
    "<b>", "</b>", "&amp;", "&#0;", "&#x110000;", "&", "<", ">", '"', "'", "\\", "|", "[", "](",
    "**", "__", "~~", "#", "- ", "1. ", "> ", "\n", "\n\n", "\t", "  ",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "1", "127", "128", "255", "256", "65535", "65536", "2147483647", "2147483648",
    "-2147483649", "4294967296", "9223372036854775807", "9223372036854775808",
    "18446744073709551616", "1e308", "1e309", "-0.0", "NaN", "Infinity", "1" * 5000, "0x10", "１２",
)  # fmt: skip
_FRAGMENTS = (
    *(word.encode("utf-8", "surrogatepass") for word in (*WORDS, *NUMBERS)),
    b"\xff", b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc0\x80", b"\xed\xa0\x80", b"\xf8",
    b"\0", b"\r\n", b"PK\x03\x04", b"PK\x01\x02", b"\x80" * 10, b"\xff" * 8,
)  # fmt: skip


def odd_text(rng: random.Random, most: int = 20) -> str:
    """Up to `most` words, signs and odd characters; may hold half a surrogate pair."""
    parts = []
    for _ in range(rng.randint(0, most)):
        kind = rng.random()
        if kind < 0.7:
            parts.append(rng.choice(WORDS))
        elif kind < 0.85:
            parts.append(rng.choice(ODD_CHARACTERS))
        elif kind < 0.95:
            parts.append(chr(rng.randrange(0x3000)))
        else:
            parts.append(rng.choice(NUMBERS))
        parts.append(rng.choice(("", " ", " ")))
    return "".join(parts)


def valid_text(rng: random.Random, most: int = 20) -> str:
    """Random text of words and odd characters, but only of valid Unicode."""
    return odd_text(rng, most).encode("utf-8", "replace").decode()


def random_bytes(rng: random.Random, most: int = 200) -> bytes:
    """Up to `most` random bytes."""
    return rng.randbytes(rng.randint(0, most))


def changed_text(rng: random.Random, text: str, others: Sequence[str] = WORDS) -> str:
    """A text with a few random changes; `others` are put into it."""
    return _changed(
        rng, text, others, lambda: chr(rng.choice((rng.randrange(128), rng.randrange(0xD800))))
    )


def changed_bytes(rng: random.Random, data: bytes, others: Sequence[bytes] = _FRAGMENTS) -> bytes:
    """Bytes with a few random changes."""
    if data and rng.random() < 0.4:
        flipped = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 4, 16))):
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        data = bytes(flipped)
    return _changed(rng, data, others, lambda: rng.randbytes(1))


def _changed(
    rng: random.Random, data: AnyText, others: Sequence[AnyText], one: Callable[[], AnyText]
) -> AnyText:
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        start = rng.randint(0, len(data))
        end = min(len(data), start + rng.choice((0, 1, 2, 8, 64)))
        kind = rng.randrange(7)
        if kind == 0:
            data = data[:start] + data[end:]
        elif kind == 1:
            data = data[:start] + one() + data[end:]
        elif kind == 2:
            data = data[:start] + rng.choice(others) + data[end:]
        elif kind == 3:
            data = data[:start] + rng.choice(others) + data[start:]
        elif kind == 4:
            data = data[:end] + data[start:end] * rng.choice((1, 2, 30)) + data[end:]
        elif kind == 5:
            data = data[:end] if rng.random() < 0.3 else data[start:]
        else:
            other = rng.randint(0, len(data))
            data = data[:start] + data[other : other + 64] + data[start:]
    return data
