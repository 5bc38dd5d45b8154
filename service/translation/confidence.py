"""Confidence: the expected quality of a translation, from the model's own log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model.bundle.calibration import Calibration
from service.domain.requests import FinishReason, GenerationResult


@dataclass(frozen=True)
class SentenceConfidence:
    """The confidence of a sentence, and its weight in that of a text.

    Attributes:
        value: expected chrF of its translation, 0 to 1.
        num_tokens: number of tokens that the model chose.
    """

    value: float
    num_tokens: int


def sentence_confidence(
    calibration: Calibration | None, result: GenerationResult, num_given: int
) -> SentenceConfidence | None:
    """The confidence of the best translation of a sentence.

    Args:
        calibration: the model's calibration for this direction; None without one.
        result: result of the search.
        num_given: number of its tokens that were given, which tell nothing about the model.

    Returns:
        The confidence; None without a calibration, for a failed search, or if the model chose no
        token.
    """
    if calibration is None or result.error is not None:
        return None
    num_tokens = len(result.token_ids) + (result.finish_reason is FinishReason.EOS) - num_given
    if num_tokens < 1:
        return None
    return SentenceConfidence(
        calibration.confidence(result.log_probability / num_tokens), num_tokens
    )


def text_confidence(sentences: Sequence[SentenceConfidence]) -> float | None:
    """The mean confidence of a text's sentences, weighted by tokens; None without tokens."""
    total = sum(sentence.num_tokens for sentence in sentences)
    if not total:
        return None
    return sum(sentence.value * sentence.num_tokens for sentence in sentences) / total
