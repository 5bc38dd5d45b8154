"""The spectra of attention matrices: what they are of known matrices, and of a network."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from model.evaluation import spectrum_picture
from model.network.checkpoint import save_checkpoint
from tests.factories import SENTENCES, random_model, tiny_config, tiny_tokenizer


@settings(deadline=None)
@given(seed=st.integers(0, 2**16), size=st.integers(2, 12), rank=st.integers(1, 12))
def test_a_matrix_of_rank_k_has_all_in_its_first_k_values(seed: int, size: int, rank: int) -> None:
    torch.manual_seed(seed)
    left, right = torch.rand(size, rank), torch.rand(rank, size)
    shares = spectrum_picture.cumulative_spectrum(left @ right)
    assert shares[min(rank, size) - 1] == pytest.approx(1.0, abs=1e-4)
    assert (shares.diff() >= 0).all()
    assert (shares.diff().diff() <= 1e-6).all()  # largest first


def test_the_identity_needs_every_value_and_the_mean_one() -> None:
    shares = spectrum_picture.cumulative_spectrum(
        torch.stack([torch.eye(8), torch.full((8, 8), 1 / 8)])
    )
    torch.testing.assert_close(shares[0], torch.arange(1, 9) / 8)
    torch.testing.assert_close(shares[1], torch.ones(8))


def test_sources_are_full_runs_of_sentences(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    runs = spectrum_picture.long_sources(tokenizer, SENTENCES, 20)
    assert [len(run) for run in runs] == [20] * len(runs)
    assert all(run[-1] == tokenizer.eos_id for run in runs)
    ids = [token for line in tokenizer.encode_batch(list(SENTENCES)) for token in line]
    joined = [token for run in runs for token in run[:-1]]
    assert joined == ids[: len(joined)]
    assert len(ids) - len(joined) < 19


def test_the_command_draws_every_layer_and_head(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    save_checkpoint(
        tmp_path / "model",
        model,
        tiny_tokenizer(tmp_path),
        languages={"source": "en", "target": "de"},
    )
    (tmp_path / "text").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    app = typer.Typer()
    app.command()(spectrum_picture.main)

    def run(*options: str) -> str:
        paths = [str(tmp_path / "model"), "--text", str(tmp_path / "text")]
        paths += ["--output", str(tmp_path / "picture.svg")]
        return CliRunner().invoke(app, [*paths, *options]).output

    output = run("--length", "32", "--rank", "8")
    assert [line.split(":")[0] for line in output.splitlines()[1:]] == [
        "layer 0",
        "layer 1",
        "random scores",
    ]
    text = "".join(ElementTree.parse(tmp_path / "picture.svg").getroot().itertext())
    assert all(name in text for name in ("layer 1", "head 1", "random scores", "index 8"))
    assert "at most 64" in run("--length", "65", "--rank", "8")
    assert "more than --length" in run("--length", "32", "--rank", "33")


def test_random_scores_have_no_low_rank() -> None:
    """So that a low rank is a finding, not a property of softmax."""
    shares = spectrum_picture.random_spectrum(128)
    assert shares[31] < 0.7
    assert shares[-1] == pytest.approx(1.0, abs=1e-4)
