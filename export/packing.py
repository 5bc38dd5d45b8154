"""Packs the tokens of a padded batch, so that all but attention runs without padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from export.graph_builder import GraphBuilder


@dataclass(frozen=True)
class Packing:
    """The places of N tokens in a padded [B, S] batch.

    On a CPU everything but attention runs on the N tokens alone, so padding costs nothing. On a GPU
    padding costs little and counting the tokens would block the host, so everything is [B, S].

    Attributes:
        last_positions: int32 [B], position of each source's last token.
        padded_width: S as an int32 scalar.
        mask: int32 [B, S], 1 at tokens; "" if it is not needed.
        token_places: int64 [N], the flat place in [B * S] of each token; "" without packing.
        tokens_at: int64 [B, S], the token at each place (any token at padding); "" without packing.
    """

    last_positions: str
    padded_width: str
    mask: str = ""
    token_places: str = ""
    tokens_at: str = ""

    def pad(self, graph: GraphBuilder, tokens: str) -> str:
        """[N, W] as [B, S, W]."""
        return graph.op("Gather", tokens, self.tokens_at, axis=0) if self.tokens_at else tokens

    def unpad(self, graph: GraphBuilder, padded: str, width: int) -> str:
        """[B, S, W] as [N, W]."""
        if not self.token_places:
            return padded
        flat = graph.reshape(padded, -1, width)
        return graph.op("Gather", flat, self.token_places, axis=0)


def pack_tokens(graph: GraphBuilder, ids: str, lengths: str) -> tuple[Packing, str, str]:
    """The packing of a batch, and the ids and positions of its N tokens."""
    with graph.scope("packing"):
        flat, column = graph.ints(-1), graph.ints(-1, 1)
        width = graph.op("Squeeze", graph.op("Shape", ids, start=1, end=2))
        width32 = graph.cast(width, "int32")
        zero, one = graph.constant(0, np.int32), graph.constant(1, np.int32)
        columns = graph.op("Range", zero, width32, one)  # [S]
        valid = graph.op("Less", columns, graph.op("Reshape", lengths, column))  # [B, S]
        flat_valid = graph.op("Reshape", valid, flat)
        places = graph.op("Reshape", graph.op("NonZero", flat_valid), flat)
        counts = graph.op("CumSum", graph.cast(flat_valid, "int64"), graph.constant(0, np.int64))
        # Padding points at the last token before it: finite, and close in memory.
        tokens = graph.op("Sub", counts, graph.constant(1, np.int64))
        tokens_at = graph.op("Reshape", tokens, graph.op("Shape", ids))
        token_ids = graph.op("Gather", graph.op("Reshape", ids, flat), places)
        positions = graph.op("Mod", places, width)
        packing = Packing(
            last_positions=graph.op("Sub", lengths, one),
            padded_width=width32,
            mask=graph.cast(valid, "int32"),
            token_places=places,
            tokens_at=tokens_at,
        )
    return packing, token_ids, positions


def leave_padded(graph: GraphBuilder, ids: str, lengths: str) -> tuple[Packing, str, str]:
    """The batch without packing, with ids [B, S] and positions [S]."""
    with graph.scope("padding"):
        width = graph.op("Squeeze", graph.op("Shape", ids, start=1, end=2))
        width32 = graph.cast(width, "int32")
        zero, one = graph.constant(0, np.int32), graph.constant(1, np.int32)
        positions = graph.op("Range", zero, width32, one)
        column = graph.ints(-1, 1)
        valid = graph.op("Less", positions, graph.op("Reshape", lengths, column))  # [B, S]
        packing = Packing(
            last_positions=graph.op("Sub", lengths, one),
            padded_width=width32,
            mask=graph.cast(valid, "int32"),
        )
    return packing, ids, positions
