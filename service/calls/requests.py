"""Requests in domain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.domain.requests import Priority
from service.memory.pairs import DEFAULT_THRESHOLD
from service.text.options import LineBreaks
from service.things.things import ALL_KINDS, ThingKind
from service.translation.options import TranslateOptions

OptionsOver = Callable[[TranslateOptions], TranslateOptions]
"""A function that turns a model's default options into the options of a request. It may raise
InvalidArgumentError."""


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """The languages, the model and the priority of a request.

    Attributes:
        source: BCP-47 code of the language of the texts; "" if only one is possible.
        target: BCP-47 code of the language of the translations; "" if only one is possible.
        model: name of the model; "" for the server's choice.
        allow_pivot: whether two models may translate through a third language; None for the
            server's choice.
        priority: share of the model under load; None for the server's choice.
    """

    source: str = ""
    target: str = ""
    model: str = ""
    allow_pivot: bool | None = False
    priority: Priority | None = None


@dataclass(frozen=True, kw_only=True)
class TextRequest(ModelRequest):
    """The options of a request to translate texts.

    Attributes:
        source: "auto", or "" where there are several choices, detects the language of each text.
        options: options of the search and of the answer.
        mime_type: format of the texts; "" for plain text.
        ignore_tags: elements that are copied, in addition to those of the format.
        verbatim: kinds of things that are kept as they are.
        adapt_letter_case: whether CAPITALS and Title Case are translated in another letter case.
        glossary: name or id of a glossary; "" for none.
        entries: terms and translations, which have precedence over the glossary's.
        line_breaks: meaning of a line break within a text; None for the default of the format.
        memory: name of a translation memory; "" for none.
        memory_threshold: least score of similar pairs that are returned; 1 for none.
    """

    allow_pivot: bool | None = None
    options: OptionsOver = lambda default: default
    mime_type: str = ""
    ignore_tags: Sequence[str] = ()
    verbatim: frozenset[ThingKind] = ALL_KINDS
    adapt_letter_case: bool = True
    glossary: str = ""
    entries: Sequence[tuple[str, str]] = ()
    line_breaks: LineBreaks | None = None
    memory: str = ""
    memory_threshold: float = DEFAULT_THRESHOLD
