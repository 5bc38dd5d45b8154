"""Training: the schedule, learning at all, going on as if nothing had happened, and in pieces."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from export.errors import ExportError
from export.shortlists import shortlist_for
from model.bundle.shortlist import SHORTLIST_FILE
from model.data.packed_corpus import PackError, changed_recipe, pack, read_pieces, unpack
from model.data.recipe import load_recipe
from model.data.recipe_sections import Optimization
from model.data.training_data import load_training_data
from model.network.checkpoint import CheckpointError, load_checkpoint
from model.network.transformer import Transformer
from model.training.averaging import average_checkpoints
from model.training.optimization import SmoothedLoss, learning_rate, projected_cross_entropy
from model.training.packed_training import app, fitted
from model.training.report import thinned
from model.training.run_state import TrainingError
from model.training.training import Trainer
from tests.unit.model.training.tiny_training import (
    assert_equal_weights,
    draw_from_two_corpora,
    final_weights,
    write_corpus,
    write_recipe,
)


def test_training_learns_and_leaves_a_checkpoint_that_averages_the_last_ones(corpus: Path) -> None:
    recipe = load_recipe(write_recipe(corpus, "run", max_updates=60))
    trainer = Trainer(recipe, device="cpu", show_progress=False)
    final = trainer.run()
    losses = [entry["loss"] for entry in trainer.progress.history]
    assert losses[-1] < 0.7 * losses[0]
    kept = sorted((corpus / "run" / "checkpoints").iterdir())
    assert [folder.name for folder in kept] == ["update-0000057", "update-0000060"]
    mean, _ = average_checkpoints(kept)
    best = load_checkpoint(corpus / "run" / "best").model.state_dict()
    weights = load_checkpoint(final).model.state_dict()
    assert all(torch.allclose(weights[n], mean[n]) for n in weights) or all(
        torch.equal(weights[n], best[n]) for n in weights
    )
    assert (corpus / "run" / "tensorboard").is_dir()


def test_a_recurrent_decoder_has_the_shortlist_of_its_training(corpus: Path) -> None:
    recipe = write_recipe(corpus, "run", max_updates=2)
    recipe.write_text(recipe.read_text().replace("[model]", '[model]\ndecoder = "ssru"'))
    final = Trainer(load_recipe(recipe), device="cpu", show_progress=False).run()
    loaded = load_checkpoint(final)
    found = shortlist_for(final, None, loaded.tokenizer, loaded.config)
    assert found is not None
    ids = loaded.tokenizer.encode((corpus / "train.en").read_text().split("\n")[0])
    assert {*ids} <= {*found.target_ids(ids).tolist()}
    (final / SHORTLIST_FILE).write_bytes(b"DRGLIST1")
    with pytest.raises(ExportError, match=r"shortlist\.bin is cut off.*--shortlist-from"):
        shortlist_for(final, None, loaded.tokenizer, loaded.config)


def test_a_validation_shows_samples_with_their_references(
    corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = load_recipe(write_recipe(corpus, "run", max_updates=4))
    trainer = Trainer(recipe, device="cpu", show_progress=False)
    with caplog.at_level("INFO"):
        trainer.run()
    (shown,) = (m for m in caplog.messages if m.startswith("samples"))
    sources, references = (
        re.findall(rf"^  {side}: +(.*)$", shown, re.MULTILINE) for side in ("source", "reference")
    )
    assert len(sources) == len(re.findall(r"^  output: ", shown, re.MULTILINE)) == 3
    pairs = zip(
        *((corpus / f"valid.{side}").read_text("utf-8").splitlines() for side in ("en", "de")),
        strict=True,
    )
    assert set(zip(sources, references, strict=True)) <= set(pairs)
    assert any(m.startswith("update 1 of 4 (25 %)") and " left" in m for m in caplog.messages)
    (events,) = (file.read_bytes() for file in (corpus / "run" / "tensorboard").iterdir())
    assert b"valid/samples" in events
    assert f"source:    {sources[0]}\n".encode() in events
    # They are for the eye: the report holds numbers.
    assert "samples" not in (corpus / "run" / "report.json").read_text()


def test_the_rate_rises_linearly_to_its_peak_then_falls_with_the_inverse_root() -> None:
    options = Optimization(max_updates=1, learning_rate=2.0, warmup_updates=100)
    assert learning_rate(50, options) == pytest.approx(1.0)
    assert learning_rate(100, options) == pytest.approx(2.0)
    assert learning_rate(400, options) == pytest.approx(1.0)


def test_the_loss_is_the_smoothed_cross_entropy_over_target_tokens_only(corpus: Path) -> None:
    recipe = load_recipe(write_recipe(corpus, "run"))
    model = Transformer(recipe.model_config_for(300)).eval()
    source = torch.tensor([[10, 11, 3], [12, 3, 0]])
    target = torch.tensor([[2, 20, 21, 3], [2, 22, 3, 0]])
    log_probabilities = model(source, target[:, :-1]).detach().log_softmax(-1)
    expected = 0.0
    for row, column in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]:
        scores = log_probabilities[row, column]
        expected -= 0.9 * float(scores[target[row, column + 1]]) + 0.1 * float(scores.mean())
    loss = SmoothedLoss(model, 0.1)(source, target).detach()
    assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("num_tokens", [1, 511, 1100])
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_loss_in_chunks_has_the_value_and_gradients_of_the_whole(
    num_tokens: int, has_bias: bool
) -> None:
    generator = torch.Generator().manual_seed(num_tokens)
    shapes = [(num_tokens, 16), (300, 16), (300,)][: 2 + has_bias]
    inputs = [
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in shapes
    ]
    hidden, weight, *bias = inputs
    labels = torch.randint(300, (num_tokens,), generator=generator)
    logits = torch.nn.functional.linear(*inputs)
    expected = torch.nn.functional.cross_entropy(
        logits, labels, reduction="sum", label_smoothing=0.1
    )
    found = projected_cross_entropy(hidden, weight, bias[0] if bias else None, labels, 0.1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0.0)
    gradients = [torch.autograd.grad(loss * 0.3, inputs) for loss in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        without = projected_cross_entropy(hidden, weight, bias[0] if bias else None, labels, 0.1)
    torch.testing.assert_close(without, found.detach(), rtol=1e-6, atol=0.0)


def test_early_stopping_ends_a_run_that_no_longer_gets_better(corpus: Path) -> None:
    path = write_recipe(corpus, "run", max_updates=400, learning_rate=1e-9)
    text = path.read_text().replace("every_updates = 4", "every_updates = 4\npatience = 2")
    path.write_text(text)
    trainer = Trainer(load_recipe(path), device="cpu", show_progress=False)
    trainer.run()
    assert trainer.progress.update == 12
    assert math.isfinite(trainer.progress.best_score)


def test_a_new_run_starts_from_the_checkpoint_that_init_from_names(corpus: Path) -> None:
    Trainer(load_recipe(write_recipe(corpus, "first")), device="cpu").run()
    start = str(corpus / "first" / "final")
    recipe = load_recipe(write_recipe(corpus, "second", init_from=start))
    trainer = Trainer(recipe, device="cpu")
    assert_equal_weights(final_weights(corpus / "first"), trainer.model.state_dict())


def test_weights_of_another_network_are_refused_by_name(corpus: Path) -> None:
    Trainer(load_recipe(write_recipe(corpus, "first")), device="cpu").run()
    path = write_recipe(corpus, "second", init_from=str(corpus / "first" / "final"))
    text = path.read_text()
    free = text.replace("max_positions = 64", "max_positions = 80\ndropout = 0.3")
    path.write_text(free)
    Trainer(load_recipe(path), device="cpu")
    path.write_text(text.replace("[model]", '[model]\nnorm = "pre"'))
    with pytest.raises(
        CheckpointError, match=r"init_from: .*model\.norm is 'post' there, 'pre' here"
    ):
        Trainer(load_recipe(path), device="cpu")


def test_a_loss_that_explodes_stops_the_run_and_says_what_to_change(corpus: Path) -> None:
    recipe = load_recipe(write_recipe(corpus, "run"))
    trainer = Trainer(recipe, device="cpu")
    with torch.no_grad():
        trainer.model.target_embedding.weight.fill_(math.nan)
    with pytest.raises(TrainingError, match=r"lower optimization\.learning_rate"):
        trainer.run()


@pytest.mark.parametrize("change", ["vocab_size", "text"])
def test_a_vocabulary_that_no_state_depends_on_is_made_anew_when_its_source_changed(
    corpus: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """As after a run that was killed before it saved anything."""
    path = write_recipe(corpus, "run")
    Trainer(load_recipe(path), device="cpu")
    first = (corpus / "run" / "tokenizer.model").read_bytes()
    Trainer(load_recipe(path), device="cpu")
    assert "made anew" not in caplog.text
    with caplog.at_level("INFO"):
        if change == "text":
            write_corpus(corpus, "train", 60, seed=3)
            changed = "text.sha256"
        else:
            path.write_text(path.read_text().replace("vocab_size = 300", "vocab_size = 301"))
            changed = "vocabulary.vocab_size (300, now 301)"
        trainer = Trainer(load_recipe(path), device="cpu")
    assert "made anew" in caplog.text
    assert changed in caplog.text
    assert trainer.data.tokenizer.vocab_size == (300 if change == "text" else 301)
    path.write_text(path.read_text().replace('/run"', '/fresh"'))
    Trainer(load_recipe(path), device="cpu")
    made, fresh = ((corpus / run / "tokenizer.model").read_bytes() for run in ("run", "fresh"))
    assert made == fresh != first


def test_too_little_text_for_one_update_is_an_error(corpus: Path) -> None:
    recipe = load_recipe(write_recipe(corpus, "run", accumulate=1000))
    with pytest.raises(TrainingError, match="too few for one update of 1000"):
        Trainer(recipe, device="cpu").run()


def test_the_checkpoint_holds_the_recipe_word_for_word(corpus: Path) -> None:
    path = write_recipe(corpus, "run", max_updates=2)
    final = Trainer(load_recipe(path), device="cpu").run()
    assert (final / "recipe.toml").read_text() == path.read_text()


def test_the_checkpoint_says_up_to_which_length_there_were_enough_examples(corpus: Path) -> None:
    path = write_recipe(corpus, "run", max_updates=1)
    trainer = Trainer(load_recipe(path), device="cpu")
    encoded = trainer.data.epoch(0).encoded
    shortest = trainer.data.tokenizer.encode_batch(trainer.data.train.sources)
    length = load_checkpoint(trainer.run()).trained_length
    # Of 60 pairs the longest one is a thousandth and more.
    assert length == max(map(len, shortest)) + 1
    assert length <= encoded.lengths()[:, 0].max() <= 32


def test_the_rate_falls_to_nothing_over_the_cooldown() -> None:
    options = Optimization(
        max_updates=200, learning_rate=2.0, warmup_updates=50, cooldown_updates=100
    )
    plain = options.model_copy(update={"cooldown_updates": 0})
    assert learning_rate(101, options) == learning_rate(101, plain)
    assert learning_rate(151, options) == pytest.approx(learning_rate(151, plain) / 2)
    assert learning_rate(200, options) == pytest.approx(learning_rate(200, plain) / 100)


def test_a_report_shows_the_curves_of_the_run(corpus: Path) -> None:
    path = write_recipe(corpus, "run", max_updates=9)
    Trainer(load_recipe(path), device="cpu", show_progress=False).run()
    page = (corpus / "run" / "report.md").read_text()
    assert page.startswith("# Training run words\n")
    assert "3 validations up to update 9" in page
    assert "![Curves](curves.svg)" in page
    root = ElementTree.parse(corpus / "run" / "curves.svg").getroot()
    lines = [e.attrib["d"] for e in root.iter() if e.get("class", "").startswith("line ")]
    # The training loss, the validation loss, BLEU of one corpus, the speed.
    assert [line.count("L") + 1 for line in lines] == [9, 3, 3, 9]


def test_a_curve_is_thinned_to_means_of_neighbours() -> None:
    curve = [(float(x), float(x % 2)) for x in range(1, 1001)]
    thin = thinned(curve)
    assert len(thin) <= 400
    assert thin[-1][0] == 1000.0
    assert all(0.3 <= y <= 0.7 for _, y in thin[:-1])
    assert thinned([]) == []


# --- a corpus in pieces ---------------------------------------------------------------------------


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
