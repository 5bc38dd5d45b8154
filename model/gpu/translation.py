"""Greedy translation of a whole corpus on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from model.data.corpus import Int64
from model.gpu.text import StoredSide, TokenStore
from model.network.transformer import Transformer

# Without cuDNN's: it plans anew for every length of the cache, and a step took 75 ms.
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_STEPS_BETWEEN_DROPS = 4
_LEFT_TO_DROP = 0.8


@dataclass(frozen=True)
class StoredTranslations:
    """The translations of some sentences.

    Attributes:
        confidences: [sentences] mean log-probability of a token, EOS counted, in nats.
        ended: [sentences] whether the model ended the sentence.
    """

    side: StoredSide
    confidences: npt.NDArray[np.float32]
    ended: npt.NDArray[np.bool_]

    def at(self, indices: Int64) -> StoredTranslations:
        """The translations at `indices`, in that order."""
        return StoredTranslations(
            self.side.at(indices), self.confidences[indices], self.ended[indices]
        )


@sdpa_kernel(ATTENTION)
@torch.no_grad()
def translate(
    model: Transformer,
    store: TokenStore,
    sources: StoredSide,
    prefix: tuple[int, ...] = (),
    *,
    num_pieces: int,
    batch_tokens: int,
    most_rows: int,
) -> StoredTranslations:
    """Translate every sentence by greedy search; the store keeps the translations.

    In float32, tokens and log-probabilities are those of `model.evaluation.search.greedy_search`
    among the tokens that can be part of a translation. A row is cut at ten tokens and one and a
    half times the longest source of its batch.

    Args:
        model: the network, in evaluation mode.
        sources: at least one sentence.
        prefix: ids before every source.
        num_pieces: tokens with an id from here on are never part of a translation.
        batch_tokens: tokens of the sources of a batch, padding counted.
        most_rows: sentences of a batch.

    Raises:
        ValueError: a source exceeds the model's positions.
    """
    order = np.argsort(sources.lengths, kind="stable")
    count = len(sources)
    lengths = np.zeros(count, np.int64)
    confidences = np.zeros(count, np.float32)
    ended = np.zeros(count, np.bool_)
    pieces: list[Tensor] = []
    decoded: list[Int64] = []
    last = count
    while last > 0:  # the longest first: a batch that does not fit in memory shows at once
        width = int(sources.lengths[order[last - 1]]) + len(prefix) + 1
        rows = max(1, min(most_rows, batch_tokens // width, last))
        chosen = order[last - rows : last]
        prefixes = np.tile(np.array(prefix, np.int64), (rows, 1))
        ids = store.padded(sources.at(chosen), prefixes)
        most = min(model.config.num_target_positions - 1, 10 + width * 3 // 2)
        tokens, log_probs, done = _greedy(model, ids, num_pieces, most)
        # An unfinished row has no EOS; a finished one has it at its end.
        is_token = (tokens != store.pad_id) & (tokens != store.eos_id)
        sizes = is_token.sum(dim=1)
        pieces.append(tokens[is_token].to(torch.int16))
        decoded.append(chosen)
        lengths[chosen] = sizes.cpu().numpy()
        confidences[chosen] = (log_probs / (sizes + done)).cpu().numpy()
        ended[chosen] = done.cpu().numpy()
        last -= rows
    places = np.concatenate(decoded)
    added = store.add_ids(torch.cat(pieces), lengths[places])
    starts = np.empty(count, np.int64)
    starts[places] = added.starts
    return StoredTranslations(StoredSide(starts, lengths), confidences, ended)


def _greedy(
    model: Transformer, ids: Tensor, num_pieces: int, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens [B, T] with EOS and padding, log-probability of each row, and whether it ended."""
    config = model.config
    mask = ids != config.pad_id
    cache = model.start_cache(model.encode(ids, mask), mask)
    rows = torch.arange(len(ids), device=ids.device)
    tokens = torch.full((len(ids), most), config.pad_id, device=ids.device)
    log_probs = torch.zeros(len(ids), device=ids.device)
    ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    current = torch.full((len(ids),), config.bos_id, device=ids.device)
    never = [config.pad_id, config.bos_id, config.unk_id]
    for step in range(most):
        logits = model.step(current, cache)[:, :num_pieces].float()
        logits[:, never] = -torch.inf
        best, current = logits.max(dim=1)
        chosen = best - logits.logsumexp(dim=1)
        live = ~ended[rows]
        current = torch.where(live, current, config.pad_id)
        tokens[rows, step] = current
        log_probs[rows] += torch.where(live, chosen, 0.0)
        ended[rows] |= current == config.eos_id
        # The check waits for the device, so it is made every few steps only.
        if step % _STEPS_BETWEEN_DROPS == _STEPS_BETWEEN_DROPS - 1:
            kept = torch.nonzero(~ended[rows]).flatten()
            if len(kept) == 0:
                break
            if len(kept) < _LEFT_TO_DROP * len(rows):
                rows, current, cache = rows[kept], current[kept], cache.select(kept)
    return tokens, log_probs, ended
