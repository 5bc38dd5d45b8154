"""Wider networks that compute what a trained one computes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch.nn import functional as F
from typer.testing import CliRunner

from model.bundle.config import preset
from model.network.checkpoint import load_checkpoint, save_checkpoint
from model.network.transformer import Transformer
from model.training.widening import main, widened
from tests.factories import tiny_config, tiny_tokenizer

WORDS = 40
SOURCES, TARGETS = torch.randint(5, WORDS, (2, 6, 9), generator=torch.Generator().manual_seed(1))


def network(**changes: object) -> Transformer:
    """With random gains and biases."""
    config = preset("tiny", WORDS, norm="pre", decoder="ssru", **changes)
    torch.manual_seed(0)
    made = Transformer(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return made


@torch.no_grad()
def predicted(model: Transformer) -> torch.Tensor:
    logits: torch.Tensor = model(SOURCES, TARGETS)
    return logits.log_softmax(dim=-1)


@pytest.mark.parametrize("positions", ["sinusoidal", "marian", "learned"])
def test_the_wider_network_computes_nearly_the_same(positions: Any) -> None:
    before = network(positions=positions)
    after = widened(before, 192)
    assert dataclasses.replace(
        after.config, d_model=128, num_heads=4, ffn_dim=256, positions=positions
    ) == dataclasses.replace(before.config)
    assert (after.config.num_heads, after.config.ffn_dim) == (6, 384)
    torch.manual_seed(2)
    fresh = Transformer(after.config).eval()
    gap = (predicted(after) - predicted(before)).abs().mean()
    assert gap < 0.25 * (predicted(fresh) - predicted(before)).abs().mean()


@torch.no_grad()
def test_the_encoder_is_exact() -> None:
    before = network()
    wide, narrow = widened(before, 192).encode(SOURCES), before.encode(SOURCES)
    torch.testing.assert_close(wide[..., :128], narrow, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(wide[..., 128:], torch.zeros(6, 9, 64), atol=1e-4, rtol=0.0)


@torch.no_grad()
def test_the_decoder_is_exact_but_for_its_recurrent_unit() -> None:
    before = network()
    for layer in before.decoder.each_layer():
        layer.recurrence.candidate.weight.zero_()
    after = widened(before, 192)
    for layer in after.decoder.each_layer():
        layer.recurrence.candidate.weight.zero_()
    torch.testing.assert_close(predicted(after), predicted(before), atol=1e-3, rtol=1e-3)


def test_training_reaches_the_new_rows_of_every_matrix() -> None:
    after = widened(network(), 192).train()
    for _ in range(3):  # what reads a column learns after what writes it
        after.zero_grad()
        loss: Any = F.cross_entropy(after(SOURCES, TARGETS).transpose(1, 2), TARGETS)
        loss.backward()
        with torch.no_grad():
            for parameter in after.parameters():
                assert parameter.grad is not None
                parameter.sub_(0.1 * parameter.grad)
    for name, parameter in after.named_parameters():
        assert parameter.grad is not None
        rows = parameter.grad.flatten(1).abs().sum(dim=1) if parameter.dim() > 1 else None
        if rows is not None and "embedding" not in name and "positions" not in name:
            assert (rows > 0).float().mean() > 0.8, name  # a ReLU may be idle for so short a text


@pytest.mark.parametrize(
    ("changes", "width", "message"),
    [
        ({"norm": "post"}, 192, "model.norm has to be 'pre', not 'post'"),
        ({"decoder": "self_attention"}, 192, "model.decoder has to be 'ssru'"),
        ({"embedding_tying": "none"}, 192, "model.embedding_tying has to be 'all'"),
        ({}, 200, "a multiple of 32 above 128, not 200"),
        ({}, 128, "a multiple of 32 above 128, not 128"),
    ],
)
def test_others_are_refused(changes: dict[str, object], width: int, message: str) -> None:
    config = preset("tiny", WORDS, **({"norm": "pre", "decoder": "ssru"} | changes))
    with pytest.raises(ValueError, match=message):
        widened(Transformer(config), width)


def test_the_command_writes_a_checkpoint(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    config = tiny_config(norm="pre", decoder="ssru", d_model=16)
    save_checkpoint(
        tmp_path / "narrow",
        Transformer(config),
        tokenizer,
        languages={"source": "en", "target": "de"},
        trained_length=99,
    )
    app = typer.Typer()
    app.command()(main)
    arguments = [str(tmp_path / "narrow"), "--output", str(tmp_path / "wide"), "--width", "24"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "million parameters, before" in done.output
    found = load_checkpoint(tmp_path / "wide")
    assert found.config.d_model == 24
    assert found.trained_length == 99
    assert found.provenance["converted"] == "widened to 24"
    assert CliRunner().invoke(app, arguments).exit_code == 2
