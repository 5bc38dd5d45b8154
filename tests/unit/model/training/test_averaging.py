"""A mean of checkpoints is a checkpoint; checkpoints of two networks have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from model.bundle.tokenizer import Tokenizer
from model.network.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from model.training.averaging import average_checkpoints, main, write_average
from tests.factories import random_model, tiny_config, tiny_tokenizer

LANGUAGES = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def save(folder: Path, tokenizer: Tokenizer, seed: int, **fields: Any) -> Path:
    model = random_model(tiny_config(), seed=seed)
    saved: dict[str, Any] = {"languages": LANGUAGES, **fields}
    save_checkpoint(folder, model, tokenizer, provenance={"updates": seed}, **saved)
    return folder


def test_the_mean_keeps_what_the_last_one_says(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folders = [
        save(tmp_path / "run/checkpoints" / f"update-{seed}", tokenizer, seed, recipe="[r]\n")
        for seed in (1, 2, 3)
    ]
    app = typer.Typer()
    app.command()(main)
    output = str(tmp_path / "mean")
    arguments = [str(tmp_path / "run"), "--last", "2", "--output", output]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output

    mean, last = load_checkpoint(tmp_path / "mean"), load_checkpoint(folders[-1])
    assert (mean.config, mean.languages) == (last.config, last.languages)
    assert mean.provenance == {"updates": 3, "averaged": 2}
    assert (tmp_path / "mean" / "recipe.toml").read_text() == "[r]\n"
    assert mean.tokenizer.serialized() == last.tokenizer.serialized()
    expected, _ = average_checkpoints(folders[1:])
    for name, tensor in mean.model.state_dict().items():
        assert torch.equal(tensor, expected[name].half().float()), name


def test_checkpoints_may_have_shares(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folders = [save(tmp_path / str(seed), tokenizer, seed) for seed in (1, 2)]
    app = typer.Typer()
    app.command()(main)
    arguments = [*map(str, folders), "--share", "3", "--share", "1", "--output"]
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "mean")])
    assert result.exit_code == 0, result.output
    first, second = (load_checkpoint(folder).model.state_dict() for folder in folders)
    for name, tensor in load_checkpoint(tmp_path / "mean").model.state_dict().items():
        expected = (0.75 * first[name].double() + 0.25 * second[name].double()).half().float()
        assert torch.allclose(tensor, expected, atol=1e-3, rtol=1e-3), name
    for wrong in (["1"], ["1", "0"], ["1", "1", "1"]):
        options = [part for share in wrong for part in ("--share", share)]
        refused = CliRunner().invoke(app, [*map(str, folders), *options, "--output", "x"])
        assert refused.exit_code == 2
        assert "as many shares above 0" in refused.output


def test_a_mean_of_one_is_the_one(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = save(tmp_path / "one", tokenizer, 1, dtype="fp16", trained_length=40)
    mean, one = write_average([folder], tmp_path / "mean"), load_checkpoint(folder)
    assert mean.trained_length == 40
    for name, tensor in mean.model.state_dict().items():
        assert torch.equal(tensor, one.model.state_dict()[name]), name


def test_other_networks_vocabularies_and_languages_are_refused(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    first = save(tmp_path / "first", tokenizer, 1)
    wider, other = tiny_config(ffn_dim=64), tiny_tokenizer(tmp_path, vocab_size=321)
    save_checkpoint(tmp_path / "network", random_model(wider), tokenizer, languages=LANGUAGES)
    more = random_model(tiny_config(vocab_size=321))
    save_checkpoint(tmp_path / "vocabulary", more, other, languages=LANGUAGES)
    save(tmp_path / "languages", tokenizer, 1, languages={"source": "en", "target": "fr"})
    for field, named in (("network", "network"), ("vocabulary", "network"), ("languages",) * 2):
        with pytest.raises(CheckpointError, match=f"{field}: another {named} than .*first"):
            write_average([first, tmp_path / field], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_a_run_without_checkpoints_is_named(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, [str(tmp_path), "--output", str(tmp_path / "mean")])
    assert result.exit_code == 2
    assert "no checkpoint" in result.output


def test_a_folder_that_is_there_is_not_replaced(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folders = [save(tmp_path / name, tokenizer, seed) for seed, name in enumerate("ab")]
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "mine.txt").write_text("precious")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.*")}
    app = typer.Typer()
    app.command()(main)
    for output in ("papers", "a"):
        given = [*map(str, folders), "--output", str(tmp_path / output)]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == 2
        assert "existsalready" in "".join(filter(str.isalpha, result.output))  # in a box
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.*")} == before
