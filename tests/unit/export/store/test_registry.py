"""Mozilla's list of models: what is chosen from it, and damaged ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from export.errors import ExportError
from export.store.registry import PublishedModel, choose, choose_all, read_registry
from tests.mirrors import MODEL, entry_of

ONE = {f"model:{MODEL}": b"x", "vocab:vocab.ende.spm": b"y", "lexicalShortlist:lex.bin": b"z"}
TWO = {f"model:{MODEL}": b"x", "srcVocab:srcvocab.spm": b"y", "trgVocab:trgvocab.spm": b"z"}


def entry(pair: str, architecture: str, release: str | None = "Release") -> dict[str, Any]:
    source, target = pair.split("-")
    folder = f"models/{pair}/{architecture}_AbC-d_e/exported"
    labels = dict(source=source, target=target, architecture=architecture, release=release)
    return entry_of(ONE if target == "de" else TWO, folder, **labels)  # type: ignore[arg-type]


def listed(*entries: dict[str, Any]) -> list[PublishedModel]:
    models: dict[str, list[dict[str, Any]]] = {}
    for each in entries:
        pair = f"{each['sourceLanguage']}-{each['targetLanguage']}"
        models.setdefault(pair, []).append(each)
    content = {"generated": "2026-08-07T00:00:00Z", "baseUrl": "https://x", "models": models}
    return read_registry(json.dumps(content).encode(), "db/models.json")


MODELS = listed(
    entry("en-de", "base", "Nightly"),
    entry("en-de", "base-memory", "Release Desktop"),
    entry("en-de", "tiny", "Release Android"),
    entry("de-en", "tiny", None),
    entry("en-fr", "tiny"),
    entry("en-zh_hant", "base-memory"),
)


def test_an_entry_has_all_that_is_needed() -> None:
    model = choose(MODELS, "en-de", None)
    assert (model.source, model.target, model.architecture) == ("en", "de", "base-memory")
    assert (model.model.name, model.model.size) == (f"{MODEL}.gz", 1)
    assert model.model.sha256 is not None
    assert [file.path.rpartition("/")[2] for file in model.others] == [
        "vocab.ende.spm.gz",
        "lex.bin.gz",
    ]
    assert model.scores["comet22"] == 0.8551
    assert len(choose(MODELS, "en-fr", None).others) == 2


@pytest.mark.parametrize("pair", ["en-zh-Hant", "en-zh_hant", "EN-ZH-hant"])
def test_a_pair_can_be_spelled_in_several_ways(pair: str) -> None:
    assert choose(MODELS, pair, None).pair == "en-zh-Hant"


def test_released_models_are_preferred_unless_a_type_is_wanted() -> None:
    assert choose(MODELS, "en-de", None).release == "Release Desktop"
    assert choose(MODELS, "en-de", "base").release == "Nightly"
    assert choose(MODELS, "de-en", None).release == ""


@pytest.mark.parametrize(
    ("pair", "kind", "message"),
    [
        ("en-fr", "base", "en-fr has no model of the type base; it has tiny"),
        ("de-fr", None, "no model for de-fr, but two translate it through English: de-en en-fr"),
        ("de-ja", None, "no model for de-ja; from de there is de-en"),
        ("xx-yy", None, "no model for xx-yy; --list shows all"),
        ("deen", None, "'deen' is no pair of languages"),
        ("../x-y", None, "is no pair of languages"),
    ],
)
def test_what_is_not_there_is_said(pair: str, kind: str | None, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        choose(MODELS, pair, kind)


def test_all_of_a_language_are_the_released_ones_once_each() -> None:
    assert [model.pair for model in choose_all(MODELS, "en", None)] == [
        "en-de",
        "en-fr",
        "en-zh-Hant",
    ]
    assert [model.architecture for model in choose_all(MODELS, "de", "tiny")] == ["tiny"]
    with pytest.raises(ExportError, match=r"no released model of the type base from or into 'de'"):
        choose_all(MODELS, "de", "base")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e["files"].pop("model"), "files.model has no path with uncompressedSize"),
        (lambda e: e["files"]["model"].pop("uncompressedHash"), "files.model has no path with"),
        (lambda e: e["files"].pop("vocab"), "files has neither vocab nor srcVocab and trgVocab"),
        (
            lambda e: e["files"]["model"].update(path="../../etc/passwd"),
            "model.path is no relative",
        ),
        (lambda e: e["files"]["model"].update(path="/etc/passwd"), "model.path is no relative"),
        (lambda e: e["files"]["model"].update(path="https://x/y"), "model.path is no relative"),
        (lambda e: e["files"]["vocab"].update(path=7), "vocab.path is no relative path"),
        (lambda e: e["files"]["model"].update(uncompressedSize=2**60), "uncompressedSize is 11529"),
        (lambda e: e["files"]["model"].update(uncompressedSize=True), "uncompressedSize is True"),
        (lambda e: e["files"]["model"].update(uncompressedHash="ab"), "uncompressedHash is no SHA"),
        (lambda e: e.update(files=[]), "files is not an object"),
        (lambda e: e.update(architecture=None), "architecture is None"),
        (lambda e: e.update(sourceLanguage="e n/"), "sourceLanguage is 'e n/'"),
        (lambda e: e.update(targetLanguage="waytoolongcode"), "targetLanguage is no language"),
        (lambda e: e["files"]["vocab"].update(path="a/config.json"), "vocab.path is no .bin or"),
        (lambda e: e["files"]["vocab"].update(path=f"a/{MODEL}.gz"), "files of the same name"),
    ],
)
def test_a_damaged_entry_is_left_out_by_name(
    change: Callable[[dict[str, Any]], Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = copy.deepcopy(entry("en-de", "tiny"))
    change(broken)
    content = {"models": {"en-de": [broken, None], "fr-de": [entry("fr-de", "tiny")]}}
    found = read_registry(json.dumps(content).encode(), "db/models.json")
    assert [model.pair for model in found] == ["fr-de"]
    assert message in caplog.text
    assert "db/models.json: models['en-de'][0]" in caplog.text
    assert "models['en-de'][1] is not an object: left out" in caplog.text


def test_odd_facts_are_left_out_of_an_entry(caplog: pytest.LogCaptureFixture) -> None:
    """Numbers that are no float, markup and sequences that control a terminal."""
    odd = entry("en-de", "tiny", "[/Release]")
    odd["metrics"]["flores200-plus"] = {"comet22": 10**400, "bleu": "x", "chrf": 66}
    content = {"models": {"en-de": [odd], "\x1b[2J" + "x" * 1000: [None]}}
    [model] = read_registry(json.dumps(content).encode(), "db/models.json")
    assert (model.release, model.scores) == ("", {"chrf": 66.0})
    assert "\x1b" not in caplog.text
    assert len(caplog.text) < 300


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"models": []}', b'{"models": {"a": {}}}', b"[" * 10**5]
)
def test_something_else_is_no_list(content: bytes) -> None:
    with pytest.raises(ExportError, match=r"https://x/models\.json is n"):
        read_registry(content, "https://x/models.json")
