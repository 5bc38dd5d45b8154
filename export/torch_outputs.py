"""Outputs of a checkpoint: greedy translations with their log-probabilities and attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from model.bundle.limits import default_max_new_tokens
from model.bundle.padding import pad_right
from model.data.corpus import plan_batches
from model.evaluation.evaluation import translate_ids
from model.network.layers import AttentionWeights
from model.network.transformer import Transformer

# In tokens, padding included. Small, so that a large model's attention weights fit into memory.
_BATCH_TOKENS = 512


@dataclass(frozen=True)
class ForcedTranslation:
    """A translation that is forced through both models.

    Attributes:
        index: number of its sentence.
        source_ids: end-of-sentence included.
        target_ids: end-of-sentence included, unless the translation was cut at the length limit.
    """

    index: int
    source_ids: Sequence[int]
    target_ids: Sequence[int]


@dataclass(frozen=True)
class TorchOutputs:
    """Outputs for a `ForcedTranslation` of T target and S source tokens.

    Attributes:
        log_probabilities: [T, V] after each prefix of the target; -inf for a token that is never
            chosen.
        attention: [T, S] cross-attention of one layer: of one head, or the mean of all.
    """

    log_probabilities: npt.NDArray[np.float64]
    attention: npt.NDArray[np.float32]


def translate(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    on_progress: Callable[[int], None],
    start_ids: Sequence[int] = (),
) -> list[ForcedTranslation]:
    """Translate every source greedily.

    Args:
        model: the network, in evaluation mode.
        sources: token ids, each ending with EOS.
        on_progress: called after each batch with the number of its sentences.
        start_ids: every translation begins with these: the token of its language.
    """
    config = model.config
    outputs = translate_ids(model, sources, on_progress=on_progress, start_ids=start_ids)
    found = []
    for index, (source, ids) in enumerate(zip(sources, outputs, strict=True)):
        limit = default_max_new_tokens(len(source), config.num_target_positions)
        found.append(ForcedTranslation(index, source, [*ids, config.eos_id][:limit]))
    return found


def in_batches(translations: Sequence[ForcedTranslation]) -> Iterator[list[ForcedTranslation]]:
    """Yield batches of translations with similar lengths, which need little padding."""
    lengths = np.array([(len(t.source_ids), len(t.target_ids)) for t in translations], np.int64)
    for indices in plan_batches(lengths, _BATCH_TOKENS, None):
        yield [translations[index] for index in indices]


@torch.inference_mode()
def torch_outputs(
    model: Transformer, batch: Sequence[ForcedTranslation], layer: int, head: int | None = None
) -> Iterator[TorchOutputs]:
    """Outputs for each translation of a batch, with the cross-attention of decoder layer `layer`.

    The attention is that of `head` or, without one, averaged over the layer's heads.

    Computed in one pass over all positions, without a cache and with explicit attention weights, so
    independently of the search.
    """
    config = model.config
    source = torch.from_numpy(pad_right([t.source_ids for t in batch], config.pad_id))
    fed = [[config.bos_id, *t.target_ids[:-1]] for t in batch]
    lengths = torch.tensor([len(t.source_ids) for t in batch])
    mask = torch.arange(source.size(1)) < lengths.unsqueeze(1)
    record = AttentionWeights()
    states = model.decode_hidden(
        torch.from_numpy(pad_right(fed, config.pad_id)), model.encode(source, mask), mask, record
    )
    cross = record.decoder_cross[layer]  # [B, H, T, S]
    weights = cross.mean(1) if head is None else cross[:, head]  # [B, T, S]
    for row, forced in enumerate(batch):
        length = len(forced.target_ids)
        log_probabilities = model.project(states[row, :length]).double().log_softmax(-1)
        if config.forbidden_id is not None:
            log_probabilities[:, config.forbidden_id] = -torch.inf
        yield TorchOutputs(
            log_probabilities.numpy(),
            weights[row, :length, : config.num_memory_rows(len(forced.source_ids))].numpy(),
        )
