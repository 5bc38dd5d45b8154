"""Scores of translations by sacreBLEU (Post, 2018). Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sacrebleu

from model.data.corpus import CorpusError, read_lines


@dataclass(frozen=True)
class TestSet:
    """Source sentences and one reference for each, in order.

    Raises:
        CorpusError: `read` failed.
    """

    __test__ = False  # pytest: this is no test, for all its name

    sources: Sequence[str]
    references: Sequence[str]

    @classmethod
    def read(cls, source: Path, reference: Path) -> TestSet:
        """Reads two aligned files, one sentence a line. Empty lines are kept: order is what counts.

        Raises:
            CorpusError: unreadable, not UTF-8, without a line, or of unequal line counts.
        """
        sources, references = read_lines(source), read_lines(reference)
        if len(sources) != len(references):
            raise CorpusError(
                f"{source} has {len(sources)} lines but {reference} has {len(references)}"
            )
        if not sources:
            raise CorpusError(f"{source}: no line to translate")
        return cls(sources, references)


@dataclass(frozen=True)
class Score:
    """A figure in percent, and sacreBLEU's signature: all that one needs to compute it again."""

    score: float
    signature: str


@dataclass(frozen=True)
class Report:
    """Scores of a set of translations.

    Attributes:
        num_sentences: lines that were compared.
        bleu: sacreBLEU on plain text, tokenised by its 13a rules.
        chrf: chrF2 on plain text.
        moses_bleu: lower-cased BLEU on Moses-tokenised text, as papers before sacreBLEU give it;
            only to be put beside such papers.
    """

    num_sentences: int
    bleu: Score
    chrf: Score
    moses_bleu: Score | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values, without scores that were not requested."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    moses_language: str | None = None,
) -> Report:
    """Score translations against one reference each.

    Args:
        lowercase: compare without regard to case ("case:lc" in the signature).
        moses_language: target language code; adds `moses_bleu`.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} translations for {len(references)} references")
    bleu = sacrebleu.BLEU(lowercase=lowercase, tokenize="13a")
    chrf = sacrebleu.CHRF(lowercase=lowercase)
    moses = moses_language and _moses_bleu(hypotheses, references, moses_language)
    return Report(
        num_sentences=len(references),
        bleu=_score(bleu, hypotheses, references),
        chrf=_score(chrf, hypotheses, references),
        moses_bleu=moses or None,
    )


def _score(
    metric: sacrebleu.BLEU | sacrebleu.CHRF, hypotheses: Sequence[str], references: Sequence[str]
) -> Score:
    value = metric.corpus_score(hypotheses, [references]).score
    return Score(float(value), str(metric.get_signature()))


def _moses_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """BLEU of `multi-bleu.perl` on text that was normalised, lower-cased and tokenised."""
    # Imported here: only this figure needs it, and training validates without.
    import sacremoses

    normalizer = sacremoses.MosesPunctNormalizer(lang=language)
    tokenizer = sacremoses.MosesTokenizer(lang=language)

    def tokenize(text: str) -> str:
        return str(tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True))

    # `force`: the text is tokenised on purpose, so no warning that it looks so.
    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    score = _score(bleu, [tokenize(text) for text in hypotheses], [*map(tokenize, references)])
    signature = f"{score.signature}|moses:{language},lc,sacremoses:{sacremoses.__version__}"
    return Score(score.score, signature)
