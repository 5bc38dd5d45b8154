"""Attempts at the translation of a sentence, and candidates made of their results."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from model.bundle.spans import Span
from service.things.edits import Edit, EditedText
from service.things.occurrences import Occurrences
from service.things.wanted import Candidate, without_double_stop
from service.translation.blank_retries import has_word
from service.translation.links import Link
from service.translation.results import TextResult, WarningKind


@dataclass(frozen=True)
class Attempt:
    """A translation to make.

    Attributes:
        text: the text to translate, in one piece.
        prefix: the beginning of the translation.
        links: whether links are needed.
        scores: whether the log-probability is needed.
        repeats: whether the translation may repeat a sequence of words.
    """

    text: str
    prefix: str = ""
    links: bool = False
    scores: bool = False
    repeats: bool = True


@dataclass(frozen=True)
class Draft:
    """A translation of a version of a sentence.

    Attributes:
        given: the sentence, before and after the edits that were made for the model.
        standins: the text of the replaced part, by the string that stands in for it.
        result: the result of the translation.
    """

    given: EditedText
    standins: dict[str, str]
    result: TextResult

    def candidate(self, built: Mapping[str, str]) -> Candidate:
        """The translation, with each part of the sentence in place of its stand-in.

        Args:
            built: strings to put instead of some parts, by the text of the part.
        """
        tokens = {token: (token,) for token in self.standins}
        found = Occurrences(self.result.text, tokens).spans
        edits = []
        for token, spans in found.items():
            text = self.standins[token]
            for source, translated in built.items():
                text = text.replace(source, translated)
            written = self.result.text
            edits += [
                Edit(without_double_stop(written, span, text), text + self._gap(token, text, span))
                for span in spans
            ]
        put = EditedText(self.result.text, edits)
        links = dict.fromkeys(
            Link(self.given.before(link.source), put.after(link.target))
            for link in self.result.links
        )
        is_source = any(w.kind is WarningKind.UNTRANSLATED for w in self.result.warnings)
        return Candidate(put.text, list(links), is_source)

    def _gap(self, token: str, text: str, span: Span) -> str:
        """The sign between a number and a word that the model has glued to its stand-in.

        It is that of the sentence: {1} thousand can become {1}tausend.
        """
        given, written = self.given.text, self.result.text
        there = given.find(token) + len(token)
        gap = given[there : there + 1]
        is_glued = text[-1:].isdigit() and written[span.end : span.end + 1].isalpha()
        return gap if is_glued and gap in (" ", "-") else ""


Repair = Generator[Attempt, TextResult | None, Candidate]


def rank(result: TextResult) -> tuple[bool, float]:
    """A sort key for translations of a sentence: one with a word is better, then a likelier one."""
    return has_word(result.text), _mean_log_probability(result)


def _mean_log_probability(result: TextResult) -> float:
    hypotheses = [sentence.hypotheses[0] for sentence in result.sentences if sentence.hypotheses]
    if not hypotheses:
        return 0.0  # copied
    total = sum(hypothesis.log_probability for hypothesis in hypotheses)
    return total / (result.num_target_tokens + len(hypotheses))
