"""Frames between a server and its front processes arrive as they were sent, in any pieces."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from service.ports.grpc.front_processes.frames import (
    Frame,
    FrameKind,
    FrameReader,
    fields_of,
    framed,
    metadata_of,
)

SECONDS = st.floats(allow_nan=False)
FRAMES = st.lists(
    st.builds(
        Frame,
        st.sampled_from(FrameKind),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**32 - 1),
        SECONDS,
        st.lists(st.binary(max_size=40), max_size=6),
    ),
    max_size=6,
)
KEYS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_.", min_size=1)
METADATA = st.lists(
    st.one_of(
        st.tuples(KEYS.filter(lambda key: not key.endswith("-bin")), st.text(max_size=20)),
        st.tuples(KEYS.map(lambda key: f"{key}-bin"), st.binary(max_size=20)),
    ),
    max_size=5,
)


@given(FRAMES, st.lists(st.integers(1, 200), max_size=60))
def test_frames_arrive_in_order_whatever_the_pieces(
    frames: Sequence[Frame], sizes: Sequence[int]
) -> None:
    sent = b"".join(map(framed, frames))
    reader, found, start = FrameReader(), [], 0
    for size in (*sizes, len(sent) + 1):
        found += reader.feed(sent[start : start + size])
        start += size
    assert found == frames
    assert reader.num_missing == 0


@given(METADATA)
def test_metadata_survives_as_fields(metadata: Sequence[tuple[str, str | bytes]]) -> None:
    assert list(metadata_of(fields_of(metadata))) == metadata


def test_the_rest_of_a_large_frame_is_known_as_soon_as_its_head_has_arrived() -> None:
    sent = framed(Frame(FrameKind.CALL, 7, 1, math.inf, [b"peer", bytes(100_000)]))
    reader = FrameReader()
    assert reader.feed(sent[:10]) == []
    assert reader.num_missing == 0
    assert reader.feed(sent[10:40]) == []
    assert reader.num_missing == len(sent) - 40
    [frame] = reader.feed(sent[40:])
    assert frame.fields == [b"peer", bytes(100_000)]
