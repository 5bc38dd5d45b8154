"""Runs that are interrupted, paused, continued, made by two processes, or that travel."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from model.data.packed_corpus import piece_name
from model.data.recipe import load_recipe
from model.training.run_archive import app, reduced, restored
from model.training.run_state import TrainingError
from model.training.training import Trainer
from tests.unit.model.training.tiny_training import (
    assert_equal_weights,
    draw_from_two_corpora,
    final_weights,
    write_corpus,
    write_recipe,
)
from tests.unit.model.training.training_child import start, status


@pytest.mark.parametrize(
    ("where", "update", "ends", "optimizer"),
    [
        ("kill_after_update", 7, -signal.SIGKILL, "adamw"),
        ("kill_before_state", 6, -signal.SIGKILL, "muon"),
        # The uncaught KeyboardInterrupt, once the state is saved.
        ("interrupt", 7, 1, "adamw"),
    ],
)
def test_a_run_that_ended_early_goes_on_to_the_weights_of_an_unbroken_one(
    corpus: Path, where: str, update: int, ends: int, optimizer: str
) -> None:
    unbroken, broken = (
        write_recipe(corpus, name, optimizer=optimizer) for name in ("unbroken", "broken")
    )
    if where == "kill_after_update":
        for path in (unbroken, broken):  # epochs of four or five updates
            draw_from_two_corpora(path)
    assert status(start(broken, where, update)) == ends
    assert not (corpus / "broken" / "final").exists()
    assert status(start(broken)) == 0
    # Here: with another seed of hashes, and after whatever ran before.
    Trainer(load_recipe(unbroken), device="cpu", show_progress=False).run()
    assert_equal_weights(final_weights(corpus / "unbroken"), final_weights(corpus / "broken"))
    reports = [
        json.loads((corpus / name / "report.json").read_text()) for name in ("unbroken", "broken")
    ]
    assert [v["update"] for v in reports[0]["validations"]] == [4, 8, 10]
    assert reports[0] == reports[1]


def run_group(recipe: Path, where: str = "", at: int = 0) -> list[int]:
    """The exit statuses of two processes that train together."""
    with socket.socket() as probe:
        # Kept while they run, so that nobody else is given the port; they may listen on it so.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        children = [start(recipe, where, at, RANK=str(rank), **group) for rank in range(2)]
        return [status(child) for child in children]


def test_two_processes_go_on_to_the_weights_of_an_unbroken_run(corpus: Path) -> None:
    unbroken, broken = write_recipe(corpus, "unbroken"), write_recipe(corpus, "broken")
    assert run_group(unbroken) == [0, 0]
    assert 0 not in run_group(broken, "kill_after_update", 7)
    assert run_group(broken) == [0, 0]
    assert_equal_weights(final_weights(corpus / "unbroken"), final_weights(corpus / "broken"))


def test_two_processes_do_what_one_does_with_accumulation(corpus: Path) -> None:
    # Without dropout and sampling the only difference is the order of floating-point sums.
    alone = write_recipe(corpus, "alone", accumulate=2)
    shared = write_recipe(corpus, "shared")
    for path in (alone, shared):
        text = path.read_text().replace('preset = "tiny"', 'preset = "tiny"\ndropout = 0.0')
        path.write_text(text)
    Trainer(load_recipe(alone), device="cpu", show_progress=False).run()
    assert run_group(shared) == [0, 0]
    one, two = final_weights(corpus / "alone"), final_weights(corpus / "shared")
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=2e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("ffn_dim = 64", "ffn_dim = 32", "model.ffn_dim"),
        ("batch_tokens = 64", "batch_tokens = 2048", "optimization.batch_tokens"),
        ("vocab_size = 300", "vocab_size = 301", "vocabulary.vocab_size"),
        ("precision =", 'optimizer = "muon"\nprecision =', "optimization.muon_momentum"),
        (
            "max_tokens = 32",
            "max_tokens = 32\nmixture = { temperature = 2.0, epoch_pairs = 30 }",
            "data.mixture",
        ),
    ],
)
def test_a_run_does_not_go_on_with_another_recipe_and_says_what_changed(
    corpus: Path, old: str, new: str, field: str
) -> None:
    path = write_recipe(corpus, "run", max_updates=3)
    Trainer(load_recipe(path), device="cpu").run()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(TrainingError, match=rf"another {field}"):
        Trainer(load_recipe(path), device="cpu")


@pytest.mark.parametrize(
    ("num_pairs", "seed", "field"), [(61, 1, "training_pairs"), (60, 3, "training_text")]
)
def test_a_run_does_not_go_on_with_another_corpus(
    corpus: Path, num_pairs: int, seed: int, field: str
) -> None:
    path = write_recipe(corpus, "run", max_updates=3)
    Trainer(load_recipe(path), device="cpu").run()
    write_corpus(corpus, "train", num_pairs, seed=seed)
    with pytest.raises(TrainingError, match=f"another {field}"):
        Trainer(load_recipe(path), device="cpu")


def test_more_updates_may_be_asked_of_a_finished_run(corpus: Path) -> None:
    Trainer(load_recipe(write_recipe(corpus, "run", max_updates=3)), device="cpu").run()
    longer = Trainer(load_recipe(write_recipe(corpus, "run", max_updates=5)), device="cpu")
    longer.run()
    assert longer.progress.update == 5


def test_a_state_of_an_older_version_goes_on(corpus: Path) -> None:
    """One that had AdamW alone, and counted no CPU time."""
    Trainer(load_recipe(write_recipe(corpus, "run", max_updates=3)), device="cpu").run()
    path = corpus / "run" / "state.pt"
    state = torch.load(path, weights_only=True)
    (state["optimizer"],) = state["optimizer"]
    del state["progress"]["cpu_seconds"]
    torch.save(state, path)
    trainer = Trainer(load_recipe(write_recipe(corpus, "run", max_updates=4)), device="cpu")
    trainer.run()
    assert trainer.progress.update == 4
    (moments,) = trainer.optimizer.state_dict()
    assert {float(each["step"]) for each in moments["state"].values()} == {4.0}


def test_a_damaged_state_is_named(corpus: Path) -> None:
    path = write_recipe(corpus, "run", max_updates=3)
    Trainer(load_recipe(path), device="cpu").run()
    state = corpus / "run" / "state.pt"
    state.write_bytes(state.read_bytes()[:-2000])
    with pytest.raises(TrainingError, match=r"state\.pt is damaged"):
        Trainer(load_recipe(path), device="cpu")


@contextlib.contextmanager
def when_paused(do: Callable[[], None]) -> Iterator[None]:
    """Call `do` when a run logs that it is paused."""

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("paused"):
                do()

    logger, watch = logging.getLogger("model.training.training"), Watch()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(watch)
    try:
        yield
    finally:
        logger.removeHandler(watch)
        logger.setLevel(level)


def test_a_run_is_paused_by_a_file_and_goes_on_when_it_is_gone(
    corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = Trainer(load_recipe(write_recipe(corpus, "run", max_updates=2)), device="cpu")
    pause = corpus / "run" / "pause"
    pause.touch()
    with when_paused(pause.unlink):
        trainer.run()
    assert not pause.exists()
    assert f"paused at update 0; remove {pause} to go on" in caplog.text
    assert trainer.progress.update == 2


def test_a_paused_run_can_be_interrupted(corpus: Path) -> None:
    trainer = Trainer(load_recipe(write_recipe(corpus, "run")), device="cpu")
    (corpus / "run" / "pause").touch()
    with (
        when_paused(lambda: signal.raise_signal(signal.SIGTERM)),
        pytest.raises(KeyboardInterrupt),
    ):
        trainer.run()
    assert (corpus / "run" / "state.pt").exists()


# --- runs that travel -----------------------------------------------------------------------------


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return f"{result.exit_code} {result.output}"


def test_a_run_goes_on_from_its_archive_nearly_as_if_it_had_stayed(corpus: Path) -> None:
    """Validation losses of the run that stayed and the one that travelled are compared."""

    def train(name: str, updates: int) -> Trainer:
        path = write_recipe(corpus, name, optimizer="muon", max_updates=updates)
        trainer = Trainer(load_recipe(path), device="cpu", show_progress=False)
        trainer.run()
        return trainer

    train("stayed", 20)
    archive = corpus / "archive"
    assert call("pack", corpus / "stayed", "--output", archive).startswith("0 ")
    assert call("unpack", archive, "--output", corpus / "travelled").startswith("0 ")
    packed = sum(file.stat().st_size for file in archive.iterdir())
    # With the vocabulary, which is the larger part here.
    assert packed < (corpus / "stayed" / "state.pt").stat().st_size / 2
    stayed, travelled = (train(name, 40).progress for name in ("stayed", "travelled"))
    assert travelled.update == 40
    assert travelled.history[:5] == stayed.history[:5]
    assert (travelled.epoch, travelled.position) == (stayed.epoch, stayed.position)
    before, one, other = (
        entry["loss"] for entry in (stayed.history[4], stayed.history[-1], travelled.history[-1])
    )
    assert one < before
    assert other < one + 0.3 * (before - one)


def test_second_moments_come_back_as_products_of_means() -> None:
    rows, columns = torch.tensor([1.0, 4.0, 0.0]), torch.tensor([2.0, 6.0])
    matrix, vector = torch.outer(rows, columns), torch.tensor([3.0, 0.5])
    state = {
        0: {"step": torch.tensor(7.0), "exp_avg": matrix, "exp_avg_sq": matrix},
        1: {"step": torch.tensor(7.0), "exp_avg": vector, "exp_avg_sq": vector},
        2: {"step": torch.tensor(7.0), "exp_avg": matrix, "exp_avg_sq": torch.zeros(3, 2)},
    }
    found = restored(reduced({"state": state, "param_groups": []}))["state"]
    for index, moments in state.items():
        torch.testing.assert_close(found[index]["exp_avg_sq"], moments["exp_avg_sq"])
        assert found[index]["exp_avg"].count_nonzero() == 0
        assert float(found[index]["step"]) == 7.0


def test_what_cannot_be_packed_or_unpacked_is_named(corpus: Path) -> None:
    output = corpus / "archive"
    refused = call("pack", corpus, "--output", output)  # in a frame, with a long path
    assert "state.pt:Nosuchfile" in re.sub(r"[\s│]", "", refused)
    Trainer(load_recipe(write_recipe(corpus, "run", max_updates=3)), device="cpu").run()
    call("pack", corpus / "run", "--output", output)
    refused = call("unpack", output, "--output", corpus / "run")
    assert "hasastatealready" in re.sub(r"[\s│]", "", refused)
    (output / piece_name(0)).write_bytes(b"broken")
    assert "missing or damaged" in call("unpack", output, "--output", corpus / "new")
