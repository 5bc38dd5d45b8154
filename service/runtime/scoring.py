"""Scores given translations with a bundle's scoring graph."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from model.bundle.bundle import Bundle
from model.bundle.sessions import Device, SessionSettings, open_session, use_device
from service.domain.plan import ScoreItem, TargetScore
from service.runtime.attention_session import AttentionGraph
from service.runtime.cpu.kv_cache import cache_names
from service.runtime.source_batches import padded, similar_lengths


class SourceEncoder(Protocol):
    """Runs a bundle's encoder; an `onnxruntime.InferenceSession` or a similar object."""

    def run(self, names: Sequence[str], feeds: dict[str, Any], /) -> list[Any]:
        """Run the encoder; returns the named outputs."""
        ...


class OnnxScorer:
    """The `Scorer` of a bundle that has a scoring graph.

    The graph takes the cross-attention keys and values from the encoder's session, so `prepare`
    only loads the decoder's weights. On a CPU, a pair's scores do not depend on other scores and
    translations, bit for bit, in fp32 and int8.

    Args:
        bundle: bundle to run.
        settings: device and threads.
        encoder: encoder of the bundle's runner; None to open another.

    Raises:
        BundleError: the encoder can't be opened.
    """

    def __init__(
        self, bundle: Bundle, settings: SessionSettings, encoder: SourceEncoder | None
    ) -> None:
        assert bundle.scoring_path is not None, "a bundle without a scoring graph has no scorer"
        self._bundle = bundle
        self._settings = settings
        self._encoder = encoder or open_session(bundle, bundle.encoder_path, settings)
        self._graph = bundle.scoring_path
        self._session: ort.InferenceSession | None = None
        self._attention = AttentionGraph(bundle, settings) if bundle.attention_path else None
        self._opening = threading.Lock()
        num_layers = bundle.config.num_decoder_layers
        self._keys_values = [f"cross_{name}" for name in cache_names(num_layers)]

    def prepare(self, graph: str = "scoring") -> None:
        """Open the scoring or attention graph, unless it is open. May be called in any thread.

        Raises:
            BundleError: the graph can't be opened, or was changed since the bundle was loaded.
            OSError: a file of the bundle can't be read.
        """
        if graph == "attention":
            assert self._attention is not None, "a bundle without an attention graph"
            self._attention.prepare()
            return
        with self._opening:
            if self._session is None:
                self._bundle.verify(*filter(None, (self._graph, self._bundle.weights_path)))
                self._session = open_session(self._bundle, self._graph, self._settings)

    def score(self, items: Sequence[ScoreItem]) -> list[TargetScore]:
        """Score each item. All sources are encoded first, except those for attention weights."""
        use_device(Device.parse(self._settings.device))
        scores: dict[int, TargetScore] = {}
        plain = [index for index, item in enumerate(items) if item.selection is None]
        for batch in similar_lengths([len(items[index].source_ids) for index in plain]):
            indices = [plain[place] for place in batch]
            encoded = self._encoded([items[index].source_ids for index in indices])
            for index, keys_values in zip(indices, encoded, strict=True):
                scores[index] = self._scored(items[index].target_ids, keys_values)
        for index, item in enumerate(items):
            if item.selection is not None:
                assert self._attention is not None, "a bundle without an attention graph"
                scores[index] = self._attention.run(item, item.selection)
        return [scores[index] for index in range(len(items))]

    def _encoded(self, batch: Sequence[tuple[int, ...]]) -> list[dict[str, Any]]:
        """Each source's keys and values [1, H, S, Dh], without padding."""
        source_ids, lengths = padded(batch, self._bundle.config.pad_id)
        feeds = {"source_ids": source_ids, "source_lengths": lengths}
        arrays = self._encoder.run(self._keys_values, feeds)
        kept = self._bundle.config.num_memory_rows
        return [
            {
                name: np.ascontiguousarray(array[row : row + 1, :, : kept(len(ids))])
                for name, array in zip(self._keys_values, arrays, strict=True)
            }
            for row, ids in enumerate(batch)
        ]

    def _scored(self, target_ids: Sequence[int], keys_values: dict[str, Any]) -> TargetScore:
        assert self._session is not None, "scored without prepare()"
        feeds = {"target_ids": np.array(target_ids, np.int64), **keys_values}
        # Always both outputs: a client's options must not change the graph for other clients.
        return TargetScore(*self._session.run(["log_probabilities", "attention"], feeds))
