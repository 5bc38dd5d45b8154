"""Training: the schedule, learning at all, and going on as if nothing had happened."""

from __future__ import annotations

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from export.errors import ExportError
from export.shortlists import shortlist_for
from model.bundle.shortlist import SHORTLIST_FILE
from model.data.recipe import load_recipe
from model.data.recipe_sections import Optimization
from model.network.checkpoint import load_checkpoint
from model.network.transformer import Transformer
from model.training.averaging import average_checkpoints
from model.training.optimization import SmoothedLoss, learning_rate, projected_cross_entropy
from model.training.report import thinned
from model.training.run_state import TrainingError
from model.training.training import Trainer
from tests.unit.model.training.tiny_training import (
    assert_equal_weights,
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
