"""Turns a pre-norm network into a post-norm one that approximates it.

    python -m model.training.post_norm CHECKPOINT --output START --text SOURCES TRANSLATIONS

Engines of Firefox's models support only post-norm networks, which train slowly from scratch. A
sublayer of pre-norm computes r + f(LN(r)), one of post-norm LN(h + g(h)). With h = LN(r) and
g = f / s, where s is the standard deviation of r within a position, both are the same but for a
factor that LN removes. Here s is a constant, the median over the positions of some text. The gain
and bias of each LN move into the matrices that read from it, and the last LN of a stack gets those
of the stack's final one.

The result has the conventions of Firefox's models. These lose a little more: the frequencies of
positions are slightly different, the decoder's first input is zeros instead of BOS's embedding, and
the recurrent unit's candidate has no bias that could take in an LN's. A few minutes of training
recover most of all this.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor, nn

from model.bundle.config import STUDENT
from model.data.corpus import EncodedText, read_parallel
from model.data.training_data import encode
from model.evaluation.validation import summed_loss
from model.network.checkpoint import load_checkpoint, save_checkpoint
from model.network.layers import Decoder, Encoder
from model.network.transformer import Transformer

# Marian has no other networks, or the conversion none.
_REQUIRED: dict[str, tuple[object, ...]] = {
    "norm": ("pre",),
    "decoder": ("ssru",),
    "positions": ("sinusoidal",),
    "encoder_attention": ("full",),
    "cross_attention": ("full",),
    "embedding_norm": (False,),
    "embedding_tying": ("all", "target"),
    "scale_embeddings": (True,),
    "activation": ("relu",),
}
# Matrices whose columns, and those whose rows, are a state's.
_READERS = {"query", "key", "value", "inner", "candidate", "forget"}
_WRITERS = {"output", "outer", "candidate", "forget"}


def post_norm(network: Transformer, text: EncodedText) -> Transformer:
    """The post-norm network, on the same device, in evaluation mode.

    Args:
        text: pairs of sentences within the network's limits, whose states are measured.

    Raises:
        ValueError: the network is of another kind, names all fields; or there is no pair.
    """
    wrong = [
        f"model.{name} has to be {' or '.join(map(repr, wanted))}, not {value!r}"
        for name, wanted in _REQUIRED.items()
        if (value := getattr(network.config, name)) not in wanted
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    if not len(text):
        raise ValueError("there is no pair of sentences to measure states with")
    folded = copy.deepcopy(network).eval()
    widths = _widths(folded, text)
    with torch.no_grad():
        for stack in (folded.encoder, folded.decoder):
            fold(stack, widths)
    made = Transformer(dataclasses.replace(network.config, norm="post", **STUDENT))
    order = _marian_order(network.config.d_model)
    weights = {
        name: _reordered(name, tensor, order)
        for name, tensor in folded.state_dict().items()
        if "final_norm" not in name
    }
    bias = torch.zeros(network.config.vocab_size)
    made.load_state_dict({"output_projection.bias": bias, **weights})
    return made.to(next(network.parameters()).device).eval()


def sublayers(
    stack: Encoder | Decoder,
) -> Iterator[tuple[nn.LayerNorm, list[nn.Linear], list[nn.Linear]]]:
    """The norm of each sublayer, the matrices that read from it, those that scale its result."""
    for layer in stack.each_layer():
        for name, sublayer in layer.named_children():
            norm = getattr(layer, f"{name}_norm", None)
            if norm is None:
                continue
            linears = {k: one for k, one in sublayer.named_children() if isinstance(one, nn.Linear)}
            of_memory = {"key", "value"} if name == "cross_attention" else set()
            readers = [one for key, one in linears.items() if key in _READERS - of_memory]
            # The gate scales nothing: the unit's output is proportional to its candidate.
            writers = [one for key, one in linears.items() if key in _WRITERS - {"forget"}]
            yield norm, readers, writers


@torch.no_grad()
def _widths(network: Transformer, text: EncodedText) -> dict[nn.LayerNorm, float]:
    """For each norm, the median standard deviation of the states [D] that it reads.

    Raises:
        ValueError: one is zero, or not finite.
    """
    found: dict[nn.LayerNorm, list[Tensor]] = {}

    def measure(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(norm, nn.LayerNorm)
        found.setdefault(norm, []).append(inputs[0].std(dim=-1, correction=0).flatten())

    norms = [one for one in network.modules() if isinstance(one, nn.LayerNorm)]
    hooks = [norm.register_forward_pre_hook(measure) for norm in norms]
    config, device = network.config, next(network.parameters()).device
    for pair in range(len(text)):  # alone, without padding
        batch = text.batch(
            np.array([pair]), pad_id=config.pad_id, bos_id=config.bos_id, eos_id=config.eos_id
        )
        source, target = torch.from_numpy(batch.source_ids), torch.from_numpy(batch.target_ids)
        network(source.to(device), target[:, :-1].to(device))
    for hook in hooks:
        hook.remove()
    widths = {norm: torch.cat(parts).median().item() for norm, parts in found.items()}
    if not all(0.0 < width < math.inf for width in widths.values()):
        raise ValueError("the states of this network are zero somewhere, or not finite")
    return widths


def fold(stack: Encoder | Decoder, widths: dict[nn.LayerNorm, float]) -> None:
    """Change a stack's matrices and norms, which then belong to a post-norm network.

    Args:
        widths: the standard deviation of the states that each norm reads.
    """
    assert stack.final_norm is not None
    last = None
    for index, (norm, readers, writers) in enumerate(sublayers(stack)):
        for linear in readers:
            if linear.bias is not None:
                linear.bias.add_(linear.weight @ norm.bias)
            linear.weight.mul_(norm.weight)
            if index == 0:  # no norm comes before: the embeddings are read as they are
                linear.weight.sub_(linear.weight.mean(dim=1, keepdim=True))
                linear.weight.div_(widths[norm])
        for linear in writers if index else ():
            for parameter in linear.parameters():
                parameter.div_(widths[norm])
        norm.reset_parameters()
        last = norm
    assert last is not None
    last.load_state_dict(stack.final_norm.state_dict())


def _marian_order(d_model: int) -> Tensor:
    """Columns of the paper's positions in the order of Marian's: all sines, then all cosines."""
    return torch.arange(d_model).reshape(-1, 2).T.flatten()


def _reordered(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """A parameter with its states' columns in another order."""
    part, kind = name.split(".")[-2:]
    if kind == "weight" and (part in _READERS or "embedding" in part or "projection" in part):
        tensor = tensor[..., order]
    if part in _WRITERS or part.endswith("_norm"):
        tensor = tensor[order]
    return tensor


