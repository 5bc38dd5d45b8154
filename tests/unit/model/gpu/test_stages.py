"""A whole run on the CPU, from text to checkpoints; the plan; which translations are good."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from model.bundle.config import AlignmentHead
from model.data.corpus import ParallelText
from model.data.packed_corpus import MANIFEST_FILE, PackError, packed_side
from model.gpu import run
from model.gpu.packs import read_pairs, read_text, write_pairs
from model.gpu.plan import load_plan
from model.gpu.stages import BACKWARD, FORWARD, Stages, good_translations
from model.gpu.text import StoredSide
from model.gpu.translation import StoredTranslations, translate
from model.network.checkpoint import load_checkpoint, save_checkpoint
from model.network.transformer import Transformer
from model.training import packed_training
from model.training.optimization import SmoothedLoss
from tests.factories import random_model, tiny_config, tiny_tokenizer
from tests.unit.model.gpu.small import BOS, PAD, fresh_network, store
from tests.unit.model.training.tiny_training import write_corpus, write_recipe

SHIPPED = Path("model/recipes/gpu/back-translated.toml")
HEAD = AlignmentHead(layer=1, head=0)
TRAINING = "seconds = 1000.0, batch_tokens = 512, rate = 3e-2, matrix_rate = 1e-1, cooldown = 0.5"
NETWORK = (
    "d_model = 32, ffn_dim = 64, num_heads = 2, num_encoder_layers = 1, num_decoder_layers = 1"
)
STUDENT = f"{TRAINING}, max_updates = 12, alignment_weight = 0.05, align_after = 0.0"
PLAN = f"""
temperature = 1.5
longest = 60
weights = {{ words = 2.0 }}
teacher = {{ {TRAINING}, max_updates = 80, forward_share = 0.4, network = {{ {NETWORK} }} }}
translation = {{ longest = 40, every = 2, left_out = 0.2, batch_tokens = 500, most_rows = 16 }}
forward = {{ {STUDENT}, back_share = 0.4 }}
backward = {{ {STUDENT}, back_share = 0.0 }}
"""


def call(app: object, *arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)  # type: ignore[arg-type]
    assert done.exit_code == 0, done.output
    return done.output


def write_init(folder: Path, seed: int = 0, head: AlignmentHead | None = HEAD) -> Path:
    init = folder / f"init-{seed}"
    tokenizer = tiny_tokenizer(folder)
    languages = {"source": "en", "target": "de"}
    model = random_model(tiny_config(), seed)
    limits = {"alignment_head": head, "trained_length": 30}
    save_checkpoint(init, model, tokenizer, languages=languages, **limits)  # type: ignore[arg-type]
    return init


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plan, a checkpoint to start from, and packs."""
    write_corpus(tmp_path, "train", 120, seed=1)
    write_corpus(tmp_path, "valid", 6, seed=2)
    write_corpus(tmp_path, "text", 60, seed=3)
    (tmp_path / "plan.toml").write_text(PLAN)
    init = write_init(tmp_path)
    recipe, output = write_recipe(tmp_path, "recipe"), tmp_path / "pairs"
    test = f"valid={tmp_path / 'valid.en'},{tmp_path / 'valid.de'}"
    options = ("--data-root", tmp_path, "--init", init, "--test", test, "--output", output)
    said = call(run.app, "pack-pairs", recipe, *options)
    assert said == f"{output}: 120 pairs in 1 pieces\n"
    text = f"1.5:{tmp_path / 'text.de'}"
    said = call(run.app, "pack-text", text, "--init", init, "--output", tmp_path / "text")
    assert said == f"{tmp_path / 'text'}: 60 sentences in 1 pieces\n"
    return tmp_path


def train(folder: Path) -> None:
    options = [f"--{name}={folder / name}" for name in ("pairs", "text", "work")]
    call(run.app, "train", folder / "plan.toml", *options, f"--init={folder / 'init-0'}")


def written(work: Path) -> dict[str, int]:
    """When each result was written."""
    files = [work / "teacher.pt"]
    files += [work / f"{name}-pieces" / MANIFEST_FILE for name in ("forward", "backward")]
    return {file.relative_to(work).parts[0]: file.stat().st_mtime_ns for file in files}


def test_packs_hold_the_token_ids_of_the_text(folder: Path) -> None:
    packed = read_pairs(folder / "pairs")
    tokenizer = packed.tokenizer
    assert packed.corpora == [("words", 120, 1.0)]
    for side, suffix in ((packed.sources, "en"), (packed.targets, "de")):
        lines = (folder / f"train.{suffix}").read_text("utf-8").splitlines()
        parts = np.split(side.ids, side.ends[:-1])
        assert [part.tolist() for part in parts] == tokenizer.encode_batch(lines)
    sources, references = packed.tests["valid"]
    assert sources == (folder / "valid.en").read_text("utf-8").splitlines()
    assert references == (folder / "valid.de").read_text("utf-8").splitlines()
    [text] = read_text(folder / "text")
    assert (text.name, text.weight, len(text.side.ends)) == ("text", 1.5, 60)


