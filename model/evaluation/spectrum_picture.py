"""Draws the cumulative singular values of the encoder's attention matrices.

    python -m model.evaluation.spectrum_picture CHECKPOINT --text FILE --output PICTURE.svg

The evidence of "Linformer: Self-Attention with Linear Complexity" (Wang et al., 2020, section 3 and
figure 1), on one of our checkpoints: the normalised cumulative singular values of softmax(Q K^T /
sqrt(d_k)) over long sources. Where a few of n values make up most of their sum, the matrix is
nearly one of a low rank. The softmax of random scores is drawn beside it: not every attention
matrix is like that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from model.bundle.tokenizer import Tokenizer
from model.data.corpus import read_lines
from model.evaluation.chart import COLOURS, FILE_HEIGHT, FILE_WIDTH, Chart, Series, svg_file
from model.network.checkpoint import load_checkpoint
from model.network.transformer import Transformer

_TOP, _CELL, _CELLS_LEFT = 40, 44, 124
_GREY = len(COLOURS) - 1
_LOW, _HIGH = (255, 255, 255), (33, 102, 172)


def main(
    checkpoint: Annotated[Path, typer.Argument(help="The checkpoint.")],
    text: Annotated[Path, typer.Option(help="Source text, one sentence a line, in order.")],
    output: Annotated[Path, typer.Option(help="The file to write.")],
    length: Annotated[int, typer.Option(min=2, help="Tokens of a source.")] = 512,
    rank: Annotated[int, typer.Option(min=1, help="The index that the table is for.")] = 128,
    sources: Annotated[int, typer.Option(min=1, help="At most as many sources.")] = 8,
) -> None:
    """Write the picture as SVG, and print its table."""
    loaded = load_checkpoint(checkpoint)
    longest = loaded.config.num_source_positions
    if loaded.config.encoder_attention == "linformer":
        raise typer.BadParameter("its attention has a low rank by design", param_hint="CHECKPOINT")
    if length > longest:
        raise typer.BadParameter(f"the model reads at most {longest}", param_hint="--length")
    if rank > length:
        raise typer.BadParameter(f"{rank} is more than --length {length}", param_hint="--rank")
    runs = long_sources(loaded.tokenizer, read_lines(text), length)[:sources]
    if not runs:
        raise typer.BadParameter(f"{text} has fewer than {length} tokens", param_hint="--text")
    spectra = torch.stack([encoder_spectra(loaded.model, run) for run in runs]).mean(dim=0)
    chance = random_spectrum(length)
    output.write_text(spectrum_picture(spectra, chance, rank), encoding="utf-8")
    typer.echo(f"{len(runs)} sources of {length} tokens; share of the first {rank} singular values")
    for layer, heads in enumerate(spectra[..., rank - 1].tolist()):
        shares = ", ".join(f"{share:.2f}" for share in heads)
        typer.echo(f"layer {layer}: {shares}; mean {sum(heads) / len(heads):.2f}")
    typer.echo(f"random scores: {float(chance[rank - 1]):.2f}")


def long_sources(tokenizer: Tokenizer, sentences: Sequence[str], length: int) -> list[list[int]]:
    """Runs of sentences, in order, cut to `length` tokens with the end of sentence as the last."""
    ids = [token for line in tokenizer.encode_batch(list(sentences)) for token in line]
    size = length - 1
    starts = range(0, len(ids) - size + 1, size)
    return [[*ids[start : start + size], tokenizer.eos_id] for start in starts]


def cumulative_spectrum(matrices: Tensor) -> Tensor:
    """Normalised cumulative singular values [..., n] of matrices [..., n, n]: the last one is 1."""
    values: Tensor = torch.linalg.svdvals(matrices)
    return values.cumsum(dim=-1) / values.sum(dim=-1, keepdim=True)


@torch.inference_mode()
def encoder_spectra(model: Transformer, source: Sequence[int]) -> Tensor:
    """`cumulative_spectrum` of every layer's and head's attention to a source: [L, H, S]."""
    ids = torch.tensor([list(source)])
    nothing = torch.tensor([[model.config.bos_id]])
    record = model.attention_weights(ids, nothing)
    return torch.stack([cumulative_spectrum(weights[0]) for weights in record.encoder])


def random_spectrum(length: int) -> Tensor:
    """`cumulative_spectrum` [length] of the softmax of scores drawn from a normal distribution."""
    scores = torch.randn(length, length, generator=torch.Generator().manual_seed(0))
    return cumulative_spectrum(scores.softmax(dim=-1))


def spectrum_picture(spectra: Tensor, chance: Tensor, rank: int) -> str:
    """An SVG file: a curve for each layer's mean over heads, and every head's value at `rank`.

    Args:
        spectra: [layers, heads, n], from `cumulative_spectrum`.
        chance: [n], of random scores.
        rank: an index, from 1.
    """
    series = [
        Series(f"layer {layer}", _points(curve), colour=layer % _GREY)
        for layer, curve in enumerate(spectra.mean(dim=1))
    ]
    series.append(Series("random scores", _points(chance), "dashes", _GREY))
    series.append(Series(f"index {rank}", [(rank, 0.0), (rank, 1.0)], "dashes", _GREY))
    chart = Chart("Cumulative singular values", "index", "", series)
    table = [f'<g transform="translate(0 {FILE_HEIGHT})">', *_table(spectra[..., rank - 1], rank)]
    height = FILE_HEIGHT + _TOP + len(spectra) * _CELL + 30
    return svg_file([chart.group(), *table, "</g>"], FILE_WIDTH, height)


def _points(values: Tensor) -> list[tuple[float, float]]:
    """Some 64 of the values, by their index from 1."""
    size = values.numel()
    indices = sorted({0, size - 1, *range(0, size, max(1, size // 64))})
    return [(i + 1, float(values[i])) for i in indices]


def _table(shares: Tensor, rank: int) -> list[str]:
    """Cells [layers, heads]: the darker, the more of the sum is in the first `rank` values."""
    num_layers, num_heads = shares.shape
    parts = [f'<text x="{_CELLS_LEFT - 54}" y="18" font-weight="bold">Value at index {rank}</text>']
    for head in range(num_heads):
        x = _CELLS_LEFT + head * _CELL + _CELL // 2
        y = _TOP + num_layers * _CELL + 16
        parts.append(f'<text x="{x}" y="{y}" text-anchor="middle">head {head}</text>')
    for layer, row in enumerate(shares.tolist()):
        y = _TOP + layer * _CELL
        middle = y + _CELL // 2 + 4
        parts.append(
            f'<text x="{_CELLS_LEFT - 6}" y="{middle}" text-anchor="end">layer {layer}</text>'
        )
        for head, share in enumerate(row):
            x = _CELLS_LEFT + head * _CELL
            ink = "white" if share > 0.6 else "black"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" fill="{_shade(share)}"/>'
                f'<text x="{x + _CELL // 2}" y="{middle}" text-anchor="middle" fill="{ink}">'
                f"{share:.2f}</text>"
            )
    return parts


def _shade(share: float) -> str:
    mixed = (round(low + share * (high - low)) for low, high in zip(_LOW, _HIGH, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


if __name__ == "__main__":
    typer.run(main)
