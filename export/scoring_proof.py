"""The proof of the scoring graph: log-probabilities and attention of forced translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from export.errors import ExportError
from model.bundle import Bundle
from model.sessions import SessionSettings, open_session
from model.transformer import Transformer


@dataclass(frozen=True)
class ScoringTolerance:
    """How far the scoring graph may be from the checkpoint.

    Attributes:
        log_probability: of any token of a translation.
        attention: of the weights of a sentence, on average.
    """

    log_probability: float
    attention: float


class ScoringProbe:
    """The bundle's scoring graph for one sentence at a time."""

    def __init__(self, bundle: Bundle, model: Transformer) -> None:
        assert bundle.scoring_path is not None
        assert bundle.alignment_layer is not None
        settings = SessionSettings(intra_op_threads=1)
        self._encoder = open_session(bundle, bundle.encoder_path, settings)
        self._scoring = open_session(bundle, bundle.scoring_path, settings)
        self._layer = bundle.alignment_layer
        self._precision = bundle.precision
        self._model = model

    def check(
        self,
        source_ids: Sequence[int],
        target_ids: Sequence[int],
        tolerance: ScoringTolerance,
        sentence: str,
    ) -> None:
        """Compare one sentence.

        Args:
            source_ids: end-of-sentence included.
            target_ids: a translation, end-of-sentence included if it has one.
            tolerance: how far the two may be apart.
            sentence: for the message.

        Raises:
            ExportError: they are further apart.
        """
        found, attention = self._run(source_ids, target_ids)
        expected, weights = self._expected(source_ids, target_ids)
        largest = np.abs(found - expected).max()
        apart = np.abs(attention - weights).mean()
        # Written so that NaN fails.
        if not (largest <= tolerance.log_probability and apart <= tolerance.attention):
            raise ExportError(
                f"on {sentence!r} the {self._precision} bundle's scoring graph differs from the "
                f"checkpoint by {largest:.3g} in a log-probability and {apart:.3g} in the mean "
                f"attention weight, allowed are {tolerance.log_probability:g} and "
                f"{tolerance.attention:g}: use another precision, or report a defect if this is "
                f"fp32"
            )

    def _run(
        self, source_ids: Sequence[int], target_ids: Sequence[int]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Log-probabilities [T] and attention [T, S] of the bundle."""
        names = [item.name for item in self._scoring.get_inputs() if item.name != "target_ids"]
        source = {
            "source_ids": np.array([source_ids], np.int64),
            "source_lengths": np.array([len(source_ids)], np.int32),
        }
        keys_values = self._encoder.run(names, source)
        feeds = {"target_ids": np.array(target_ids, np.int64)}
        feeds |= dict(zip(names, keys_values, strict=True))
        found, attention = self._scoring.run(["log_probabilities", "attention"], feeds)
        return found, attention

    @torch.inference_mode()
    def _expected(
        self, source_ids: Sequence[int], target_ids: Sequence[int]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float32]]:
        """The same of the checkpoint."""
        source = torch.tensor([list(source_ids)])
        fed = torch.tensor([[self._model.config.bos_id, *target_ids[:-1]]])
        mask = torch.ones_like(source, dtype=torch.bool)
        logits = self._model(source, fed, mask)[0].double()
        chosen = logits.log_softmax(-1)[range(len(target_ids)), list(target_ids)]
        recorded = self._model.attention_weights(source, fed, mask).decoder_cross[self._layer]
        return chosen.numpy(), recorded[0].mean(0).numpy()
