"""The shortlist's file, and the lists of sentences."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from model.bundle.bundle import Bundle
from model.bundle.manifest import BundleCorruptError, file_sha256, rewrite_manifest
from model.bundle.shortlist import SHORTLIST_FILE, Shortlist, ShortlistError, load_shortlist
from tests.factories import random_shortlist, tiny_bundle

LISTS = [[5, 9, 7], [], [9, 200], *[[i] for i in range(3, 300)]]


def changed(*, offset: int, value: int, form: str = "<Q") -> bytes:
    content = bytearray(Shortlist.of(3, LISTS).to_bytes())
    struct.pack_into(form, content, offset, value)
    return bytes(content)


def test_lists_are_unions() -> None:
    shortlist = Shortlist.parse(Shortlist.of(3, LISTS).to_bytes(), 300)
    assert shortlist.target_ids([0, 2, 0]).tolist() == [0, 1, 2, 5, 7, 9, 200]
    assert shortlist.target_ids([1], (8, 1)).tolist() == [0, 1, 2, 8]
    sources, targets = shortlist.pairs()
    assert list(zip(sources.tolist(), targets.tolist(), strict=True)) == [
        (source, target) for source, ids in enumerate(LISTS) for target in sorted(ids)
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is cut off: it has no header"),
        (changed(offset=0, value=1), "is no shortlist: it begins with"),
        (changed(offset=8, value=301), "first_num is 301, but the vocabulary has 300"),
        (changed(offset=16, value=2**60), "lists ids for 1,152,921,504,606,846,976 source"),
        (changed(offset=24, value=2**60), "its header asks for 4,611,686,018"),
        (changed(offset=32, value=1), "offsets that do not ascend from 0"),
        (changed(offset=40, value=200_000), "offsets that do not ascend from 0"),
        (changed(offset=32 + 8 * 301, value=300, form="<I"), "lists the id 300, but"),
        (Shortlist.of(3, LISTS).to_bytes()[:-1], "bytes, but its header asks for"),
    ],
)
def test_a_damaged_file_is_named(content: bytes, why: str) -> None:
    with pytest.raises(ShortlistError, match=why):
        Shortlist.parse(content, 300)


def test_of_a_bundle(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", shortlist=random_shortlist())
    found = load_shortlist(bundle)
    assert found is not None
    assert bundle.config.eos_id in found.target_ids([])
    assert load_shortlist(tiny_bundle(tmp_path / "plain")) is None
    (tmp_path / "bundle" / SHORTLIST_FILE).write_bytes(b"DRGLIST1")
    sha256 = {
        **bundle.manifest["sha256"],
        SHORTLIST_FILE: file_sha256(tmp_path / "bundle" / SHORTLIST_FILE),
    }
    rewrite_manifest(tmp_path / "bundle", {**bundle.manifest, "sha256": sha256})
    with pytest.raises(BundleCorruptError, match=r"shortlist\.bin is cut off"):
        load_shortlist(Bundle.load(tmp_path / "bundle"))


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("shortlist", {"file": 3}, r"the field shortlist\.file is not of type str"),
        ("shortlist", {"file": "other"}, r"shortlist\.file: sha256 has no entry for 'other'"),
        ("graphs", {}, r"the field graphs\.shortlist_step is missing"),
    ],
)
def test_a_wrong_manifest_is_named(tmp_path: Path, field: str, value: object, why: str) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", shortlist=random_shortlist())
    graphs = {n: f for n, f in bundle.manifest["graphs"].items() if n != "shortlist_step"}
    wrong = {**bundle.manifest, field: value or graphs}
    rewrite_manifest(tmp_path / "bundle", wrong)
    with pytest.raises(BundleCorruptError, match=why):
        Bundle.load(tmp_path / "bundle")


def test_suppressed_tokens_are_not_listed() -> None:
    shortlist = Shortlist(4, np.array([0, 2]), np.array([7, 9]), always=(2,), never=(1, 9))
    assert shortlist.target_ids([0]).tolist() == [0, 2, 3, 7]
