"""The lines of `dragoman detect`: requests and results."""

from __future__ import annotations

from cli.line_calls import CallOutcome, LineCalls
from dragoman.client import DetectedLanguage

_UNDETERMINED = DetectedLanguage("und", 0.0, False)


class LineDetector(LineCalls[str]):
    """Detects the language of each line, and writes its code and its probability."""

    def _parse(self, line: str) -> str:
        return line

    async def _call(self, items: list[str]) -> list[CallOutcome]:
        return [_outcome(languages) for languages in await self._client.detect(items)]


def _outcome(languages: tuple[DetectedLanguage, ...]) -> CallOutcome:
    best = languages[0] if languages else _UNDETERMINED
    return CallOutcome((f"{best.language}\t{best.confidence:.3f}",))
