"""A checkpoint comes back as it was saved, and a damaged one says which file is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from model.bundle.tokenizer import Tokenizer
from model.network.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from tests.factories import random_model, tiny_config, tiny_tokenizer

LANGUAGES = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"embedding_tying": "target", "norm": "pre"},
        {"embedding_tying": "none", "output_bias": True, "positions": "sinusoidal"},
    ],
)
def test_float32_comes_back_bit_by_bit(
    tmp_path: Path, tokenizer: Tokenizer, overrides: dict[str, Any]
) -> None:
    model = random_model(tiny_config(**overrides))
    provenance = {"corpora": ["ours"], "updates": 7}
    save_checkpoint(tmp_path / "c", model, tokenizer, languages=LANGUAGES, provenance=provenance)

    loaded = load_checkpoint(tmp_path / "c")

    assert loaded.config == loaded.model.config == model.config
    assert loaded.languages == LANGUAGES
    assert loaded.provenance == provenance
    assert not loaded.model.training
    assert loaded.tokenizer.encode("A dog is running.") == tokenizer.encode("A dog is running.")
    ours, theirs = model.state_dict(), loaded.model.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize(("tying", "copies"), [("all", 1), ("target", 2), ("none", 3)])
def test_tied_matrices_are_stored_once_and_tied_again(
    tmp_path: Path, tokenizer: Tokenizer, tying: str, copies: int
) -> None:
    model = random_model(tiny_config(embedding_tying=tying))
    save_checkpoint(tmp_path / "c", model, tokenizer, languages=LANGUAGES)
    with safe_open(tmp_path / "c" / "model.safetensors", "pt") as file:
        names = list(file.keys())
    matrices = {"source_embedding.weight", "target_embedding.weight", "output_projection.weight"}
    assert len(matrices & set(names)) == copies
    loaded = load_checkpoint(tmp_path / "c").model
    weights = (
        loaded.source_embedding.weight,
        loaded.target_embedding.weight,
        loaded.output_projection.weight,
    )
    assert len({weight.data_ptr() for weight in weights}) == copies
    assert loaded.num_parameters() == model.num_parameters()


def test_float16_halves_the_file_and_rounds_the_weights(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = random_model(tiny_config())
    sizes = {}
    for dtype in ("fp32", "fp16"):
        folder = tmp_path / dtype
        save_checkpoint(folder, model, tokenizer, languages=LANGUAGES, dtype=dtype)
        sizes[dtype] = (folder / "model.safetensors").stat().st_size
    assert sizes["fp16"] < 0.6 * sizes["fp32"]
    loaded = load_checkpoint(tmp_path / "fp16").model
    for name, tensor in model.state_dict().items():
        assert loaded.state_dict()[name].dtype == torch.float32
        assert torch.equal(loaded.state_dict()[name], tensor.half().float()), name


def test_saving_again_replaces_the_old_one_whole(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = tmp_path / "c"
    save_checkpoint(folder, random_model(tiny_config()), tokenizer, languages=LANGUAGES)
    (folder / "left-over").write_text("from before")
    second = random_model(tiny_config(), seed=1)
    save_checkpoint(folder, second, tokenizer, languages=LANGUAGES)
    loaded = load_checkpoint(folder).model
    assert torch.equal(loaded.target_embedding.weight, second.target_embedding.weight)
    assert not (folder / "left-over").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def edit_config(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        fields = json.loads(path.read_text())
        change(fields)
        path.write_text(json.dumps(fields))

    return damage


def cut(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[: len(raw) // 2])

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), r"config\.json: No such file"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors"),
    "no tokenizer": (lambda f: (f / "tokenizer.model").unlink(), r"tokenizer\.model"),
    "cut config": (cut("config.json"), r"config\.json"),
    "cut weights": (cut("model.safetensors"), r"model\.safetensors: damaged"),
    "cut tokenizer": (cut("tokenizer.model"), r"tokenizer\.model"),
    "later format": (
        edit_config(lambda c: c.update(format_version=99)),
        r"config\.json: format_version is 99, this program reads 1",
    ),
    "no model": (edit_config(lambda c: c.pop("model")), r"config\.json: there is no field 'model'"),
    "unknown field": (
        edit_config(lambda c: c["model"].update(rotary=True)),
        r"config\.json: unknown field 'rotary'",
    ),
    "other width": (
        edit_config(lambda c: c["model"].update(ffn_dim=50)),
        r"model\.safetensors: .* has shape \[.*\], the configuration says \[.*50",
    ),
    "more layers": (
        edit_config(lambda c: c["model"].update(num_encoder_layers=3)),
        r"model\.safetensors: missing tensor 'encoder\.layers\.2\.",
    ),
    "fewer layers": (
        edit_config(lambda c: c["model"].update(num_encoder_layers=1)),
        r"model\.safetensors: unknown tensor 'encoder\.layers\.1\.",
    ),
    "other vocabulary": (
        edit_config(lambda c: c["model"].update(vocab_size=321)),
        r"tokenizer\.model has 320 pieces, the model's vocab_size is 321",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda name: name.replace(" ", "-"))
def test_a_damaged_checkpoint_names_the_file(
    tmp_path: Path, tokenizer: Tokenizer, damage: str
) -> None:
    folder = tmp_path / "c"
    save_checkpoint(folder, random_model(tiny_config()), tokenizer, languages=LANGUAGES)
    act, message = DAMAGES[damage]
    act(folder)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


def test_a_run_has_its_best_checkpoint_until_it_has_a_final_one(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    run = tmp_path / "run"
    with pytest.raises(CheckpointError, match=r"run/config\.json: .*is this a checkpoint"):
        load_checkpoint(run)
    model = random_model(tiny_config())
    for number, name in enumerate(("best", "final")):
        made = {"number": number}
        save_checkpoint(run / name, model, tokenizer, languages=LANGUAGES, provenance=made)
        assert load_checkpoint(run).provenance == made
        assert load_checkpoint(run / "best").provenance == {"number": 0}


def test_what_a_killed_save_left_behind_is_removed_by_the_next(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = random_model(tiny_config())
    for name in (".c.partial-x1y2", ".c.mine", ".cc.partial-x1y2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    save_checkpoint(tmp_path / "c", model, tokenizer, languages=LANGUAGES)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"c", ".c.mine", ".cc.partial-x1y2"}
