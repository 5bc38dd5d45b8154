"""Guided alignment: word links become token links, and one head learns them."""

from __future__ import annotations

import json
import math
import shutil
import stat
import sys
from pathlib import Path

import pytest
import torch

from export.bundle_writer import ExportOptions
from export.exporter import export_checkpoint
from model.bundle.bundle import Bundle
from model.bundle.config import AlignmentHead
from model.data.recipe import RecipeError, check_files, load_recipe
from model.data.word_alignment import align, link_mask, token_links, word_spans
from model.evaluation.validation import CorpusScore, Scores
from model.network.checkpoint import Checkpoint, load_checkpoint
from model.network.layers import AttentionWeights
from model.training.averaging import average_checkpoints
from model.training.optimization import alignment_loss
from model.training.training import Trainer
from tests.factories import tiny_tokenizer
from tests.unit.model.training.tiny_training import write_corpus, write_recipe

# An "aligner" that links words by position; backwards it leaves out the first one.
ALIGNER = """#!{python}
import sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
lines = [open(options[side]).read().splitlines() for side in ("-s", "-t")]
for name, first in (("-f", 0), ("-r", 1)):
    with open(options[name], "w") as out:
        for pair in zip(*lines):
            length = min(len(side.split()) for side in pair)
            print(*(f"{{i}}-{{i}}" for i in range(first, length)), file=out)
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_corpus(tmp_path, "train", 200, seed=1)
    write_corpus(tmp_path, "valid", 40, seed=2)
    sources = (tmp_path / "train.en").read_text().splitlines()
    lines = [" ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in sources]
    (tmp_path / "train.align").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def aligned_recipe(folder: Path, output: str, alignment: str, **changes: object) -> Path:
    path = write_recipe(folder, output, **changes)
    text = path.read_text().replace("sampling_alpha = 0.5", "sampling_alpha = 0.0")
    path.write_text(f"{text}[alignment]\n{alignment}\n")
    return path


def test_words_and_punctuation_are_linked_through_their_tokens(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    source, target = "A dog, running.", "Ein Hund rennt."
    words = ["A", "dog", ",", "running", "."]
    assert [source[slice(*span)] for span in word_spans(source)] == words
    links = list(token_links(tokenizer, source, target, "1-1 3-2"))
    spans = [tokenizer.encoded_spans(text) for text in (source, target)]
    for one, other in links:
        pieces = source[slice(*spans[0][one])], target[slice(*spans[1][other])]
        assert pieces[0] in ("dog" if spans[1][other].start < 9 else "running")
    assert {other for _, other in links} == {
        i for i, span in enumerate(spans[1]) if 4 <= span.start < 14 and span.start < span.end
    }
    mask = link_mask([links, []], len(spans[1]) + 1, len(spans[0]) + 1)
    assert mask[0].sum() == len(set(links))
    assert not mask[1].any()


def test_only_links_of_both_directions_are_kept(tmp_path: Path) -> None:
    aligner = tmp_path / "aligner"
    aligner.write_text(ALIGNER.format(python=sys.executable))
    aligner.chmod(aligner.stat().st_mode | stat.S_IXUSR)
    pairs = [("A dog, no?", "Ein Hund, nein?"), ("Yes", "Ja")]
    assert align(pairs, str(aligner)) == ["1-1 2-2 3-3 4-4", ""]


def test_the_loss_is_minus_the_log_of_the_attention_on_linked_tokens() -> None:
    weights = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]]])
    links = torch.tensor([[[True, True, False], [False, False, False], [False, True, False]]])
    expected = -math.log(0.75) - math.log(1e-6)
    assert float(alignment_loss(weights, links)) == pytest.approx(expected)


@torch.inference_mode()
def linked_share(checkpoint: Checkpoint, corpus: Path, head: int) -> float:
    """The share of target tokens of the validation text that attend to the word they translate."""
    tokenizer, model = checkpoint.tokenizer, checkpoint.model
    found = []
    sides = ((corpus / f"valid.{side}").read_text("utf-8").splitlines() for side in ("en", "de"))
    for source, target in zip(*sides, strict=True):
        words = source.split()
        once = (f"{i}-{i}" for i, word in enumerate(words) if words.count(word) == 1)
        linked = {(t, s) for s, t in token_links(tokenizer, source, target, " ".join(once))}
        source_ids, target_ids = (torch.tensor([tokenizer.encode(x)]) for x in (source, target))
        target_ids = torch.cat([torch.tensor([[checkpoint.config.bos_id]]), target_ids], dim=1)
        mask, record = torch.ones_like(source_ids, dtype=torch.bool), AttentionWeights()
        model.decode_hidden(target_ids[:, :-1], model.encode(source_ids, mask), mask, record)
        attended = record.decoder_cross[0][0, head].argmax(-1).tolist()
        tokens = {token for token, _ in linked}
        found += [(token, attended[token]) in linked for token in tokens]
    return sum(found) / len(found)


def test_a_head_learns_to_align_and_the_bundle_takes_its_attention(corpus: Path) -> None:
    path = aligned_recipe(
        corpus, "run", "weight = 1.0\nfrom_update = 10\nhead = 3", max_updates=200
    )
    trainer = Trainer(load_recipe(path), device="cpu", show_progress=False)
    final = trainer.run()
    checkpoint = load_checkpoint(final)
    assert checkpoint.alignment_head is not None
    assert (checkpoint.alignment_head.layer, checkpoint.alignment_head.head) == (0, 3)
    trained = linked_share(checkpoint, corpus, 3)
    others = [linked_share(checkpoint, corpus, head) for head in range(3)]
    assert trained > 0.8 > max(others) + 0.1, (trained, others)
    export_checkpoint(final, corpus / "bundle", ExportOptions(), ["red box", "green ball"])
    bundle = Bundle.load(corpus / "bundle")
    assert (bundle.alignment_layer, bundle.alignment_head) == (0, 3)


def test_a_run_may_begin_to_align_and_to_cool_down_where_it_stands(corpus: Path) -> None:
    Trainer(load_recipe(aligned_recipe(corpus, "run", "", max_updates=3)), device="cpu").run()
    path = aligned_recipe(corpus, "run", "weight = 0.05", max_updates=6, cooldown_updates=2)
    longer = Trainer(load_recipe(path), device="cpu")
    longer.run()
    last = corpus / "run" / "checkpoints" / "update-0000006"
    assert load_checkpoint(last).alignment_head is not None
    assert longer.progress.update == 6


def test_a_checkpoint_names_a_head_only_if_its_weights_trained_it(corpus: Path) -> None:
    path = aligned_recipe(corpus, "run", "weight = 1.0\nfrom_update = 3\nhead = 2", max_updates=6)
    trainer = Trainer(load_recipe(path), device="cpu", show_progress=False)
    final, head = trainer.run(), AlignmentHead(0, 2)
    kept = sorted((corpus / "run" / "checkpoints").iterdir())
    # The first one is saved after update 3, the last one that did not align.
    assert [load_checkpoint(folder).alignment_head for folder in kept] == [None, head]
    assert load_checkpoint(corpus / "run" / "best").alignment_head == head
    assert average_checkpoints(kept)[1] is None
    assert average_checkpoints(kept[1:])[1] == head
    shutil.rmtree(final)
    trainer.save_weights(corpus / "mean")
    assert load_checkpoint(corpus / "mean").alignment_head is None


@pytest.mark.parametrize(("best_score", "head"), [(math.inf, None), (-1.0, AlignmentHead(0, 0))])
def test_the_final_checkpoint_names_the_head_of_the_weights_that_it_takes(
    corpus: Path,
    best_score: float,
    head: AlignmentHead | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Trainer(load_recipe(aligned_recipe(corpus, "run", "", max_updates=4)), device="cpu").run()
    path = aligned_recipe(corpus, "run", "weight = 1.0\nfrom_update = 4", max_updates=9)
    trainer = Trainer(load_recipe(path), device="cpu")
    scores = Scores(0.0, {"words": CorpusScore(0.0, 0.0)})
    monkeypatch.setattr("model.training.training.validate", lambda *_, **__: scores)
    trainer.progress.best_score = best_score  # of update 4, without a head; or worse than the mean
    assert load_checkpoint(trainer.run()).alignment_head == head


def test_alignments_that_are_missing_or_cannot_be_used_are_errors(corpus: Path) -> None:
    path = aligned_recipe(corpus, "run", "weight = 1.0")
    check_files(load_recipe(path))
    (corpus / "train.align").unlink()
    with pytest.raises(RecipeError, match=r"train\.align: there is no such file"):
        check_files(load_recipe(path))
    path.write_text(path.read_text().replace("sampling_alpha = 0.0", "sampling_alpha = 0.5"))
    with pytest.raises(RecipeError, match=r"needs vocabulary\.sampling_alpha = 0"):
        load_recipe(path)
    with pytest.raises(RecipeError, match=r"alignment\.head must be between 0 and 3, not 4"):
        load_recipe(aligned_recipe(corpus, "run", "weight = 1.0\nhead = 4"))


def test_a_checkpoint_names_a_head_that_it_does_not_have(corpus: Path) -> None:
    path = aligned_recipe(corpus, "run", "weight = 1.0", max_updates=1)
    final = Trainer(load_recipe(path), device="cpu").run()
    config = json.loads((final / "config.json").read_text())
    config["alignment"]["head"] = 4
    (final / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"alignment\.head must be between 0 and 3"):
        load_checkpoint(final)
