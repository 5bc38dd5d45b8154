"""`dragoman evaluate` on a checkpoint and on the bundle that is made from it."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
import typer
from typer.testing import CliRunner, Result

from cli.evaluate import evaluate
from export.bundle_writer import ExportOptions
from export.importer import import_directory
from model.bundle.tokenizer import Tokenizer
from model.evaluation.evaluation import translate_sentences
from model.evaluation.search import BeamOptions
from model.network.checkpoint import save_checkpoint
from model.network.transformer import Transformer
from tests import foreign_models
from tests.factories import SENTENCES, random_model, tiny_bundle, tiny_config

app = typer.Typer()
app.command()(evaluate)


@dataclass(frozen=True)
class Setting:
    model: Transformer
    tokenizer: Tokenizer
    checkpoint: Path
    bundle: Path
    source: Path
    reference: Path
    references: list[str]

    def run(self, path: Path, *options: str) -> Result:
        files = ["--source", str(self.source), "--reference", str(self.reference)]
        arguments = ["--model", str(path), *files, "--threads", "1", *options]
        return CliRunner().invoke(app, arguments, catch_exceptions=False)

    def json(self, path: Path, *options: str) -> dict[str, Any]:
        result = self.run(path, "--json", *options)
        assert result.exit_code == 0, result.output
        fields: dict[str, Any] = json.loads(result.stdout)
        return fields

    def translations(self, options: BeamOptions | None = None) -> list[str]:
        texts = self.source.read_text().splitlines()
        return translate_sentences(self.model, self.tokenizer, texts, options=options)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    folder = tmp_path_factory.mktemp("evaluate")
    model = random_model(tiny_config(output_bias=True))
    with torch.no_grad():
        assert model.output_projection.bias is not None
        model.output_projection.bias[4:260] = -1e4  # words, not the bytes of last resort
    bundle = tiny_bundle(folder / "bundle", model=model)
    tokenizer = bundle.tokenizer()
    languages = {"source": "en", "target": "de"}
    save_checkpoint(folder / "checkpoint", model, tokenizer, languages=languages)
    sources = [*SENTENCES[:5], "", *SENTENCES[5:]]
    # The random model's own translations, except every third line, for a score below 100.
    translations = translate_sentences(model, tokenizer, sources)
    references = ["anders" if i % 3 == 0 else text for i, text in enumerate(translations)]
    (folder / "source").write_text("".join(f"{text}\n" for text in sources))
    (folder / "reference").write_text("".join(f"{text}\n" for text in references))
    return Setting(
        model,
        tokenizer,
        folder / "checkpoint",
        bundle.path,
        folder / "source",
        folder / "reference",
        references,
    )


def test_greedy_scores_of_checkpoint_and_bundle_agree(setting: Setting) -> None:
    expected = sacrebleu.corpus_bleu(setting.translations(), [setting.references]).score
    assert 1 < expected < 100
    for path, kind in ((setting.checkpoint, "checkpoint"), (setting.bundle, "bundle")):
        report = setting.json(path)
        assert report["kind"] == kind
        assert report["model"] == str(path)
        assert report["num_sentences"] == 9
        assert report["bleu"]["score"] == pytest.approx(expected)
        assert "tok:13a" in report["bleu"]["signature"]
        assert report["chrf"]["score"] > 0
        assert "moses_bleu" not in report


@pytest.mark.parametrize("kind", ["checkpoint", "bundle"])
def test_beam_search(setting: Setting, tmp_path: Path, kind: str) -> None:
    output = tmp_path / "translations"
    report = setting.json(
        getattr(setting, kind),
        *("--beam-size", "4", "--length-penalty", "0.6", "--output", str(output)),
    )
    expected = setting.translations(BeamOptions(4, length_penalty=0.6))
    assert output.read_text().split("\n")[:-1] == expected
    assert expected != setting.translations()
    score = sacrebleu.corpus_bleu(expected, [setting.references]).score
    assert report["bleu"]["score"] == pytest.approx(score)
    assert report["beam_size"] == 4


def test_a_beam_over_more_sentences_than_rows(setting: Setting, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("A dog.\n" * 160)
    files = ["--source", str(text), "--reference", str(text)]
    options = ["--threads", "1", "--beam-size", "4", "--json"]
    arguments = ["--model", str(setting.bundle), *files, *options]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["num_sentences"] == 160


def test_moses_and_lowercase(setting: Setting) -> None:
    report = setting.json(setting.checkpoint, "--moses", "--lowercase")
    assert "case:lc" in report["bleu"]["signature"]
    assert "moses:de" in report["moses_bleu"]["signature"]


def test_people_get_figures_and_signatures(setting: Setting) -> None:
    result = setting.run(setting.checkpoint)
    assert result.exit_code == 0
    heading, bleu, chrf = result.stdout.splitlines()
    assert "greedy: 9 sentences in " in heading
    assert bleu.startswith("BLEU ")
    assert "tok:13a" in bleu
    assert chrf.startswith("chrF2 ")


def test_what_cannot_be_evaluated_is_refused_in_one_line(setting: Setting, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("one\n")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    cases = [
        (setting.bundle, ["--beam-size", "161"], "--beam-size: 161 is more than 160"),
        (setting.bundle, ["--length-penalty", "nan"], "--length-penalty"),
        (tmp_path, [], "neither a bundle"),
        (broken, [], "config.json"),
        (setting.checkpoint, ["--reference", str(short)], "has 1"),
        (setting.checkpoint, ["--source", str(tmp_path / "nowhere")], "nowhere"),
        (setting.checkpoint, ["--device", "tpu"], "auto, cpu or cuda"),
        (setting.checkpoint, ["--output", str(tmp_path / "no" / "file")], "--output"),
    ]
    for path, options, message in cases:
        result = setting.run(path, *options)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


def test_only_a_bundle_needs_onnx_runtime(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it were not installed
    result = setting.run(setting.bundle)
    assert result.exit_code == 1
    assert result.stderr.startswith("dragoman: ONNX Runtime is missing: pip install '.[cpu]'")
    assert setting.run(setting.checkpoint).exit_code == 0


def test_a_bundle_that_the_server_splits_for_translates_long_sentences_whole(
    setting: Setting, tmp_path: Path
) -> None:
    limited = tmp_path / "limited"
    shutil.copytree(setting.bundle, limited)
    manifest = json.loads((limited / "bundle.json").read_text())
    manifest["limits"]["max_source_positions"] = 4
    (limited / "bundle.json").write_text(json.dumps(manifest))
    output = tmp_path / "translations"
    assert setting.json(limited, "--output", str(output))["num_cut"] == 0
    assert output.read_text().split("\n")[:-1] == setting.translations()


@pytest.mark.parametrize("kind", ["checkpoint", "bundle"])
def test_sentences_that_are_cut_are_counted_aloud(
    setting: Setting, kind: str, tmp_path: Path
) -> None:
    texts = ["A dog is running.", "x" * 200, "", "y" * 200]
    source, reference = tmp_path / "source", tmp_path / "reference"
    for file in (source, reference):
        file.write_text("".join(f"{text or '.'}\n" for text in texts))
    long = replace(setting, source=source, reference=reference)
    result = long.run(getattr(setting, kind), "--json")
    assert json.loads(result.stdout)["num_cut"] == 2
    assert "2 of 4 sentences are too long" in result.stderr
    result = setting.run(getattr(setting, kind), "--json")
    assert json.loads(result.stdout)["num_cut"] == 0
    assert "longer" not in result.stderr


def test_a_direction_is_chosen_where_there_are_several(setting: Setting, tmp_path: Path) -> None:
    foreign_models.marian(tmp_path / "model", codes=(">>deu<<", ">>fra<<"), decoder_layers=1)
    path = tmp_path / "bundle"
    import_directory(tmp_path / "model", path, ExportOptions(), threads=1)
    result = setting.run(path)
    assert result.exit_code == 1
    assert result.stderr == "dragoman: --to: must be given, one of: de, fr\n"
    found = []
    for code in ("de", "fr"):
        output = tmp_path / code
        setting.json(path, "--from", "en", "--to", code, "--output", str(output))
        found.append(output.read_text())
    assert found[0] != found[1]
    for options, message in (
        (["--to", "ja"], "--to: there is no language 'ja'"),
        (["--from", "de", "--to", "fr"], "--from: there is no language 'de'"),
    ):
        for model in (path, setting.bundle, setting.checkpoint):
            if model == path or "ja" in options:
                refused = setting.run(model, *options)
                assert refused.exit_code == 1
                assert message in refused.stderr
