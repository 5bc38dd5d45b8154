"""The carriers that a model copies, found with models that copy some of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from export.bundle_writer import ExportOptions
from export.carrier_sentences import TEMPLATES, numbered_templates, templates_for
from export.carriers import CANDIDATES, measured_carriers
from export.exporter import export_checkpoint
from model.bundle.bundle import Bundle
from model.bundle.carriers import MAX_CARRIERS, SENTINELS, parse_carriers
from tests.factories import random_model, tiny_config
from tests.unit.export.test_exporter import save

ENGLISH = templates_for("en-GB", ())


def translating(change: Callable[[str], str]) -> Callable[[Sequence[str]], list[str]]:
    return lambda texts: [change(text) for text in texts]


def test_what_is_copied_more_often_is_preferred() -> None:
    def change(text: str) -> str:
        text = re.sub(r"[{}#<]|AX|X(?=\dX)", "", text)  # copies %1, XX1 and ID1
        return text.replace("XX1", "XX") if "table" in text else text

    carriers = measured_carriers(translating(change), 0, ENGLISH)
    assert [carrier.form for carrier in carriers] == ["%%d", "ID%d", "XX%d"]
    assert carriers[0].kept == 1
    assert 0.9 < (carriers[2].kept or 0) < 1
    assert parse_carriers([carrier.to_dict() for carrier in carriers]) == carriers


def test_sentinels_come_first_if_they_are_copied() -> None:
    carriers = measured_carriers(translating(str), 16, ENGLISH, 40)
    assert [carrier.form for carrier in carriers] == [SENTINELS, "{%d}", "%%d"]
    assert carriers[0].count == 16

    def losing(text: str) -> str:
        return re.sub("[\ue000-\uf8ff]", "", text)

    lost = measured_carriers(translating(losing), 16, ENGLISH)
    assert [carrier.form for carrier in lost] == ["{%d}", "%%d", "XX%d"]


@pytest.mark.parametrize("change", [lambda _: "no", lambda text: f"{text} {text}"])
def test_a_model_that_copies_none_or_all_twice_has_none(change: Callable[[str], str]) -> None:
    assert measured_carriers(translating(change), 3, ENGLISH, 50) == ()


@pytest.mark.parametrize("language", TEMPLATES)
def test_each_list_has_sentences_with_one_to_three_places(language: str) -> None:
    counts = {template.count("{}") for template in TEMPLATES[language]}
    assert counts == {1, 2, 3}
    asked = list(numbered_templates(TEMPLATES[language], 200))
    assert len({(template, tuple(numbers)) for template, numbers in asked}) > 100


def test_other_languages_get_their_own_sentences() -> None:
    assert templates_for("cs", ["Dobrý den, {pane}."]) == [
        "{} Dobrý den, (pane).",
        "Dobrý {} den, (pane).",
        "Dobrý den, (pane). {}",
    ]


def test_the_candidates_fit_into_a_manifest() -> None:
    assert len(CANDIDATES) <= MAX_CARRIERS
    assert parse_carriers([carrier.to_dict() for carrier in CANDIDATES]) == CANDIDATES


def test_an_export_records_them_if_it_is_told_to(tmp_path: Path) -> None:
    checkpoint = save(tmp_path / "checkpoint", random_model(tiny_config()))
    export_checkpoint(checkpoint, tmp_path / "a", ExportOptions(), num_carrier_sentences=10)
    assert Bundle.load(tmp_path / "a").carriers == ()  # a random network copies nothing
    export_checkpoint(checkpoint, tmp_path / "b", ExportOptions())
    assert "carriers" not in json.loads((tmp_path / "b" / "bundle.json").read_text())
