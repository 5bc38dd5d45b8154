"""The model that ships: whole, small enough, and made from the checkpoint that stands beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from export.bundle_writer import ExportOptions
from export.exporter import export_checkpoint
from model.bundle import MANIFEST_FILE, Bundle
from model.checkpoint import load_checkpoint
from service.engine.engine import Engine, EngineConfig
from service.runtime.cpu.runner import OnnxRunner
from service.translation.translator import Translator

CHECKPOINT = Path("model/checkpoints/en-de")
BUNDLE = Path("model/pretrained/en-de")
MAX_BYTES = 25_000_000
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
    assert 1_000_000 < size(directory) <= MAX_BYTES


def test_the_bundle_is_whole_and_names_its_origin() -> None:
    bundle = Bundle.load(BUNDLE)
    assert (bundle.source_language, bundle.target_language) == ("en", "de")
    assert bundle.precision == "int8"
    assert bundle.manifest["provenance"] == load_checkpoint(CHECKPOINT).provenance


def test_exporting_the_checkpoint_gives_the_very_bundle_that_ships(tmp_path: Path) -> None:
    card = CHECKPOINT / "MODEL_CARD.md"
    options = ExportOptions("int8", name="en-de", model_card=card)
    export_checkpoint(CHECKPOINT, tmp_path / "again", options)
    shipped, again = (d / MANIFEST_FILE for d in (BUNDLE, tmp_path / "again"))
    assert again.read_text() == shipped.read_text()  # the manifest holds every file's sha256


@pytest.mark.parametrize(("precision", "most_near_ties"), [("fp32", 0), ("fp16", 2)])
def test_the_other_precisions_export_and_prove_themselves(
    tmp_path: Path, precision: str, most_near_ties: int
) -> None:
    proof = export_checkpoint(CHECKPOINT, tmp_path / precision, ExportOptions(precision))
    assert proof.num_sentences - proof.num_identical <= most_near_ties


def test_the_model_card_says_what_it_must() -> None:
    card = (BUNDLE / "MODEL_CARD.md").read_text(encoding="utf-8")
    for corpus in ("tatoeba", "bcontrast", "mlqe-pe", "debian-handbook", "gnome-docs", "mozilla"):
        assert corpus in card
    for word in ("CC BY 2.0 FR", "CC BY-SA 4.0", "MPL-2.0", "nrefs:1|", "chrF2", "hours"):
        assert word in card


async def test_it_translates() -> None:
    bundle = Bundle.load(BUNDLE)
    engine = Engine(OnnxRunner(bundle, max_rows=4, intra_op_threads=1), EngineConfig())
    await engine.start()
    try:
        translator = Translator(engine, bundle.tokenizer(), source_language="en")
        results = await translator.translate(TEXTS)
        *deltas, summary = [event.text async for event in translator.stream(LIST)]
    finally:
        await engine.stop()
    # A model that is any good knows these; the paragraph break is kept.
    assert results[0].text == "Guten Morgen."
    assert results[1].text.split("\n\n") == ["Ich heiße Tom.", "Ich bin müde."] or results[
        1
    ].text.split("\n\n") == ["Mein Name ist Tom.", "Ich bin müde."]
    assert results[2].text == summary == "".join(deltas)
    assert MARKERS.findall(results[2].text) == MARKERS.findall(LIST)
    assert "Guten Morgen.\n" in results[2].text
