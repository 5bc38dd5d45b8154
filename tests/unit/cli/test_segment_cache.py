"""The cache of a document's parts: what a killed run leaves is found again, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cli.segment_cache import SegmentCache

texts = st.dictionaries(
    st.tuples(st.text(max_size=20), st.sampled_from(["text/plain", "text/html"])),
    st.text(max_size=20),
    max_size=8,
)


@given(texts, st.integers(0, 40))
def test_what_was_added_is_found_however_the_file_was_cut(
    added: dict[tuple[str, str], str], num_lost: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "a.txt"
        with SegmentCache(output, ["model", "1"]) as cache:
            for (text, mime_type), translation in added.items():
                cache.add(text, mime_type, translation)
        data = cache.path.read_bytes()
        cache.path.write_bytes(data[: max(0, len(data) - num_lost)])
        with SegmentCache(output, ["model", "1"]) as again:
            found = {key: again.get(*key) for key in added}
            again.add("new", "text/plain", "neu")
        assert all(found[key] in (None, added[key]) for key in added)
        assert num_lost > 1 or found == added
        with SegmentCache(output, ["model", "1"]) as last:
            assert last.get("new", "text/plain") == "neu"
            kept = {key: value for key, value in found.items() if value is not None}
            assert all(last.get(*key) == value for key, value in kept.items() if key[0] != "new")
        with SegmentCache(output, ["model", "2"]) as other:
            assert all(other.get(*key) is None for key in added)
            other.remove()
        assert not cache.path.exists()


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_translation_is_none(place: int, byte: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "a.txt"
        with SegmentCache(output, []) as cache:
            cache.add("A dog.", "text/plain", "Ein Hund schläft.")
        data = bytearray(cache.path.read_bytes())
        data[place % len(data)] = byte
        cache.path.write_bytes(data)
        with SegmentCache(output, []) as again:
            assert again.get("A dog.", "text/plain") in (None, "Ein Hund schläft.")
