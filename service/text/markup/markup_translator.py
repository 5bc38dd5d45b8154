"""The stage that translates documents with markup."""

from __future__ import annotations

import functools
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, Unpack

from service.decoding.requests import FinishReason
from service.errors import InvalidArgumentError
from service.text.interface import LinkedTranslator
from service.text.markup.document import Block, MarkupError
from service.text.markup.formats import Format, format_of
from service.text.markup.lines import TranslatedText, split_lines
from service.text.markup.placeholders import placeholders
from service.text.markup.rendering import render
from service.text.markup.tree import RunTree, build_tree
from service.text.options import MimeType, TextOptions
from service.translation.engine_call import CallArguments
from service.translation.fairness import FairExecutor
from service.translation.options import TranslateOptions, TranslatorLimits
from service.translation.results import TextResult
from service.translation.translator import StreamDelta

# Documents of this many characters are parsed and written within some milliseconds; longer ones in
# a thread.
_SMALL_CHARACTERS = 2000
_THREAD = FairExecutor("markup")
# Texts of one call below, where every run is a text.
_MAX_TEXTS = 256

T = TypeVar("T")


@dataclass(frozen=True)
class ParsedDocument:
    """A document in parts, in order: blocks as they are, and the trees of runs."""

    parts: Sequence[str | RunTree]

    @property
    def trees(self) -> list[RunTree]:
        """The runs."""
        return [part for part in self.parts if isinstance(part, RunTree)]

    def render(self, translations: Sequence[TranslatedText], document_format: Format) -> str:
        """The translated document, from the translation of each run."""
        remaining = iter(translations)
        return "".join(
            part
            if isinstance(part, str)
            else self._rendered(part, next(remaining), document_format)
            for part in self.parts
        )

    @staticmethod
    def _rendered(tree: RunTree, translation: TranslatedText, document_format: Format) -> str:
        run = render(tree, *translation, document_format.encode)
        return run if run == tree.run.raw else document_format.begin(run)


def parse(text: str, document_format: Format) -> ParsedDocument:
    """The parts of a document.

    Raises:
        MarkupError: it has too many tags, in all or in each other, or a NUL character.
    """
    if "\0" in text:
        raise MarkupError(f"the character NUL at position {text.index(chr(0))} is not allowed")
    parts: list[str | RunTree] = []
    for part in document_format.parse(text):
        if isinstance(part, Block):
            parts.append(part.raw)
            continue
        names = itertools.islice(placeholders(part.text), part.num_verbatim)
        parts.append(build_tree(part, list(names)))
    return ParsedDocument(parts)


async def plain_texts(texts: Sequence[str], options: TextOptions, client: str) -> list[str]:
    """The texts without their markup, for language detection; "" for a bad document."""
    if options.mime_type is MimeType.PLAIN:
        return list(texts)
    document_format = format_of(options)

    def plain(text: str) -> str:
        try:
            return "\n".join(tree.text for tree in parse(text, document_format).trees)
        except MarkupError:
            return ""

    return [await _run(functools.partial(plain, text), len(text), client) for text in texts]


class MarkupTranslator:
    """Translates documents.

    The runs of a document are the lines of one text: the stage below copies what is between lines,
    so that links tell where the translation of each begins. Without splitting into sentences,
    every run is a text of its own.

    Args:
        below: translates texts.
        options: the format, and what to leave alone.
        limits: of the sentence translator; the longest document.
    """

    def __init__(
        self, below: LinkedTranslator, options: TextOptions, limits: TranslatorLimits
    ) -> None:
        self._below = below
        self._format = format_of(options)
        self._limits = limits

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate documents, as `LinkedTranslator.translate` does texts. Results have no links.

        Raises:
            InvalidArgumentError: also for documents that are too long; names the field. What else
                is wrong with a document is its own error.
        """
        names = [f"contents[{index}]" for index in range(len(texts))]
        self._limits.check_lengths("contents", names, [len(text) for text in texts])
        client = shared.get("client", "")
        parsed: list[ParsedDocument] = []
        errors: dict[int, InvalidArgumentError] = {}
        for index, text in enumerate(texts):
            try:
                parsing = functools.partial(parse, text, self._format)
                parsed.append(await _run(parsing, len(text), client))
            except MarkupError as exc:
                errors[index] = InvalidArgumentError(names[index], str(exc))
                parsed.append(ParsedDocument(()))
        options = replace(options or TranslateOptions(), links=True)
        translate = self._by_lines if options.split_sentences else self._by_runs
        results = await translate(parsed, options, shared)
        finished = []
        for index, (result, runs) in enumerate(results):
            if index in errors:
                finished.append(TextResult("", None, error=errors[index]))
                continue
            text = ""
            if result.error is None:
                rendering = functools.partial(parsed[index].render, runs, self._format)
                text = await _run(rendering, len(texts[index]), client)
            finished.append(replace(result, text=text, links=()))
        return finished

    def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncIterator[StreamDelta | TextResult]:
        """Refuse the document: tags move when a sentence is complete.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError("mime_type", "a stream takes text/plain only; use Translate")

    async def _by_lines(
        self,
        documents: Sequence[ParsedDocument],
        options: TranslateOptions,
        shared: CallArguments,
    ) -> list[tuple[TextResult, list[TranslatedText]]]:
        """Translate the runs of each document as the lines of one text."""
        lines = [[tree.text for tree in document.trees] for document in documents]
        texts = ["\n".join(each) for each in lines]
        results = await self._below.translate(texts, options, **shared)
        return [
            (result, [] if result.error else split_lines([len(line) for line in each], result))
            for each, result in zip(lines, results, strict=True)
        ]

    async def _by_runs(
        self,
        documents: Sequence[ParsedDocument],
        options: TranslateOptions,
        shared: CallArguments,
    ) -> list[tuple[TextResult, list[TranslatedText]]]:
        """Translate each run as a text."""
        texts = [tree.text for document in documents for tree in document.trees]
        most = min(_MAX_TEXTS, self._limits.max_texts)
        results: list[TextResult] = []
        for start in range(0, len(texts), most):
            portion = texts[start : start + most]
            results += await self._below.translate(portion, options, **shared)
        remaining = iter(results)
        answers = []
        for document in documents:
            own = list(itertools.islice(remaining, len(document.trees)))
            runs = [TranslatedText(result.text, result.links) for result in own]
            answers.append((_joined(own), runs))
        return answers


def _joined(results: Sequence[TextResult]) -> TextResult:
    """The result of a document, without its text, from those of its runs."""
    reasons = {result.finish_reason for result in results}
    order = (FinishReason.ERROR, FinishReason.LENGTH)
    return TextResult(
        text="",
        finish_reason=next((each for each in order if each in reasons), FinishReason.EOS),
        num_source_tokens=sum(result.num_source_tokens for result in results),
        num_target_tokens=sum(result.num_target_tokens for result in results),
        was_split=any(result.was_split for result in results),
        error=next((result.error for result in results if result.error), None),
        queue_seconds=max((result.queue_seconds for result in results), default=0.0),
        compute_seconds=max((result.compute_seconds for result in results), default=0.0),
        sentences=[sentence for result in results for sentence in result.sentences],
    )


async def _run(work: Callable[[], T], size: int, client: str) -> T:
    """The result of work on a document of this many characters."""
    return work() if size <= _SMALL_CHARACTERS else await _THREAD.run(work, client)
