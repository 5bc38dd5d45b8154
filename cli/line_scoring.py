"""The lines of `dragoman score`: requests and results."""

from __future__ import annotations

from cli.line_calls import CallOutcome, LineCalls, reason
from dragoman.client import PairScore


class LineScorer(LineCalls[tuple[str, str]]):
    """Scores lines of a text, a tab and a translation, and writes numbers to standard output.

    With alignments, each line also has their links in Pharaoh's format: source-target, from 0.
    """

    def _parse(self, line: str) -> tuple[str, str] | CallOutcome:
        text, tab, translation = line.partition("\t")
        if not tab:
            return CallOutcome(error="no tab between a text and its translation")
        if "\t" in translation:
            return CallOutcome(error="more than one tab")
        return text, translation

    async def _call(self, items: list[tuple[str, str]]) -> list[CallOutcome]:
        answer = await self._client.score(items, **self._arguments)
        return [_outcome(score) for score in answer.scores]


def _outcome(score: PairScore) -> CallOutcome:
    if score.error:
        return CallOutcome(error=reason(score.error))
    columns = [f"{score.log_probability:.6f}", str(score.num_target_tokens)]
    if score.alignment is not None:
        columns.append(" ".join(f"{source}-{target}" for source, target in score.alignment.links))
    return CallOutcome(("\t".join(columns),))
