"""The stage that translates documents with markup."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, Unpack

from service.common.fairness import in_thread, on_loop
from service.common.portions import portions
from service.errors import InvalidArgumentError
from service.glossaries.placeholders import placeholders
from service.text.markup.document import Block, MarkupError
from service.text.markup.formats import Format, format_of
from service.text.markup.lines import TranslatedText, split_lines
from service.text.markup.marks import with_marks
from service.text.markup.rendering import render
from service.text.markup.tree import RunTree, build_tree
from service.text.options import MimeType, TextOptions
from service.things.interface import LinkedTranslator, Stage
from service.things.joined_results import MAX_SHOWN_MATCHES, index_in, renamed
from service.things.windows import in_windows
from service.translation.engine_call import CallArguments, admitted_once
from service.translation.options import NORMALISED, TranslateOptions, TranslatorLimits
from service.translation.preparation import are_long, normalised_lengths
from service.translation.results import TextResult, joined_reason
from service.translation.translator import StreamDelta

# Documents of this many characters are parsed and written within some milliseconds, on the event
# loop; longer ones in a thread.
_SMALL_CHARACTERS = 1000
# Of the documents that are in translation together, twice: more than a model has room for.
_WINDOW_CHARACTERS = 16_000
# Of the documents of a request that stay parsed while they are translated.
_KEPT_CHARACTERS = 4000
# Texts of one call below, where every run is a text.
_MAX_TEXTS = 256

T = TypeVar("T")
_Runs = Callable[[], Sequence[TranslatedText]]


@dataclass
class ParsedDocument:
    """A document in parts, in order: blocks as they are, and the trees of runs."""

    parts: Sequence[str | RunTree]

    @property
    def trees(self) -> list[RunTree]:
        """The runs."""
        return [part for part in self.parts if isinstance(part, RunTree)]

    def free(self) -> None:
        """Drop all parts; may be repeated."""
        for tree in self.trees:
            tree.free()
        self.parts = ()

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
        part = with_marks(part)
        names = placeholders(part.text, document_format.reserved)
        parts.append(build_tree(part, list(itertools.islice(names, part.num_verbatim))))
    return ParsedDocument(parts)


async def plain_texts(texts: Sequence[str], options: TextOptions) -> list[str]:
    """The texts without their markup, for language detection; "" for a bad document."""
    if options.mime_type is MimeType.PLAIN:
        return list(texts)
    document_format = format_of(options)

    def plain(text: str) -> str:
        try:
            document = parse(text, document_format)
        except MarkupError:
            return ""
        found = "\n".join(tree.text for tree in document.trees)
        document.free()
        return found

    return [await _run(functools.partial(plain, text), len(text)) for text in texts]


class MarkupTranslator(Stage):
    """Translates documents.

    The runs of a document are the lines of one text: the stage below copies what is between lines,
    so that links tell where the translation of each begins. Without splitting into sentences,
    every run is a text of its own.

    Args:
        below: translates texts.
        options: the format, and the elements to copy.
        limits: the sentence translator's limits, among them the length of a document.
        document_format: the format of the document; None for that of the options.
    """

    def __init__(
        self,
        below: LinkedTranslator,
        options: TextOptions,
        limits: TranslatorLimits,
        document_format: Format | None = None,
    ) -> None:
        super().__init__(below)
        self._format = document_format or format_of(options)
        self._limits = limits

    async def translate(
        self,
        texts: Sequence[str],
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> list[TextResult]:
        """Translate documents; see `LinkedTranslator.translate`. Results have no links.

        Raises:
            InvalidArgumentError: also for documents that are too long; names the field. Other
                errors of a document are in its result.
        """
        names = [f"contents[{index}]" for index in range(len(texts))]
        self._limits.check_lengths("contents", names, [len(text) for text in texts])
        options = replace(options or TranslateOptions(), links=True)
        results: list[TextResult] = []
        with admitted_once(shared) as arguments:
            if are_long(texts):
                await self._below.enter(options, **arguments)
            request = _Request(self._below, self._format, self._limits, options, arguments)
            async with contextlib.aclosing(in_windows(_windows(texts), request.translate)) as done:
                async for some in done:
                    results += some
        return results

    def stream(
        self,
        text: str,
        options: TranslateOptions | None = None,
        **shared: Unpack[CallArguments],
    ) -> AsyncGenerator[StreamDelta | TextResult, None]:
        """Refuse the document: tags move when a sentence is complete.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError("mime_type", "a stream takes text/plain only; use Translate")


@dataclass(frozen=True)
class _Window:
    """Some documents of a request, and the index of the first of them."""

    start: int
    texts: Sequence[str]


async def _windows(texts: Sequence[str]) -> AsyncIterator[_Window]:
    start = 0
    for some in portions(texts, _WINDOW_CHARACTERS):
        yield _Window(start, some)
        start += len(some)


@dataclass
class _Document:
    """A document of a request.

    A long one is parsed for its lines, and again to be written: the parts of a hundred thousand
    characters are as many objects, over which the garbage collector takes 50 ms.

    Attributes:
        text: the document.
        lines: the texts of its runs.
        parsed: its parts, if they are kept.
        error: reason why it can't be translated.
    """

    text: str
    lines: Sequence[str] = ()
    parsed: ParsedDocument | None = None
    error: InvalidArgumentError | None = None

    @classmethod
    def of(cls, text: str, document_format: Format, *, keeps: bool) -> _Document:
        """A document that can be translated; raises what `parse` raises."""
        parsed = parse(text, document_format)
        lines = [tree.text for tree in parsed.trees]
        if keeps:
            return cls(text, lines, parsed)
        parsed.free()
        return cls(text, lines)

    def written(self, runs: _Runs, document_format: Format) -> str:
        """The translated document, from the translation of each run."""
        parsed = self.parsed or parse(self.text, document_format)
        text = parsed.render(runs(), document_format)
        parsed.free()
        return text


