"""A corpus in pieces trains to the same weights, in as many calls as it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from model.data.packed_corpus import PackError, changed_recipe, pack, read_pieces, unpack
from model.data.recipe import load_recipe
from model.data.recipe_sections import Optimization
from model.data.training_data import load_training_data
from model.network.checkpoint import load_checkpoint
from model.training.optimization import learning_rate
from model.training.packed_training import app, fitted
from model.training.training import Trainer
from tests.unit.model.training.tiny_training import (
    assert_equal_weights,
    draw_from_two_corpora,
    final_weights,
    write_recipe,
)


@pytest.fixture
def recipe(corpus: Path) -> Path:
    path = write_recipe(corpus, "run")
    path.write_text(path.read_text().replace("sampling_alpha = 0.5", "sampling_alpha = 0.0"))
    draw_from_two_corpora(path)
    return path


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_pack_gives_the_same_batches(recipe: Path, tmp_path: Path) -> None:
    data = load_training_data(load_recipe(recipe))
    assert pack(data, tmp_path / "pieces", piece_bytes=2000) > 2
    packed = unpack(tmp_path / "pieces", tmp_path / "there")
    assert packed.fingerprint() == data.fingerprint()
    assert (packed.num_pairs, packed.trained_length) == (data.num_pairs, data.trained_length)
    for number in (0, 3):
        for one, other in zip(data.epoch(number), packed.epoch(number), strict=True):
            assert np.array_equal(one.source_ids, other.source_ids)
            assert np.array_equal(one.target_ids, other.target_ids)


def test_pieces_that_come_one_by_one_train_to_the_weights_of_an_ordinary_run(
    recipe: Path, tmp_path: Path
) -> None:
    # All on one thread, as on the other machine.
    Trainer(load_recipe(recipe), device="cpu", threads=1).run()
    pieces, work, out = (tmp_path / name for name in ("pieces", "work", "out"))
    arguments = ("--data-root", tmp_path, "--run", tmp_path / "run", "--output", pieces)
    invoke("pack", recipe, *arguments)
    data = load_training_data(load_recipe(recipe))
    pack(data, pieces, piece_bytes=3000)
    names = sorted(file.name for file in pieces.glob("piece-*"))
    later = tmp_path / "later"
    later.mkdir()
    (pieces / names[0]).rename(later / names[0])
    there = ("--work", work, "--output", out, "--device", "cpu")
    assert f"still missing: {names[0]}" in invoke("train", pieces, *there)
    assert "stopped at update 1;" in invoke("train", later, *there, "--minutes", 0)
    assert load_checkpoint_of(out, tmp_path / "early").provenance["updates"] == 1
    assert "finished" in invoke("train", later, *there)
    checkpoint = load_checkpoint_of(out, tmp_path / "joined")
    weights = {name: t.half().float() for name, t in final_weights(tmp_path / "run").items()}
    assert_equal_weights(weights, checkpoint.model.state_dict())
    assert checkpoint.trained_length == data.trained_length
    assert (out / "report.md").is_file()


def test_a_schedule_is_fitted_to_the_updates_that_there_is_time_for() -> None:
    planned = Optimization(
        max_updates=4000, warmup_updates=10, cooldown_updates=1000, learning_rate=0.1
    )
    options = fitted(planned, 200.0)
    assert 200 < options.max_updates <= 205
    assert options.cooldown_updates == options.max_updates // 4
    rates = [learning_rate(update, options) for update in (150, 200)]
    assert 0.0 < rates[1] < rates[0] / 4


def load_checkpoint_of(out: Path, folder: Path):  # type: ignore[no-untyped-def]
    invoke("join", out, "--output", folder)
    return load_checkpoint(folder)


def test_another_network_and_a_start_may_be_asked_for(recipe: Path, tmp_path: Path) -> None:
    final = Trainer(load_recipe(recipe), device="cpu").run()
    data = load_training_data(load_recipe(recipe))
    pack(data, tmp_path / "pieces", piece_bytes=10**6, init=final)
    packed = unpack(tmp_path / "pieces", tmp_path / "there", "[saving]\naverage_last = 1")
    trainer = Trainer(packed.recipe, packed, device="cpu")
    assert_equal_weights(load_checkpoint(final).model.state_dict(), trainer.model.state_dict())
    wider = changed_recipe(data.recipe.text, Path("model/recipes/gpu/base.toml").read_text())
    assert wider.model_config_for(300).num_decoder_layers == 6
    assert "# Trained with these changes:" in wider.text
    with pytest.raises(ValueError, match=r"\[data\] is fixed in the pack"):
        changed_recipe(data.recipe.text, "[data]\nmax_tokens = 8")


def test_what_a_pack_cannot_hold_and_damage_are_errors(recipe: Path, tmp_path: Path) -> None:
    data = load_training_data(load_recipe(recipe))
    pack(data, tmp_path / "pieces", piece_bytes=2000)
    (tmp_path / "pieces" / "piece-01.xz").write_bytes(b"damaged")
    with pytest.raises(PackError, match=r"missing or damaged: piece-01\.xz"):
        read_pieces(tmp_path / "pieces")
    recipe.write_text(recipe.read_text().replace("sampling_alpha = 0.0", "sampling_alpha = 0.5"))
    with pytest.raises(PackError, match="need the text itself"):
        pack(load_training_data(load_recipe(recipe)), tmp_path / "other", piece_bytes=2000)
