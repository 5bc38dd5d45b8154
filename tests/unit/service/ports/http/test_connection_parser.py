"""The parser of connections: the events of h11, in turns, and with limits of their number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.fronts.http.transfers import HttpLimits
from service.ports.http.connection_parser import ConnectionParser, RefusedError

POST = b"POST /x HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
SENT = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 30\r\n\r\n" + b"a\n" * 15
END = b"0\r\n\r\n"


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n" % (len(data), extension, data)


CHUNKED = POST + chunk(b"abc\n" * 9) * 3 + END


def events(connection: h11.Connection, next_event: Callable[[], Any]) -> Iterator[Any]:
    """The events that a server sees, which answers at once."""
    while (event := next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        yield event
        if isinstance(event, h11.EndOfMessage):
            head = h11.Response(status_code=200, headers=[("content-length", "0")])
            for each in (head, h11.EndOfMessage()):
                connection.send(each)
            connection.start_next_cycle()


def joined(found: list[Any]) -> list[Any]:
    """Events with bodies in one piece each."""
    parts: list[Any] = []
    for event in found:
        data = bytes(event.data) if isinstance(event, h11.Data) else None
        if data is not None and parts and isinstance(parts[-1], bytes):
            parts[-1] += data
        else:
            parts.append(event if data is None else data)
    return parts


def parsed(data: bytes, limits: HttpLimits | None = None) -> list[Any]:
    """The events of bytes that arrive at once. Raises h11.RemoteProtocolError."""
    parser = ConnectionParser(limits or HttpLimits(), lambda: False)
    parser.receive_data(data)
    return list(events(parser, parser.next_event))


@given(
    requests=st.lists(
        st.sampled_from([SENT, POST + chunk(b"abc\n" * 9) * 3 + END]), min_size=1, max_size=3
    ),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    turns=st.lists(st.booleans(), max_size=40),
)
def test_events_are_those_of_h11_however_bytes_and_turns_fall(
    requests: list[bytes], cuts: list[int], turns: list[bool]
) -> None:
    data = b"".join(requests)
    plain = h11.Connection(h11.SERVER)
    plain.receive_data(data)
    expected = joined(list(events(plain, plain.next_event)))

    left = iter(turns)
    parser = ConnectionParser(HttpLimits(), lambda: next(left, False))
    found: list[Any] = []
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(places):
        parser.receive_data(data[start:end])
        while True:
            found += events(parser, parser.next_event)
            if not parser.is_interrupted:
                break
    assert joined(found) == expected
    assert parser.num_ahead == 0


def test_others_may_get_their_turn_after_some_events() -> None:
    num_turns = 0

    def count() -> bool:
        nonlocal num_turns
        num_turns += 1
        return False

    parser = ConnectionParser(HttpLimits(), count)
    parser.receive_data(POST + chunk(b"x" * 20) * 1000 + END)
    assert len(list(events(parser, parser.next_event))) <= 16 * num_turns


def test_nothing_is_parsed_while_it_is_the_turn_of_others() -> None:
    parser = ConnectionParser(HttpLimits(), lambda: True)
    for _ in range(3):
        parser.receive_data(SENT)
        parser.begin()
        assert parser.next_event() is h11.NEED_DATA
        assert parser.is_interrupted
    assert parser.num_ahead == 3 * len(SENT)


@pytest.mark.parametrize("size", [1, 2, 15])
@pytest.mark.parametrize("extension", [b"", b";name=value"])
def test_a_body_in_tiny_chunks_is_refused_after_its_beginning(size: int, extension: bytes) -> None:
    beginning = POST + chunk(b"x" * size, extension) * (4096 // (size + 5))
    assert isinstance(parsed(beginning + END)[-1], h11.EndOfMessage)
    with pytest.raises(RefusedError, match=f"body: chunks of {size}.0 bytes.*16 is") as refused:
        parsed(beginning + chunk(b"x" * size, extension) * 2 + END)
    assert refused.value.error_status_hint == 400


@pytest.mark.parametrize(
    "chunks",
    [
        [b"x" * 16],
        [b'{"text":"A dog runs."}\n'],
        [b"\n", b'{"text":"A dog is running in the garden."}'],
        [b"x" * 1000, b"\n" * 20],
    ],
)
def test_other_bodies_are_not(chunks: list[bytes]) -> None:
    body = b"".join(map(chunk, chunks * 1000))
    [_, got, end] = joined(parsed(POST + body + END))
    assert (got, type(end)) == (b"".join(chunks) * 1000, h11.EndOfMessage)


def test_each_body_is_counted_by_itself() -> None:
    assert len(joined(parsed((POST + chunk(b"x") * 600 + END) * 3))) == 9


@pytest.mark.parametrize("line", [b"a:\r\n", b"a:\n", b" folded\r\n"])
@pytest.mark.parametrize(
    ("begin", "field"),
    [(b"GET / HTTP/1.1\r\nhost: a\r\n", "headers"), (POST + b"0\r\nb:\r\n", "trailers")],
)
def test_many_lines_are_refused_before_they_are_parsed(
    line: bytes, begin: bytes, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = []
    check = ConnectionParser._check

    def checked(self: ConnectionParser, event: Any) -> None:
        most.append(len(getattr(event, "headers", [])))
        check(self, event)

    monkeypatch.setattr(ConnectionParser, "_check", checked)
    for count in (300, 1000, 80_000):
        with pytest.raises(RefusedError, match=f"{field}: more than 64, the limit") as refused:
            parsed(begin + line * count + b"\r\n")
        assert refused.value.error_status_hint == 431
    assert max(most, default=0) < 300


def test_as_many_trailers_as_headers_are_allowed() -> None:
    assert len(joined(parsed(POST + b"0\r\n" + b"a:\r\n" * 64 + b"\r\n"))) == 2
    for count in (65, 66, 200):
        with pytest.raises(RefusedError, match="trailers: more than 64, the limit"):
            parsed(POST + b"0\r\n" + b"a:\r\n" * count + b"\r\n")


def test_a_head_beyond_its_bytes_is_refused() -> None:
    with pytest.raises(h11.RemoteProtocolError):
        parsed(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 200_000)
