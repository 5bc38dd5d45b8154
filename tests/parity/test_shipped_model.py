"""The included model: complete, small enough, and made from the checkpoint beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.readme_examples import ROOT, example_sentences, outdated_answers, translate
from bench.sentence_translator import sentence_translator
from export.bundle_writer import ExportOptions
from export.exporter import export_checkpoint
from export.parity import ParityReport
from model.bundle.bundle import Bundle, add_calibration
from model.bundle.manifest import MANIFEST_FILE
from model.network.checkpoint import Checkpoint

CHECKPOINT = Path("model/checkpoints/en-de")
BUNDLE = Path("model/pretrained/en-de")
# A clone has to fetch both: the bundle to serve it, the checkpoint in fp16 to go on from it.
MAX_BYTES = {BUNDLE: 40_000_000, CHECKPOINT: 50_000_000}
# All but the words: markers with the white space around them, and lines that are copied.
MARKERS = re.compile(r"^\s*(?:[-*>#]|\d\.|\[.\]|\s)*(?:\S+[/@]\S+|=+|\d+)?", re.MULTILINE)
LIST = """\
# Good morning.

- Open the door.
  * I am tired.
    1. Good night.
- [x] Read the book.

> Where is Tom?
https://example.com/a?b=1
tom@example.com

12
===="""

TEXTS = ["Good morning.", "My name is Tom.\n\nI am tired.", LIST]


def size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


@pytest.mark.parametrize("directory", [CHECKPOINT, BUNDLE])
def test_it_is_small_enough_to_live_in_the_repository(directory: Path) -> None:
    assert 1_000_000 < size(directory) <= MAX_BYTES[directory]


def test_the_bundle_is_whole_and_names_its_origin(shipped_checkpoint: Checkpoint) -> None:
    bundle = Bundle.load(BUNDLE)
    assert (bundle.source_language, bundle.target_language) == ("en", "de")
    assert bundle.precision == "int8"
    assert bundle.manifest["provenance"] == shipped_checkpoint.provenance


def test_exporting_the_checkpoint_gives_the_very_bundle_that_ships(tmp_path: Path) -> None:
    card = CHECKPOINT / "MODEL_CARD.md"
    version = Bundle.load(BUNDLE).version
    options = ExportOptions("int8", name="en-de", version=version, model_card=card)
    export_checkpoint(CHECKPOINT, tmp_path / "again", options, threads=1)
    if (calibration := Bundle.load(BUNDLE).calibration()) is not None:  # measured afterwards
        add_calibration(tmp_path / "again", calibration)
    shipped, again = (
        json.loads((directory / MANIFEST_FILE).read_text())
        for directory in (BUNDLE, tmp_path / "again")
    )
    shipped.pop("carriers", None)  # measured too, which other processors may do otherwise
    assert again == shipped  # the manifest holds every file's sha256


def test_fp32_exports_and_proves_itself(shipped_fp32: tuple[Bundle, ParityReport]) -> None:
    proof = shipped_fp32[1]
    assert proof.num_identical == proof.num_sentences


def test_fp16_exports_and_proves_itself(tmp_path: Path) -> None:
    proof = export_checkpoint(CHECKPOINT, tmp_path / "fp16", ExportOptions("fp16"), threads=1)
    assert proof.num_sentences - proof.num_identical <= 2  # near-ties


def test_the_model_card_says_what_it_must(shipped_checkpoint: Checkpoint) -> None:
    card = (BUNDLE / "MODEL_CARD.md").read_text(encoding="utf-8")
    table = re.search(
        r"^\| corpus \| pairs \| what it is \| source \| licence \|\n(\|.*\n)+", card, re.M
    )
    assert table is not None
    rows = [line.strip("|").split("|") for line in table[0].splitlines()[2:]]
    cells = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert list(cells) == shipped_checkpoint.provenance["corpora"]
    for corpus, (pairs, *texts) in cells.items():
        assert int(pairs.replace(",", "")) > 0, corpus
        assert len(texts) == 3, corpus
        assert all(texts), corpus
    for word in ("CC BY 2.0 FR", "CC BY-SA 4.0", "MPL-2.0", "nrefs:1|", "chrF2", "hours"):
        assert word in card


async def test_the_readme_shows_its_translations() -> None:
    """`python -m bench.readme_examples` prints the text that the page has to show."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    translations = await translate(BUNDLE, example_sentences(page))
    assert not outdated_answers(page, translations)
    assert len(outdated_answers(page, [])) >= 3  # it shows some


async def test_it_translates() -> None:
    async with sentence_translator(BUNDLE) as translator:
        results = await translator.translate(TEXTS)
        *deltas, summary = [event.text async for event in translator.stream(LIST)]
    # A model that is any good knows these; the paragraph break is kept.
    assert results[0].text == "Guten Morgen."
    assert results[1].text.split("\n\n") == ["Ich heiße Tom.", "Ich bin müde."] or results[
        1
    ].text.split("\n\n") == ["Mein Name ist Tom.", "Ich bin müde."]
    assert results[2].text == summary == "".join(deltas)
    assert MARKERS.findall(results[2].text) == MARKERS.findall(LIST)
    assert "Guten Morgen.\n" in results[2].text
