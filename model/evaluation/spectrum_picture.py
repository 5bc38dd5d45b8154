"""Draws how few singular values make up the encoder's attention matrices.

    python -m model.evaluation.spectrum_picture CHECKPOINT --text FILE --output PICTURE.svg

The evidence of "Linformer: Self-Attention with Linear Complexity" (Wang et al., 2020, section 3 and
figure 1), on a checkpoint of ours: the normalised cumulative singular values of softmax(Q K^T /
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
from model.network.checkpoint import load_checkpoint
from model.network.transformer import Transformer

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 380, 56, 460, 40, 330
_CELL, _CELLS_LEFT = 44, 580
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf")
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
    height = max(_HEIGHT, _TOP + len(spectra) * _CELL + 60)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        *_axes(chance.numel(), rank),
        _curve(chance, "#444444", dashed=True),
        *_legend(len(spectra)),
    ]
    for layer, curve in enumerate(spectra.mean(dim=1)):
        parts.append(_curve(curve, _COLOURS[layer % len(_COLOURS)]))
    return "\n".join([*parts, *_table(spectra[..., rank - 1], rank), "</svg>"]) + "\n"


def _axes(size: int, rank: int) -> list[str]:
    parts = [f'<text x="{_LEFT}" y="18" font-size="14">Cumulative singular values</text>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y, x = _y_of(share), _x_of(share * size, size)
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{_RIGHT}" stroke="#dddddd"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:g}</text>'
            f'<text x="{x:.1f}" y="{_BOTTOM + 16}" text-anchor="middle">{share * size:.0f}</text>'
        )
    x = _x_of(rank, size)
    parts.append(f'<path d="M{x:.1f} {_TOP}V{_BOTTOM}" stroke="#888888" stroke-dasharray="2 3"/>')
    middle = (_LEFT + _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_BOTTOM + 34}" text-anchor="middle">index</text>')
    return parts


def _legend(num_layers: int) -> list[str]:
    names = [(f"layer {i}", _COLOURS[i % len(_COLOURS)]) for i in range(num_layers)]
    names.append(("random scores", "#444444"))
    bottom = _BOTTOM - 12 - 16 * (len(names) - 1)
    return [
        f'<path d="M{_RIGHT - 124} {bottom + 16 * i - 4}h16" stroke="{colour}" stroke-width="2"/>'
        f'<text x="{_RIGHT - 102}" y="{bottom + 16 * i}">{name}</text>'
        for i, (name, colour) in enumerate(names)
    ]


def _curve(values: Tensor, colour: str, *, dashed: bool = False) -> str:
    size = values.numel()
    indices = sorted({0, size - 1, *range(0, size, max(1, size // 64))})
    path = "L".join(f"{_x_of(i + 1, size):.1f} {_y_of(float(values[i])):.1f}" for i in indices)
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'


def _table(shares: Tensor, rank: int) -> list[str]:
    """Cells [layers, heads]: the darker, the more of the sum is in the first `rank` values."""
    num_layers, num_heads = shares.shape
    parts = [f'<text x="{_CELLS_LEFT - 54}" y="18" font-size="14">Value at index {rank}</text>']
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


def _x_of(index: float, size: int) -> float:
    return _LEFT + (_RIGHT - _LEFT) * index / size


def _y_of(share: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * share


def _shade(share: float) -> str:
    mixed = (round(low + share * (high - low)) for low, high in zip(_LOW, _HIGH, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


if __name__ == "__main__":
    typer.run(main)
