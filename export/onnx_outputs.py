"""Outputs of a bundle's graphs for given translations, run in the simplest possible way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from export.torch_outputs import ForcedTranslation
from model.bundle.bundle import Bundle
from model.bundle.padding import pad_right
from model.bundle.sessions import SessionSettings, open_session

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class OnnxOutputs:
    """Outputs for a `ForcedTranslation` of T target and S source tokens.

    Attributes:
        top_ids: [T, k] best tokens after each prefix of the target.
        top_log_probabilities: [T, k] log-probabilities of these tokens.
        scores: [T] log-probabilities of the target's tokens, from the scoring graph.
        attention: [T, S] attention weights, from the scoring graph.
    """

    top_ids: npt.NDArray[np.int64]
    top_log_probabilities: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float32]
    attention: npt.NDArray[np.float32]


class OnnxGraphs:
    """A bundle's graphs on the CPU.

    Sessions hold packed copies of the weights. That of the decoder step and that of the scoring
    graph hold the same ones, so they are opened one after the other.

    Args:
        bundle: a bundle with a scoring graph.
    """

    def __init__(self, bundle: Bundle, threads: int) -> None:
        self._bundle = bundle
        self._settings = SessionSettings(intra_op_threads=threads)
        self._encoder = self._open(bundle.encoder_path)
        self._names = [
            f"{kind}_{layer}"
            for layer in range(bundle.config.num_decoder_layers)
            for kind in ("key", "value")
        ]

    def run(
        self, batches: Sequence[Sequence[ForcedTranslation]], on_progress: Callable[[int], None]
    ) -> Iterator[list[OnnxOutputs]]:
        """Outputs for each translation of each batch.

        Args:
            batches: all of them are decoded before the first one is scored.
            on_progress: called after each decoded batch with the number of its sentences.
        """
        steps = self._decode(batches, on_progress)
        assert self._bundle.scoring_path is not None
        scoring = self._open(self._bundle.scoring_path)
        for batch, (top_ids, log_probabilities) in zip(batches, steps, strict=True):
            crosses, outputs = self._encode(batch), []
            for row, forced in enumerate(batch):
                length = len(forced.target_ids)
                # The scoring graph takes a single sentence without padding.
                kept = self._bundle.config.num_memory_rows(len(forced.source_ids))
                own = slice(row, row + 1), slice(None), slice(kept)
                feeds = {f"cross_{name}": crosses[name][own] for name in self._names}
                feeds["target_ids"] = np.array(forced.target_ids, np.int64)
                scores, attention = scoring.run(["log_probabilities", "attention"], feeds)
                best = top_ids[row, :length], log_probabilities[row, :length]
                outputs.append(OnnxOutputs(*best, scores, attention))
            yield outputs

    def _open(self, graph: Path) -> ort.InferenceSession:
        return open_session(self._bundle, graph, self._settings)

    def _decode(
        self, batches: Sequence[Sequence[ForcedTranslation]], on_progress: Callable[[int], None]
    ) -> list[tuple[Array, Array]]:
        """The best tokens of each batch, and their log-probabilities."""
        step, found = self._open(self._bundle.decoder_step_path), []
        for batch in batches:
            found.append(self._steps(step, batch, self._encode(batch)))
            on_progress(len(batch))
        return found

    def _encode(self, batch: Sequence[ForcedTranslation]) -> dict[str, Array]:
        """Keys and values [B, H, S, Dh] by name."""
        sources = [forced.source_ids for forced in batch]
        feeds = {
            "source_ids": pad_right(sources, self._bundle.config.pad_id),
            "source_lengths": np.array([len(ids) for ids in sources], np.int32),
        }
        outputs = self._encoder.run([f"cross_{name}" for name in self._names], feeds)
        return dict(zip(self._names, outputs, strict=True))

    def _steps(
        self,
        step: ort.InferenceSession,
        batch: Sequence[ForcedTranslation],
        crosses: dict[str, Array],
    ) -> tuple[Array, Array]:
        """The best k tokens [B, T, k] after each prefix, and their log-probabilities."""
        config = self._bundle.config
        fed = pad_right([[config.bos_id, *f.target_ids[:-1]] for f in batch], config.pad_id)
        rows, length = fed.shape
        lengths = np.array([config.num_memory_rows(len(f.source_ids)) for f in batch], np.int32)
        feeds: dict[str, Any] = {
            "source_lengths": lengths,
            "top_k": np.array([self._bundle.top_k]),
            "adjust_rows": np.zeros(0, np.int64),
            "adjust_token_ids": np.zeros(0, np.int64),
            "adjust_values": np.zeros(0, np.float32),
        }
        caches: dict[str, Any] = {}
        shape: tuple[int, ...] = (rows, config.num_heads, length, config.head_dim)
        names, dtype = self._names, self._bundle.cache_dtype
        if config.decoder == "ssru":
            shape = (rows, config.d_model)
            names = [f"state_{layer}" for layer in range(config.num_decoder_layers)]
            dtype = self._bundle.dtype
        else:
            feeds["total_sequence_length"] = np.array(length, np.int32)
        for name in names:
            caches[f"past_{name}"] = np.zeros(shape, dtype)
        for name, cross in crosses.items():
            caches[f"cross_{name}"] = cross
            last = cross[np.arange(rows), :, lengths - 1]  # [B, H, Dh]
            last = last.reshape(rows, 1, config.d_model).astype(self._bundle.dtype)
            feeds[f"cross_last_{name}"] = last
        if self._bundle.is_resident:
            feeds["running"] = np.ones(rows, np.int32)
            feeds["source_buffer_length"] = np.array(int(lengths.max()), np.int32)
            if groups := self._bundle.token_groups:
                feeds["top_groups"] = np.array([min(self._bundle.top_k, groups)])
        return _step_by_step(step, feeds, caches, fed)


def _step_by_step(
    step: ort.InferenceSession,
    feeds: dict[str, Any],
    caches: dict[str, Any],
    fed: npt.NDArray[np.int64],
) -> tuple[Array, Array]:
    binding = step.io_binding()
    for name, array in caches.items():
        value = ort.OrtValue.ortvalue_from_numpy(array)
        binding.bind_ortvalue_input(name, value)
        present = name.replace("past_", "present_").replace("cross_", "present_cross_")
        binding.bind_ortvalue_output(present, value)
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    outputs = ("top_ids", "top_logits", "log_sum_exp")
    for name in outputs:
        binding.bind_output(name)
    ids, log_probabilities = [], []
    for position, token_ids in enumerate(fed.T):
        binding.bind_cpu_input("token_ids", np.ascontiguousarray(token_ids))
        binding.bind_cpu_input("positions", np.full(len(token_ids), position, np.int32))
        step.run_with_iobinding(binding)
        # Copied, since the next run overwrites them. The caches come first and are left out.
        found = [value.numpy().copy() for value in binding.get_outputs()[-len(outputs) :]]
        ids.append(found[0])
        log_probabilities.append(found[1].astype(np.float64) - found[2][:, None])
    return np.stack(ids, axis=1), np.stack(log_probabilities, axis=1)