class _Request:
    """Translates the documents of a request, some at a time."""

    def __init__(
        self,
        below: LinkedTranslator,
        document_format: Format,
        limits: TranslatorLimits,
        options: TranslateOptions,
        shared: CallArguments,
    ) -> None:
        self._below = below
        self._format = document_format
        self._limits = limits
        self._options = options
        self._shared = shared
        self._num_characters = 0  # of all texts so far, after normalisation
        self._num_kept = 0  # characters of documents that stay parsed

    async def translate(self, window: _Window) -> list[TextResult]:
        """Parse, translate and write documents."""
        documents: list[_Document] = []
        try:
            for index, text in enumerate(window.texts):
                keeps = self._num_kept + len(text) <= _KEPT_CHARACTERS
                read = functools.partial(_Document.of, text, self._format, keeps=keeps)
                try:
                    documents.append(await _run(read, len(text)))
                except MarkupError as exc:
                    bad = InvalidArgumentError(_field(window, index), str(exc))
                    documents.append(_Document(text, error=bad))
                if documents[-1].parsed is not None:
                    self._num_kept += len(text)
            translate = self._by_lines if self._options.split_sentences else self._by_runs
            finished = []
            for index, (result, runs) in enumerate(await translate(documents, window)):
                document = documents[index]
                if document.error is not None:
                    finished.append(TextResult("", None, error=document.error))
                elif result.error is not None:
                    error = renamed(result.error, _field(window, index))
                    finished.append(replace(result, text="", links=(), error=error))
                else:
                    write = functools.partial(document.written, runs, self._format)
                    text = await _run(write, len(document.text))
                    finished.append(replace(result, text=text, links=()))
            return finished
        finally:
            for document in documents:
                if document.parsed is not None:
                    self._num_kept -= len(document.text)
                    document.parsed.free()

    async def _by_lines(
        self, documents: Sequence[_Document], window: _Window
    ) -> list[tuple[TextResult, _Runs]]:
        """Translate the runs of each document as the lines of one text."""
        texts = ["\n".join(document.lines) for document in documents]
        results = await self._translated(texts, window, range(len(texts)))
        return [
            (result, functools.partial(split_lines, [len(line) for line in each.lines], result))
            for each, result in zip(documents, results, strict=True)
        ]

    async def _by_runs(
        self, documents: Sequence[_Document], window: _Window
    ) -> list[tuple[TextResult, _Runs]]:
        """Translate each run as a text."""
        texts = [line for document in documents for line in document.lines]
        indices = [index for index, document in enumerate(documents) for _ in document.lines]
        most = min(_MAX_TEXTS, self._limits.max_texts)
        results: list[TextResult] = []
        for start in range(0, len(texts), most):
            end = start + most
            results += await self._translated(texts[start:end], window, indices[start:end])
        remaining = iter(results)
        answers: list[tuple[TextResult, _Runs]] = []
        for document in documents:
            own = list(itertools.islice(remaining, len(document.lines)))
            runs = [TranslatedText(result.text, result.links) for result in own]
            answers.append((_joined(own), functools.partial(list, runs)))
        return answers

    async def _translated(
        self, texts: Sequence[str], window: _Window, indices: Sequence[int]
    ) -> list[TextResult]:
        """The results of texts, each of the document with this index in the window."""
        self._num_characters += sum(await normalised_lengths(texts))
        self._limits.check_total("contents", self._num_characters, NORMALISED)
        try:
            return await self._below.translate(texts, self._options, **self._shared)
        except InvalidArgumentError as exc:
            index = index_in(exc)
            if index is None:
                raise
            raise renamed(exc, _field(window, indices[index])) from exc


def _field(window: _Window, index: int) -> str:
    return f"contents[{window.start + index}]"


def _joined(results: Sequence[TextResult]) -> TextResult:
    """The result of a document, without its text, from those of its runs."""
    return TextResult(
        text="",
        finish_reason=joined_reason({result.finish_reason for result in results}),
        num_source_tokens=sum(result.num_source_tokens for result in results),
        num_target_tokens=sum(result.num_target_tokens for result in results),
        was_split=any(result.was_split for result in results),
        error=next((result.error for result in results if result.error), None),
        queue_seconds=max((result.queue_seconds for result in results), default=0.0),
        compute_seconds=max((result.compute_seconds for result in results), default=0.0),
        sentences=[sentence for result in results for sentence in result.sentences],
        warnings=[warning for result in results for warning in result.warnings],
        num_cached_characters=sum(result.num_cached_characters for result in results),
        memory_matches=[match for result in results for match in result.memory_matches][
            :MAX_SHOWN_MATCHES
        ],
        num_memory_matches=sum(result.num_memory_matches for result in results),
        alternatives=[match for result in results for match in result.alternatives],
    )


async def _run(work: Callable[[], T], size: int) -> T:
    """The result of work on a document of this many characters."""
    if size <= _SMALL_CHARACTERS:
        return await on_loop(work)
    return await in_thread(functools.partial(_uncollected, work))


def _uncollected(work: Callable[[], T]) -> T:
    """The result of work whose objects end with it: the garbage collector would look at all."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if was_enabled:
            gc.enable()
