"""Sources of an import: old weights, links, the hub; and what an import says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
from typer.testing import CliRunner

from cli.main import app
from export.bundle_writer import ExportOptions
from export.errors import ExportError
from export.huggingface.directory import ModelDirectory
from export.huggingface.hub import locate
from export.importer import import_directory
from model.bundle.bundle import Bundle
from model.bundle.manifest import BundleMissingError
from model.bundle.piece_tokenizer import PieceTokenizer
from tests import foreign_models
from tests.factories import SENTENCES
from tests.unit.export.changed_models import only_pickled


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("foreign") / "model"
    foreign_models.marian(path, encoder_layers=1, decoder_layers=1)
    return path


def test_old_weights_of_pytorch(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "old"
    shutil.copytree(model, path)
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    # Old files hold every name of a shared matrix, and the positions.
    for name in ("model.encoder.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = tensors["model.shared.weight"]
    only_pickled(path, tensors)
    result = CliRunner().invoke(
        app,
        [
            "import",
            str(path),
            "--output",
            str(tmp_path / "bundle"),
            "--precision",
            "fp32",
            *["--languages", "en,zh-Hant", "--name", "mine", "--threads", "1"],
        ],
    )
    assert result.exit_code == 0, result.output
    assert f"{tmp_path / 'bundle'}: mine; fp32; en to zh-Hant;" in result.output.replace("\n", "")
    assert "tokens and logits are those of transformers" in " ".join(result.output.split())
    bundle = Bundle.load(tmp_path / "bundle")
    assert (bundle.name, bundle.source_language, bundle.target_language) == (
        "mine",
        "en",
        "zh-Hant",
    )
    assert bundle.config.vocab_size % 128 == 0


def test_a_snapshot_of_the_hub_is_links_into_its_cache(model: Path, tmp_path: Path) -> None:
    """And weights in several files are those in one."""
    snapshot = tmp_path / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    for file in model.iterdir():
        (snapshot / file.name).symlink_to(file)
    tensors = safetensors.torch.load_file(model / "model.safetensors")
    (snapshot / "model.safetensors").unlink()
    names: dict[str, str] = {}
    for number, name in enumerate(sorted(tensors)):
        names[name] = f"model-{number % 2}.safetensors"
    for part in set(names.values()):
        chosen = {name: tensor for name, tensor in tensors.items() if names[name] == part}
        safetensors.torch.save_file(chosen, tmp_path / part)
        (snapshot / part).symlink_to(tmp_path / part)
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    one, other = (dict(ModelDirectory.read(path).tensors()) for path in (model, snapshot))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_serving_a_hugging_face_directory_says_what_to_run(model: Path) -> None:
    with pytest.raises(BundleMissingError, match="dragoman import"):
        Bundle.load(model)


def test_names_on_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    asked: list[Any] = []

    class Api:
        def model_info(self, name: str, revision: str | None) -> Any:
            asked.append((name, revision))
            return type("Info", (), {"sha": "c0ffee"})

    def download(name: str, revision: str, allow_patterns: list[str]) -> str:
        asked.append((name, revision))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    found = locate("Helsinki-NLP/opus-mt-en-de", "main")
    assert found == (tmp_path, {"hub": "Helsinki-NLP/opus-mt-en-de", "revision": "c0ffee"})
    assert asked == [(found[1]["hub"], "main"), (found[1]["hub"], "c0ffee")]

    def unreachable(*args: Any, **kwargs: Any) -> Any:
        raise OSError("no network\nat all")

    monkeypatch.setattr(Api, "model_info", unreachable)
    with pytest.raises(ExportError, match=r"hub gave no model .no network[?].: no network$"):
        locate("Helsinki-NLP/opus-mt-en-de")


@pytest.mark.parametrize("family", ["nllb", "mbart"])
def test_languages_of_a_tokenizer_json(tmp_path: Path, family: str) -> None:
    foreign_models.multilingual(tmp_path / "model", family, encoder_layers=1, decoder_layers=1)
    foreign_models.without_sentencepiece(tmp_path / "model")
    languages = ["en", "de", "fr"]
    import_directory(tmp_path / "model", tmp_path / "bundle", ExportOptions(), languages, threads=1)
    bundle = Bundle.load(tmp_path / "bundle")
    directions, tokenizer = bundle.directions, bundle.tokenizer()
    assert directions.count == 6
    assert isinstance(tokenizer, PieceTokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    for source, target in directions:
        prefix_ids, start_ids = directions.prefix_ids(source, target), directions.start_ids(target)
        ours = tokenizer.between(prefix_ids, start_ids)
        theirs.src_lang = ours.id_to_piece(prefix_ids[0])
        expected = theirs(SENTENCES[0])["input_ids"]
        assert [*ours.encode(SENTENCES[0]), ours.eos_id] == expected
        assert ours.target.start_ids == start_ids


def test_each_stage_is_named_when_it_begins(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    named: list[str] = []

    def show(stage: str, done: int, _: int) -> None:
        if not done:
            named.append(stage)

    import_directory(model, tmp_path / "out", ExportOptions("fp32"), ["en", "de"], on_progress=show)
    stages = ("reading", "comparing", "writing", "choosing")
    lines = [line for line in caplog.messages if line.startswith(stages)]
    assert lines[:5] == [
        "reading the configuration and the vocabularies",
        "reading and converting the weights: MarianMT",
        "choosing the number of threads",
        "comparing the network with that of transformers",
        "writing the graphs in fp32",
    ]
    assert lines[5] == "writing encoder.onnx"
    assert [named[0], named[-1]] == ["comparing with transformers", "comparing with the bundle"]


def test_a_proof_on_a_few_sentences_shows_each(model: Path, tmp_path: Path) -> None:
    shown: list[tuple[str, int, int]] = []

    def show(stage: str, done: int, total: int) -> None:
        shown.append((stage, done, total))

    made = import_directory(
        model,
        tmp_path / "out",
        ExportOptions(),
        num_sentences=2,
        num_carrier_sentences=10,
        threads=1,
        on_progress=show,
    )
    assert made.proof is not None
    assert made.agreement is not None
    assert made.proof.num_sentences == made.agreement.num_sentences == 2
    assert shown[:3] == [("comparing with transformers", done, 2) for done in range(3)]
    assert torch.get_num_threads() == 1
    assert Bundle.load(tmp_path / "out").carriers == ()  # measured: random weights copy nothing


def test_an_import_without_a_proof_says_so(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "bundle"
    arguments = ["import", str(model), "--output", str(output), "--proof-sentences", "0"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "no proof (--proof-sentences 0): nothing is compared with the model" in caplog.messages
    assert "- not proven: nothing shows that it translates like the model" in result.output
    assert "comparing" not in result.output
    bundle = Bundle.load(output)
    assert "carriers" not in bundle.manifest
    assert bundle.manifest["provenance"]["proof"] is None
    assert bundle.manifest["provenance"]["agreement"] is None
    assert bundle.origin == "imported from model (MarianMT, not proven)"
