"""Computes attention weights with a bundle's attention graph."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnxruntime as ort

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings, open_session
from service.domain.attention import AttentionKind, AttentionSelection
from service.domain.plan import ScoreItem, TargetScore

_OUTPUTS = {
    AttentionKind.CROSS: "cross_attention",
    AttentionKind.ENCODER_SELF: "encoder_self_attention",
    AttentionKind.DECODER_SELF: "decoder_self_attention",
}


class AttentionGraph:
    """The attention graph of a bundle that has one, opened by `prepare`.

    It holds another copy of encoder and decoder.

    Args:
        bundle: bundle to run.
        settings: device and threads.
    """

    def __init__(self, bundle: Bundle, settings: SessionSettings) -> None:
        assert bundle.attention_path is not None, "a bundle without an attention graph"
        self._bundle = bundle
        self._settings = settings
        self._path = bundle.attention_path
        self._session: ort.InferenceSession | None = None
        self._opening = threading.Lock()

    def prepare(self) -> None:
        """Open the graph, unless it is open. May be called in any thread.

        Raises:
            BundleError: the graph can't be opened, or was changed since the bundle was loaded.
            OSError: a file of the bundle can't be read.
        """
        with self._opening:
            if self._session is None:
                self._bundle.verify(*filter(None, (self._path, self._bundle.weights_path)))
                self._session = open_session(self._bundle, self._path, self._settings)

    def run(self, item: ScoreItem, selection: AttentionSelection) -> TargetScore:
        """The log-probabilities of the item's target, and the selected weights."""
        assert self._session is not None, "run without prepare()"
        names = [
            f"{_OUTPUTS[kind]}_{layer}" for kind, layers in selection.kinds for layer in layers
        ]
        feeds: dict[str, Any] = {
            "source_ids": np.array([item.source_ids], np.int64),
            "source_lengths": np.array([len(item.source_ids)], np.int32),
            "target_ids": np.array(item.target_ids, np.int64),
            "heads": np.array(selection.heads, np.int64),
        }
        options = ort.RunOptions()
        options.only_execute_path_to_fetches = True
        log_probabilities, *arrays = self._session.run(
            ["log_probabilities", *names], feeds, options
        )
        return TargetScore(
            log_probabilities, np.zeros((0, 0), np.float32), selection.reduced(arrays)
        )
