"""`dragoman score`'s lines: what is asked for each, and what is written for the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cli.line_calls import CallOutcome, LineCalls, reason
from dragoman.client import PairScore


@dataclass(frozen=True)
class ScoringJob:
    """What to ask of which server; fields as in `dragoman.client.Client.score`.

    With `alignments` each line also has the links, as in Pharaoh's format: source-target, from 0.
    """

    server: str
    source: str = ""
    target: str = ""
    model: str = ""
    timeout: float = 60.0
    alignments: bool = False


class LineScorer(LineCalls[tuple[str, str]]):
    """Scores lines that hold a text, a tab and a translation; writes numbers to standard output.

    Args:
        job: what to ask of which server.
        advance: called with the lines and bytes that are done.
    """

    def __init__(self, job: ScoringJob, advance: Callable[[int, int], None]) -> None:
        super().__init__(job.server, job.timeout, "line", advance)
        self._job = job

    def _parse(self, line: str) -> tuple[str, str] | CallOutcome:
        text, tab, translation = line.partition("\t")
        if not tab:
            return CallOutcome(error="no tab between a text and its translation")
        if "\t" in translation:
            return CallOutcome(error="more than one tab")
        return text, translation

    async def _call(self, items: list[tuple[str, str]]) -> list[CallOutcome]:
        job = self._job
        answer = await self._client.score(
            items,
            source=job.source,
            target=job.target,
            model=job.model,
            return_alignments="hard" if job.alignments else None,
        )
        return [_outcome(score) for score in answer.scores]


def _outcome(score: PairScore) -> CallOutcome:
    if score.error:
        return CallOutcome(error=reason(score.error))
    columns = [f"{score.log_probability:.6f}", str(score.num_target_tokens)]
    if score.alignment is not None:
        columns.append(" ".join(f"{source}-{target}" for source, target in score.alignment.links))
    return CallOutcome(("\t".join(columns),))
