"""Makes a wider network of a trained one, which computes nearly the same and learns on.

    python -m model.training.widening CHECKPOINT --output START --width 384

"Net2Net: Accelerating Learning via Knowledge Transfer" (Chen et al., 2016) widens networks without
a change of what they compute; "LEMON: Lossless Model Expansion" (Wang et al., 2024) has ways for
LayerNorm. Here attention gets more heads of the same size, and the feed-forward network more units;
what these write is multiplied by zero at first. Each new column of the states has the mean of the
old ones, so that a LayerNorm finds the same mean, zeros in the new columns, and, with n columns of
m, sqrt(n / m) of the deviation, which its gain takes in.

The recurrent unit alone is not exact: its results are positive, and in its new columns there are
only small numbers instead of their mean (with zeros, its ReLU would pass no gradient). Sinusoidal
positions become learned ones: those of the wider network have other frequencies.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, cast

import torch
import typer
from torch import Tensor

from model.bundle.config import ModelConfig
from model.network.checkpoint import load_checkpoint, save_checkpoint
from model.network.transformer import Transformer

_REQUIRED: dict[str, tuple[object, ...]] = {
    "norm": ("pre",),
    "decoder": ("ssru",),
    "positions": ("sinusoidal", "marian", "learned"),
    "encoder_attention": ("full",),
    "cross_attention": ("full",),
    "embedding_norm": (False,),
    "embedding_tying": ("all",),
    "scale_embeddings": (True,),
    "output_bias": (False,),
}
_TABLES = (
    "source_embedding",
    "target_embedding",
    "output_projection",
    "source_positions",
    "target_positions",
)
# Matrices that write into the states: their rows are the states' columns.
_WRITERS = ("output", "outer")
_SMALL = 0.01  # of the random numbers, in the recurrent unit's candidate


def widened(network: Transformer, width: int) -> Transformer:
    """The wider network, on the CPU, in evaluation mode.

    Args:
        width: its `d_model`, a multiple of the size of the network's heads.

    Raises:
        ValueError: the network is of another kind, names all fields; or the width does not fit.
    """
    config = network.config
    wrong = [
        f"model.{name} has to be {' or '.join(map(repr, wanted))}, not {value!r}"
        for name, wanted in _REQUIRED.items()
        if (value := getattr(config, name)) not in wanted
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    head_dim = config.d_model // config.num_heads
    if width <= config.d_model or width % head_dim:
        raise ValueError(
            f"the width has to be a multiple of {head_dim} above {config.d_model}, not {width}"
        )
    made = Transformer(_wide_config(config, width)).eval()
    old = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
    if config.positions != "learned":
        table = cast(Tensor, network.sinusoid).cpu()
        old["source_positions.weight"] = table[: config.num_source_positions]
        old["target_positions.weight"] = table[: config.num_target_positions]
    scale = math.sqrt(config.d_model / width)
    for name, new in made.state_dict().items():
        _fill(name, new, old[name], scale)
    return made


def _wide_config(config: ModelConfig, width: int) -> ModelConfig:
    return dataclasses.replace(
        config,
        d_model=width,
        num_heads=config.num_heads * width // config.d_model,
        ffn_dim=config.ffn_dim * width // config.d_model,
        positions="learned",
    )


@torch.no_grad()
def _fill(name: str, new: Tensor, old: Tensor, scale: float) -> None:
    """Put the weights of a parameter into those of the wider network, which are random.

    Args:
        scale: factor on the deviation that a LayerNorm finds.
    """
    part, kind = name.split(".")[-2:]
    rows = len(old)
    if part.endswith("_norm"):
        new[:rows] = scale * old if kind == "weight" else old
        if name.startswith("decoder.final_norm"):  # makes up for the scaled output projection
            new[:rows] /= scale
    elif part in _TABLES:
        # The network multiplies embeddings by the square root of the width.
        factor = 1.0 if part.endswith("_positions") else scale
        new[:] = factor * old.mean(dim=1, keepdim=True)
        new[:, : old.size(1)] = factor * old
    elif part in _WRITERS:
        new.zero_()
        wide = torch.cat(
            (old, old.mean(dim=0, keepdim=True).expand(len(new) - rows, *old[0].shape))
        )
        new[(slice(None), *map(slice, old.shape[1:]))] = wide
    else:
        if part == "candidate":
            new[rows:] *= _SMALL
        new[tuple(map(slice, old.shape))] = old


# --- command --------------------------------------------------------------------------------------


def main(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint of a pre-norm network, or a run.")],
    output: Annotated[Path, typer.Option(help="The checkpoint to write, a new folder.")],
    width: Annotated[int, typer.Option(min=1, help="The width of the states.")],
    seed: Annotated[int, typer.Option(help="Seed of the new weights.")] = 1,
) -> None:
    """Write the wider network, to be trained further."""
    try:
        if output.exists():
            raise ValueError(f"{output} exists already")
        found = load_checkpoint(checkpoint)
        torch.manual_seed(seed)
        made = widened(found.model, width)
        save_checkpoint(
            output,
            made,
            found.tokenizer,
            languages=found.languages,
            provenance={**found.provenance, "converted": f"widened to {width}"},
            alignment_head=found.alignment_head,
            trained_length=found.trained_length,
        )
    except (OSError, ValueError) as exc:
        raise typer.BadParameter(str(exc)) from exc
    before, after = (network.num_parameters() / 1e6 for network in (found.model, made))
    typer.echo(f"{output}: {after:.1f} million parameters, before {before:.1f}")


if __name__ == "__main__":
    typer.run(main)
