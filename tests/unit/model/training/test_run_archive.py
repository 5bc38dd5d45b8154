"""A run that travels: how small it becomes, and how it goes on."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from typer.testing import CliRunner

from model.data.packed_corpus import piece_name
from model.data.recipe import load_recipe
from model.training.run_archive import app, reduced, restored
from model.training.training import Trainer
from tests.unit.model.training.tiny_training import write_recipe


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
