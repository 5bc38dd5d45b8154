"""The proof of a bundle: it says what the checkpoint says, token by token, within a tolerance.

The checkpoint's own greedy translation of every sentence is forced through the bundle's graphs.
At every position the log-probabilities of the bundle's best tokens must be near the checkpoint's,
and its best token must be the checkpoint's, unless the checkpoint itself holds the two for nearly
equal: then rounding decides. A bundle that agrees at every position translates alike, and most
sentences have to agree so. The scoring graph must give the translation's tokens the checkpoint's
log-probabilities, and look where it looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import torch

from export.errors import ExportError
from export.scoring_proof import ScoringProbe, ScoringTolerance
from model.bundle import Bundle
from model.limits import default_max_new_tokens
from model.search import greedy_search
from model.sessions import SessionSettings, open_session
from model.transformer import Transformer

SENTENCES = (
    "A dog is running.",
    "Good morning!",
    "Where is the nearest train station?",
    "Two men are playing guitar in the street while a crowd watches.",
    "I don't think that we have met before, but your name sounds familiar to me.",
    "The meeting was moved from 3:30 to 4:15 on Tuesday, 12 May 2020.",
    "She closed the door, sat down at the table and began to read the letter.",
    "In 1969, people walked on the moon for the first time; half the world watched.",
    "Yes.",
    "If it rains tomorrow, the children will stay at home and bake a cake.",
    "\u00bfQu\u00e9? \u2013 \u201cZo\u00eb\u201d paid 12,50 \u20ac.",
    "This sentence is here because a long one finds errors that short ones hide: it goes on and "
    "on, comes to a comma, turns a corner, mentions a river, a bridge and an old mill, and only "
    "then, when nobody expects it any more, reaches its end.",
)


@dataclass(frozen=True)
class Tolerance:
    """How far a precision may be from the checkpoint.

    Attributes:
        largest: of any log-probability among a position's best tokens.
        mean: of their mean absolute difference over everything.
        tie: two tokens whose log-probabilities in the checkpoint differ by less may change places.
        identical: share of the sentences that have to be translated without even that.
    """

    largest: float
    mean: float
    tie: float
    identical: float


TOLERANCES = {
    "fp32": Tolerance(largest=1e-3, mean=1e-4, tie=1e-4, identical=0.9),
    "fp16": Tolerance(largest=0.1, mean=0.01, tie=0.05, identical=0.75),
    # Measured on trained models of the preset `small`: sound bundles differ by up to 0.026 on
    # average and 0.23 at most, prefer no token that is 0.04 worse, and 9 to 11 of 12 sentences are
    # identical. Noise of 3 % on every weight matrix makes that 0.05 to 0.068, up to 0.9, 0.12 to
    # 0.35, and 6 to 9.
    "int8": Tolerance(largest=0.5, mean=0.04, tie=0.2, identical=0.5),
}


@dataclass(frozen=True)
class Proof:
    """What the comparison found.

    Attributes:
        num_sentences: compared.
        num_identical: sentences whose greedy translations are equal, token by token.
        num_tokens: target positions compared.
        largest_difference, mean_difference: of log-probabilities.
        tie: how near, in nats of the checkpoint, two tokens are that changed places in the others.
    """

    num_sentences: int
    num_identical: int
    num_tokens: int
    largest_difference: float
    mean_difference: float
    tie: float


def prove(
    bundle: Bundle,
    model: Transformer,
    sentences: Sequence[str] = SENTENCES,
    tolerance: Tolerance | None = None,
) -> Proof:
    """Compare a bundle with the model that it was made from.

    Args:
        bundle: on the CPU, whatever it is meant for.
        model: in evaluation mode.
        sentences: in the source language.
        tolerance: by default that of the bundle's precision.

    Raises:
        ExportError: they differ by more than the precision's tolerance; names the sentence.
    """
    probe, scoring = _Probe(bundle), ScoringProbe(bundle, model)
    tokenizer = bundle.tokenizer()
    tolerance = tolerance or TOLERANCES[bundle.precision]
    differences: list[npt.NDArray[np.float64]] = []
    num_identical = 0
    for sentence in sentences:
        ids = tokenizer.encode(sentence)[: bundle.max_source_positions - 1]
        source_ids = (*ids, bundle.config.eos_id)
        compared = _compare(probe, model, source_ids)
        _check(compared, tolerance, bundle.precision, sentence)
        within = ScoringTolerance(tolerance.largest, tolerance.mean)
        scoring.check(source_ids, compared.target_ids, within, sentence)
        differences.append(np.abs(compared.differences).ravel())
        num_identical += not compared.gaps.any()
    everything = np.concatenate(differences)
    mean = float(everything.mean())
    if not mean <= tolerance.mean:
        raise ExportError(
            f"the {bundle.precision} bundle's log-probabilities differ from the checkpoint's by "
            f"{mean:.3g} on average, allowed are {tolerance.mean:g}: use another precision"
        )
    required = int(tolerance.identical * len(sentences))
    if num_identical < required:
        raise ExportError(
            f"the {bundle.precision} bundle translates only {num_identical} of {len(sentences)} "
            f"sentences token by token like the checkpoint, required are {required}: use another "
            f"precision, or report a defect if this is fp32"
        )
    num_tokens = len(everything) // bundle.top_k
    return Proof(
        len(sentences),
        num_identical,
        num_tokens,
        float(everything.max()),
        mean,
        tolerance.tie,
    )


@dataclass(frozen=True)
class _Comparison:
    """One sentence, T positions.

    Attributes:
        target_ids: the checkpoint's translation, EOS included if it has one.
        differences: [T, k] log-probability in the bundle minus that in the checkpoint.
        gaps: [T] how much less the checkpoint likes the bundle's best token than its own.
    """

    target_ids: Sequence[int]
    differences: npt.NDArray[np.float64]
    gaps: npt.NDArray[np.float64]


@torch.inference_mode()
def _compare(probe: _Probe, model: Transformer, source_ids: Sequence[int]) -> _Comparison:
    config = model.config
    source = torch.tensor([list(source_ids)])
    limit = default_max_new_tokens(len(source_ids), config.max_positions)
    (translation,) = greedy_search(model, source, max_new_tokens=limit)
    num_tokens = len(translation.log_probs)
    target = [*translation.token_ids, config.eos_id][:num_tokens]
    fed = [config.bos_id, *target[:-1]]
    mask = torch.ones_like(source, dtype=torch.bool)
    logits = model.decode(torch.tensor([fed]), model.encode(source, mask), mask)[0]
    expected = logits.double().log_softmax(-1).numpy()  # [T, V]
    top_ids, log_probabilities = probe.force(source_ids, fed)  # [T, k]
    found = np.take_along_axis(expected, top_ids, axis=1)
    gaps = expected.max(axis=1) - found[:, 0]
    return _Comparison(target, log_probabilities - found, gaps)


def _check(found: _Comparison, tolerance: Tolerance, precision: str, sentence: str) -> None:
    # Comparisons are written so that NaN fails them.
    largest = np.abs(found.differences).max()
    if not largest <= tolerance.largest:
        raise ExportError(
            f"on {sentence!r} a log-probability of the {precision} bundle differs from the "
            f"checkpoint's by {largest:.3g}, allowed are {tolerance.largest:g}: use another "
            f"precision, or report a defect if this is fp32"
        )
    gap = found.gaps.max()
    if not gap <= tolerance.tie:
        raise ExportError(
            f"on {sentence!r} the {precision} bundle prefers another token at position "
            f"{int(found.gaps.argmax())} than the checkpoint, where they are {gap:.3g} apart; up "
            f"to {tolerance.tie:g} would pass as a tie: use another precision, or report a defect "
            f"if this is fp32"
        )


class _Probe:
    """The bundle's graphs for one row, run as simply as possible."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        settings = SessionSettings(intra_op_threads=1)
        self._encoder = open_session(bundle, bundle.encoder_path, settings)
        self._step = open_session(bundle, bundle.decoder_step_path, settings)
        self._dtype = np.float16 if bundle.precision == "fp16" else np.float32

    def force(
        self, source_ids: Sequence[int], target_ids: Sequence[int]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The best k tokens [T, k] after each target prefix, and their log-probabilities."""
        config = self._bundle.config
        length = len(source_ids)
        source = np.array([source_ids], np.int64)
        lengths = np.array([length], np.int32)
        names = [
            f"{kind}_{layer}"
            for layer in range(config.num_decoder_layers)
            for kind in ("key", "value")
        ]
        feeds: dict[str, Any] = {"source_ids": source, "source_lengths": lengths}
        crosses = self._encoder.run([f"cross_{name}" for name in names], feeds)
        feeds = {
            "source_lengths": lengths,
            "total_sequence_length": np.array(len(target_ids), np.int32),
            "top_k": np.array([self._bundle.top_k]),
            "adjust_rows": np.zeros(0, np.int64),
            "adjust_token_ids": np.zeros(0, np.int64),
            "adjust_values": np.zeros(0, np.float32),
        }
        shape = (1, config.num_heads, len(target_ids), config.head_dim)
        caches: dict[str, Any] = {}
        for name, cross in zip(names, crosses, strict=True):
            caches[f"past_{name}"] = np.zeros(shape, self._dtype)
            caches[f"cross_{name}"] = cross
            feeds[f"cross_last_{name}"] = cross[:, :, -1].reshape(1, 1, config.d_model)
        if self._bundle.is_resident:
            feeds["running"] = np.ones(1, np.int32)
            feeds["source_buffer_length"] = np.array(length, np.int32)
            if groups := self._bundle.token_groups:
                feeds["top_groups"] = np.array([min(self._bundle.top_k, groups)])
        return self._run(feeds, caches, target_ids)

    def _run(
        self, feeds: dict[str, Any], caches: dict[str, Any], target_ids: Sequence[int]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        binding = self._step.io_binding()
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
        for position, token_id in enumerate(target_ids):
            binding.bind_cpu_input("token_ids", np.array([token_id], np.int64))
            binding.bind_cpu_input("positions", np.array([position], np.int32))
            self._step.run_with_iobinding(binding)
            # In the order in which outputs were bound: the caches, then these three.
            top_ids, logits, log_sum_exp = binding.copy_outputs_to_cpu()[-len(outputs) :]
            ids.append(top_ids[0])
            log_probabilities.append(logits[0].astype(np.float64) - float(log_sum_exp[0]))
        return np.array(ids), np.array(log_probabilities)