def test_a_run_makes_a_student_for_each_direction(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        train(folder)
    measured = [message.split(":")[0] for message in caplog.messages if "BLEU" in message]
    directions = ("forward", "backward")
    assert measured == [f"{name}, {way}" for name in ("teacher", "student") for way in directions]
    assert "30 translations" in caplog.text
    start = load_checkpoint(folder / "init-0")
    for direction, languages, corpora in (
        ("forward", ("en", "de"), ["words", "back-translated-text"]),
        ("backward", ("de", "en"), ["words"]),
    ):
        joined = folder / "joined" / direction
        pieces = folder / "work" / f"{direction}-pieces"
        call(packed_training.app, "join", pieces, "--output", joined)
        found = load_checkpoint(joined)
        assert (found.languages["source"], found.languages["target"]) == languages
        assert found.alignment_head == HEAD
        assert found.trained_length == 30
        assert found.provenance["updates"] == 12
        assert found.provenance["corpora"] == corpora
        # It learnt its own direction.
        ways = (languages, languages[::-1])
        own, other = (
            loss_of(found.model, folder, *way) - loss_of(start.model, folder, *way) for way in ways
        )
        assert own < min(0.0, other)
    assert load_checkpoint(folder / "joined" / "forward").provenance["shares"] == [0.6, 0.4]
    # A training that has ended is not repeated.
    first = written(folder / "work")
    (folder / "work" / "forward-pieces" / MANIFEST_FILE).unlink()
    train(folder)
    again = written(folder / "work")
    assert {name for name in first if first[name] != again[name]} == {"forward-pieces"}


def test_the_backward_direction_swaps_the_sides_of_test_sets(folder: Path) -> None:
    """The sources of this test set are what the model makes of the references."""
    packed, model = read_pairs(folder / "pairs"), load_checkpoint(folder / "init-0").model
    _, german = packed.tests["valid"]
    tokenizer, tokens = packed.tokenizer, store()
    places = tokens.add(packed_side(tokenizer, german))
    limits = {"num_pieces": tokenizer.vocab_size, "batch_tokens": 500}
    found = translate(model, tokens, places, (), most_rows=16, **limits)
    english = [tokenizer.decode(ids) for ids in tokens.tokens(found.side)]
    pairs = [("words", 1.0, ParallelText(english, german))]
    write_pairs(folder / "own", tokenizer, pairs, {"own": (english, german)})
    packs = folder / "own", folder / "text"
    stages = Stages(load_plan(folder / "plan.toml"), folder / "work", folder / "init-0", *packs)
    assert stages.scores("it", BACKWARD, model, ()) == {"own": pytest.approx(100.0)}
    assert stages.scores("it", FORWARD, model, ())["own"] < 50.0


@torch.no_grad()
def loss_of(model: Transformer, folder: Path, *sides: str) -> float:
    """The loss of the training text from one side to the other, in nats a token."""
    corpus, tokens = read_pairs(folder / "pairs"), store()
    given = {"en": tokens.add(corpus.sources), "de": tokens.add(corpus.targets)}
    sources, targets = (tokens.padded(given[side]) for side in sides)
    with_start = torch.cat((torch.full((len(targets), 1), BOS), targets), dim=1)
    total = SmoothedLoss(model.eval(), 0.0)(sources, with_start)
    return float(total / (targets != PAD).sum())


def test_a_checkpoint_without_a_head_or_of_another_vocabulary_is_refused(folder: Path) -> None:
    plan = load_plan(folder / "plan.toml")
    packs = folder / "pairs", folder / "text"
    headless = write_init(folder, seed=1, head=None)
    with pytest.raises(ValueError, match="init-1 has no head"):
        Stages(plan, folder / "work", headless, *packs)
    tokenizer = tiny_tokenizer(folder, 330)
    languages = {"source": "en", "target": "de"}
    other = folder / "other"
    save_checkpoint(other, fresh_network(vocab_size=330), tokenizer, languages=languages)
    with pytest.raises(ValueError, match="other has another vocabulary"):
        Stages(plan, folder / "work", other, *packs)
    next((folder / "text").glob("piece-*")).write_bytes(b"damaged")
    with pytest.raises(PackError, match=r"missing or damaged: piece-00\.xz"):
        Stages(plan, folder / "work", folder / "init-0", *packs)


def test_the_shipped_plan_is_valid() -> None:
    plan = load_plan(SHIPPED)
    assert plan.teacher.network_config(8000).vocab_size == 8008
    assert plan.forward.schedule().factor(300, 0.0) == 1.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("every = 2", "evry = 2", "translation.evry"),
        ("temperature = 1.5", "", "temperature"),
        ("left_out = 0.2", "left_out = 1.0", "translation.left_out"),
        ("num_heads = 2", "num_heads = 3", r"num_heads \(3\) must divide"),
        ("num_heads", "heads", "unknown field 'heads'"),
        ("back_share = 0.0", "back_share = 0.1", "backward.back_share must be 0"),
    ],
)
def test_a_bad_plan_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace(old, new))
    with pytest.raises(ValueError, match=message):
        load_plan(path)


def test_good_translations_have_ended_and_are_sure_and_of_a_fitting_length() -> None:
    lengths = np.array([10, 10, 10, 10, 0, 10, 10])
    found = StoredTranslations(
        StoredSide(np.zeros(7, np.int64), np.array([10, 10, 3, 24, 0, 9, 18])),
        np.array([-0.5, -9.0, -0.1, -0.1, -0.1, -0.2, -1.0], np.float32),
        np.array([True, True, True, True, True, False, True]),
    )
    sources = StoredSide(np.zeros(7, np.int64), lengths)
    assert good_translations(sources, found, 0.0).tolist() == [0, 1, 6]
    assert good_translations(sources, found, 0.15).tolist() == [0, 6]
    none = np.zeros(0, np.int64)
    assert len(good_translations(sources.at(none), found.at(none), 0.15)) == 0
