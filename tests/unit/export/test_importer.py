"""Models that an import refuses, without leaving files behind."""

from __future__ import annotations

import functools
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from cli.main import app
from export.bundle_writer import ExportOptions
from export.errors import ExportError
from export.importer import import_directory
from tests import foreign_models
from tests.unit.export.changed_models import only_pickled


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("foreign") / "model"
    foreign_models.marian(path, encoder_layers=1, decoder_layers=1)
    return path


def edit(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def change_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    change(tensors)
    safetensors.torch.save_file(tensors, file)


class Malicious:
    def __reduce__(self) -> Any:
        return (print, ("code of a pickle was run",))


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def shards(path: Path, name: str) -> None:
    (path / "model.safetensors").unlink()
    index = {"weight_map": {"model.shared.weight": name}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def link(file: Path, target: Path) -> None:
    file.unlink()
    file.symlink_to(target)


def to_pointer(name: str, path: Path) -> None:
    oid = "oid sha256:0000\nsize 1\n"
    (path / name).write_text(f"version https://git-lfs.github.com/spec/v1\n{oid}")


def inflated(path: Path) -> None:
    """Weights in few bytes that become many."""
    (path / "model.safetensors").unlink()
    with zipfile.ZipFile(path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(10**7))


POSITIONS = "model.encoder.embed_positions.weight"
NORM = "model.encoder.layers.0.final_layer_norm.weight"
BAD: list[tuple[str, Callable[[Path], object]]] = [
    ("has no config.json", lambda p: (p / "config.json").unlink()),
    ("is not JSON", lambda p: (p / "config.json").write_text("{")),
    ("type 't5' are not supported", lambda p: edit(p / "config.json", model_type="t5")),
    ("'nllb-moe' are not supported", lambda p: edit(p / "config.json", model_type="nllb-moe")),
    ("activation_function 'tanh'", lambda p: edit(p / "config.json", activation_function="tanh")),
    ("ffn_dim have to be equal", lambda p: edit(p / "config.json", decoder_ffn_dim=40)),
    ("num_heads", lambda p: edit(p / "config.json", **dict.fromkeys(
        ("encoder_attention_heads", "decoder_attention_heads"), 5))),
    ("source.spm is missing", lambda p: (p / "source.spm").unlink()),
    ("target.spm is not a SentencePiece model", lambda p: (
        p / "target.spm").write_bytes(b"no model")),
    *((f"bad/{name} is a Git LFS pointer.*run git lfs pull", functools.partial(to_pointer, name))
      for name in ("model.safetensors", "source.spm", "vocab.json", "config.json")),
    ("vocab.json is missing", lambda p: (p / "vocab.json").unlink()),
    ("does not give every piece an id", lambda p: edit(p / "vocab.json", new="1")),
    ("neither model.safetensors nor", lambda p: (p / "model.safetensors").unlink()),
    ("is damaged", lambda p: (p / "model.safetensors").write_bytes(
        (p / "model.safetensors").read_bytes()[:-100])),
    ("layers.1.*missing", lambda p: edit(p / "config.json", encoder_layers=2)),
    (f"weight '{NORM}' is missing", lambda p: change_tensors(p, lambda t: t.pop(NORM))),
    (f"weight '{NORM}' has shape .9.", lambda p: change_tensors(
        p, lambda t: t.update({NORM: torch.zeros(9)}))),
    ("weight 'model.encoder.extra' is unknown", lambda p: change_tensors(
        p, lambda t: t.update({"model.encoder.extra": torch.zeros(9)}))),
    ("is unknown", lambda p: change_tensors(p, lambda t: t.update(extra=torch.zeros(1)))),
    ("has shape", lambda p: change_tensors(p, lambda t: t.update({NORM: torch.zeros(3)}))),
    ("^[^:]*bad: the tokenizer has", lambda p: edit(
        p / "config.json", vocab_size=100, decoder_vocab_size=100)),
    ("vocab_size in config.json is 100", lambda p: edit(
        p / "config.json", vocab_size=100, decoder_vocab_size=100)),
    ("says .210, 32.", lambda p: edit(p / "config.json", vocab_size=210)),
    ("final_layer_norm.weight' holds NaN", lambda p: change_tensors(
        p, lambda t: t[NORM].fill_(torch.nan))),
    ("final_layer_norm.weight' holds infinite", lambda p: change_tensors(
        p, lambda t: t[NORM][0].fill_(torch.inf))),
    ("one matrix, but they differ", lambda p: change_tensors(
        p, lambda t: t.update({"lm_head.weight": t["model.shared.weight"] + 1}))),
    ("nothing of it was run", lambda p: only_pickled(p, Malicious())),
    ("is not a tensor", lambda p: only_pickled(p, {"weight": 1})),
    ("bad_words_ids of several", lambda p: edit(
        p / "generation_config.json", bad_words_ids=[[1, 2]])),
    ("generation_config.json: do_sample True is not supported: remove the field", lambda p: edit(
        p / "generation_config.json", do_sample=True)),
    ("early_stopping 'soon'", lambda p: edit(
        p / "generation_config.json", early_stopping="soon")),
    ("which languages", lambda p: edit(p / "tokenizer_config.json", source_lang=None)),
    ("type 'mt5' are not supported", lambda p: edit(p / "config.json", model_type="mt5")),
    ("bin is damaged|nothing of it was run", lambda p: truncate(
        only_pickled(p, {"weight": torch.zeros(99)}))),
    ("is damaged", lambda p: (p / "model.safetensors").write_bytes(b"")),
    ("not a file of this directory", lambda p: shards(p, "../secret.safetensors")),
    ("part.safetensors is missing", lambda p: shards(p, "part.safetensors")),
    ("source.spm is missing", lambda p: link(p / "source.spm", p / "nowhere")),
    ("the id 10000000000 of 'new'", lambda p: edit(p / "vocab.json", new=10**10)),
    ("vocab_size is 2147483648, .* 4194304", lambda p: edit(
        p / "config.json", vocab_size=2**31, decoder_vocab_size=2**31)),
    ("encoder_layers is 1000000, .* 1024", lambda p: edit(
        p / "config.json", encoder_layers=10**6)),
    ("max_position_embeddings is 2147483648, ", lambda p: edit(
        p / "config.json", max_position_embeddings=2**31)),
    # Sizes of which each is possible. Their products are 275 GB and more.
    ("config.json: vocab_size 256, d_model 65536 make .*.model.safetensors. have", lambda p: edit(
        p / "config.json", d_model=2**16, max_position_embeddings=2**20)),
    ("config.json: vocab_size 4194304, d_model 32 make", lambda p: edit(
        p / "config.json", vocab_size=2**22, decoder_vocab_size=2**22)),
    ("config.json: vocab_size 4194304, d_model 32 make", lambda p: edit(
        p / "config.json", decoder_vocab_size=2**22, tie_word_embeddings=False)),
    ("encoder_layers 1024, decoder_layers 1, encoder_ffn_dim 48, d_model 32 make", lambda p: edit(
        p / "config.json", encoder_layers=1024)),
    ("encoder_ffn_dim 1048576, d_model 32 make", lambda p: edit(
        p / "config.json", encoder_ffn_dim=2**20, decoder_ffn_dim=2**20)),
    ("config.json: max_position_embeddings 1048576 and d_model 32 make a table of 134,217,728 b",
     lambda p: edit(p / "config.json", max_position_embeddings=2**20)),
    ("bin holds 10,000,000 bytes in", inflated),
    ("the weights up to .*final_layer_norm.weight' would take more than 16 times", lambda p: (
        only_pickled(p, {NORM: torch.zeros(1).expand(2**36)}))),
    ("final_layer_norm.weight' has numbers of type torch.int64, not floats", lambda p: (
        change_tensors(p, lambda t: t.update({NORM: torch.ones(32).long()})))),
    ("shared.weight' has numbers of type torch.int64", lambda p: change_tensors(
        p, lambda t: t.update({"model.shared.weight": t["model.shared.weight"].long()}))),
    ("final_layer_norm.weight' is not a plain array", lambda p: only_pickled(
        p, {NORM: torch.ones(32).to_sparse()})),
    ("embed_positions.weight' has shape .5., config.json says .128, 32.", lambda p: change_tensors(
        p, lambda t: t.update({POSITIONS: torch.zeros(5)}))),
    ("num_beams: must be at least 1", lambda p: edit(
        p / "generation_config.json", num_beams=-1)),
    ("num_beams: 10000 is more than", lambda p: edit(
        p / "generation_config.json", num_beams=10_000)),
]  # fmt: skip


@pytest.mark.filterwarnings("error")  # a user would read them before the message
@pytest.mark.parametrize(("message", "spoil"), BAD, ids=[message for message, _ in BAD])
def test_bad_directories(
    model: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    message: str,
    spoil: Callable[[Path], object],
) -> None:
    path = tmp_path / "bad"
    shutil.copytree(model, path)
    spoil(path)
    with pytest.raises(ExportError, match=message):
        import_directory(path, tmp_path / "bundle", ExportOptions())
    assert [file.name for file in tmp_path.iterdir()] == ["bad"]
    assert "code of a pickle" not in capfd.readouterr().out


def test_a_difference_is_found_where_it_begins(model: Path, tmp_path: Path) -> None:
    """As after a mistake in the mapping: an activation that `transformers` has otherwise."""
    from export.huggingface import architectures

    path = tmp_path / "model"
    shutil.copytree(model, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(architectures, "_ACTIVATIONS", {"swish": "relu"})
        with pytest.raises(ExportError, match=r"differs from transformers'.*encoder layer 0"):
            import_directory(path, tmp_path / "bundle", ExportOptions())
    assert not (tmp_path / "bundle").exists()


def test_the_command_refuses_in_one_line(model: Path, tmp_path: Path) -> None:
    for arguments, message in (
        ([str(tmp_path / "nowhere")], "is not a directory"),
        ([str(model), "--languages", "en"], "two languages, source first"),
        ([str(model), "--languages", "en,de_DE"], "no BCP-47 code"),
    ):
        result = CliRunner().invoke(app, ["import", *arguments, "--output", str(tmp_path / "out")])
        assert result.exit_code == 1
        assert message in result.output
        assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--precision", "int4"], "precision must be one of fp32, fp16, int8, not 'int4'"),
        (["--name", "my model/1"], "--name: 'my model/1' is not 1 to 128"),
        (["--model-version", ""], "--model-version: '' is not 1 to 128"),
        (["--languages", "en,de,EN"], "--languages names 'EN' twice"),
        (["--languages", "en,de_DE"], "write de-DE"),
        (["--output", "."], "is in the way"),
    ],
)
def test_options_are_checked_before_any_file_is_read(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    nowhere, output = str(tmp_path / "nowhere"), str(tmp_path / "out")
    result = CliRunner().invoke(app, ["import", nowhere, "--output", output, *arguments])
    said = " ".join(result.output.split())
    assert result.exit_code == 1
    assert message in said
    assert "copy the bundle" not in said
    assert list(tmp_path.iterdir()) == []
