"""Measures the steps of 8-bit attention caches on translations of a network."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from export.bundle_writer import ExportOptions
from export.cache_steps import CacheSteps, Float32
from export.torch_outputs import translate
from model.bundle.config import ModelConfig
from model.bundle.piece_tokenizer import PieceTokenizer
from model.bundle.tokenizer import Tokenizer
from model.network.transformer import Transformer

# The largest number of a channel in all text, as a multiple of the largest in the measured text.
# More would cost precision: an eighth of a bit for each tenth.
_MARGIN = 1.4
_LEVELS = 127
# A few hundred tokens find the largest numbers but for some tenths, which the margin covers.
_SENTENCES = 100
# Narrower models have short sentences and few heads: their attention takes as long with integers.
_LEAST_WIDTH = 512

_log = logging.getLogger("dragoman.export")


def caches_in_int8(config: ModelConfig, options: ExportOptions, *, in_language: bool) -> bool:
    """Whether a bundle gets 8-bit caches: where these make it faster (`bench/NOTES.md`).

    Args:
        in_language: whether the sentences to measure are in the source language.
    """
    return (
        options.precision == "int8"
        and in_language
        and not options.is_resident
        and config.d_model >= _LEAST_WIDTH
        and config.decoder == "self_attention"
        and config.cross_attention == "full"
    )


def calibrated_steps(
    model: Transformer, tokenizer: Tokenizer | PieceTokenizer, sentences: Sequence[str]
) -> CacheSteps:
    """The steps for every attention block of the decoder.

    Args:
        model: the network, in evaluation mode.
        sentences: source sentences; the first hundred are translated greedily.
    """
    config = model.config
    longest = min(config.num_source_positions, config.num_target_positions) - 1
    encoded = tokenizer.encode_batch(list(sentences[:_SENTENCES]))
    sources = sorted(([*ids[:longest], config.eos_id] for ids in encoded), key=len)
    _log.info("measuring the decoder's keys and values")
    with _largest_outputs(_projections(model)) as largest:
        # Of one length each, since the keys and values of padding would count.
        for _, batch in itertools.groupby(sources, key=len):
            translate(model, list(batch), lambda _: None, tokenizer.target.start_ids)
    blocks = {name.rpartition(".")[0] for name in largest}
    return {
        block: (_step(largest[f"{block}.key"]), _step(largest[f"{block}.value"]))
        for block in sorted(blocks)
    }


def _projections(model: Transformer) -> dict[str, nn.Module]:
    """The linear maps that make the decoder's keys and values, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if name.startswith("decoder.") and name.endswith((".key", ".value"))
    }


@contextlib.contextmanager
def _largest_outputs(modules: dict[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """The largest magnitude [D] of each channel that the modules return inside the block."""
    largest: dict[str, Tensor] = {}

    def see(name: str, module: nn.Module, inputs: Any, output: Tensor) -> None:
        found = output.detach().abs().flatten(0, -2).amax(0)
        largest[name] = torch.maximum(largest.get(name, found), found)

    hooks = [module.register_forward_hook(partial(see, name)) for name, module in modules.items()]
    try:
        yield largest
    finally:
        for hook in hooks:
            hook.remove()


def _step(largest: Tensor) -> Float32:
    """The steps [D], rounded to 8 bits: sums in another order hardly ever change them."""
    digits, exponents = np.frexp(largest.numpy() * (_MARGIN / _LEVELS))
    step = np.ldexp(np.round(digits * 256) / 256, exponents)
    return np.where(step > 0, step, 1.0).astype(np.float32)