# --- command --------------------------------------------------------------------------------------


def main(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint of a pre-norm network, or a run.")],
    output: Annotated[Path, typer.Option(help="The checkpoint to write, a new folder.")],
    text: Annotated[tuple[Path, Path], typer.Option(help="Sources and translations, a line each.")],
    count: Annotated[int, typer.Option(min=1, help="Number of pairs that are read.")] = 200,
) -> None:
    """Write the post-norm network, to be trained for some minutes."""
    try:
        if output.exists():
            raise ValueError(f"{output} exists already")
        found = load_checkpoint(checkpoint)
        limit = min(found.config.num_source_positions, found.config.num_target_positions)
        pairs = read_parallel(*text)
        encoded = encode(found.tokenizer, pairs.at(np.arange(min(count, len(pairs)))))
        encoded = encoded.at(encoded.not_longer_than(limit))
        made = post_norm(found.model, encoded)
        save_checkpoint(
            output,
            made,
            found.tokenizer,
            languages=found.languages,
            provenance={**found.provenance, "converted": "post-norm"},
            alignment_head=found.alignment_head,
            trained_length=found.trained_length,
        )
    except (OSError, ValueError) as exc:
        raise typer.BadParameter(str(exc)) from exc
    before, after = (
        total / num_tokens
        for total, num_tokens in (
            summed_loss(network, encoded, torch.device("cpu")) for network in (found.model, made)
        )
    )
    typer.echo(f"{output}: {after:.2f} nats a token, before {before:.2f}")


if __name__ == "__main__":
    typer.run(main)
