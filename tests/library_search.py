"""`generate` of `transformers`: the reference of served translations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from model.bundle.padding import pad_right

# Environment variable with a PREFIX: PREFIX.en and PREFIX.de are English sentences and their
# translations, which are not part of the project.
TEST_SET = "DRAGOMAN_TEST_SET"
BATCH = 50
PADDING = -1


@torch.inference_mode()
def generate(
    model: Any, sources: Sequence[Sequence[int]], start: Sequence[int] = (), **chosen: Any
) -> list[list[int]]:
    """The library's tokens for each source, up to EOS.

    Args:
        model: the library's model.
        sources: token ids with EOS. Sentences of similar length share a batch.
        start: tokens at the beginning of translations, for the target language; not returned, like
            the start token.
        chosen: options in place of the generation configuration's.
    """
    eos_id, pad_id = model.config.eos_token_id, model.config.pad_token_id
    found: dict[int, list[int]] = {}
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for first in range(0, len(order), BATCH):
        batch = order[first : first + BATCH]
        ids = pad_right([sources[index] for index in batch], PADDING)
        mask = torch.from_numpy(ids != PADDING)
        ids[ids == PADDING] = pad_id
        rows = model.generate(
            torch.from_numpy(ids),
            attention_mask=mask.long(),
            forced_bos_token_id=start[0] if start else None,
            **chosen,
        ).tolist()
        for index, row in zip(batch, rows, strict=True):
            tokens = row[1 + len(start) :]
            found[index] = tokens[: tokens.index(eos_id) + 1] if eos_id in tokens else tokens
    return [found[index] for index in range(len(sources))]


def num_distinct(translations: Sequence[Sequence[int]]) -> int:
    """The number of different translations."""
    return len({tuple(tokens) for tokens in translations})


def num_ended(translations: Sequence[Sequence[int]]) -> int:
    """The number of translations that are shorter than the longest."""
    longest = max(len(tokens) for tokens in translations)
    return sum(len(tokens) < longest for tokens in translations)
