"""Keyword arguments of both clients' methods. None leaves a choice to the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from dragoman.options import Glossary, Search, VerbatimKinds


class RequestArguments(TypedDict, total=False):
    """Arguments of every call.

    Attributes:
        timeout: seconds for this call; None for the client's own timeout.
        request_id: identifies the call in the server's log.
    """

    timeout: float | None
    request_id: str


class ModelArguments(RequestArguments, total=False):
    """Arguments of every call to a model.

    Attributes:
        source: BCP-47 code of the texts' language, such as "en"; "auto", where a call translates,
            detects the language of each text, of a document once.
        target: BCP-47 code of the translations' language, such as "de".
        model: a name from `list_models`.
        priority: "low", "normal" or "high": the share of the model while others wait.
    """

    source: str
    target: str
    model: str
    priority: str | None


class SearchArguments(ModelArguments, total=False):
    """Arguments of every call that searches for a translation.

    Attributes:
        max_new_tokens: token limit of each sentence.
        search: options of the search; by default greedy.
    """

    max_new_tokens: int | None
    search: Search | None


class TextArguments(SearchArguments, total=False):
    """Arguments of `stream` and `translate_document`, which `translate` has too.

    Attributes:
        split_sentences: False passes each text to the model in one piece.
        allow_pivot: False fails the call, with NOT_FOUND, instead of translating through a third
            language.
        glossary: terms and their translations.
        verbatim: kinds of things that the translation keeps as they are; by default all kinds.
        adapt_letter_case: False leaves sentences in CAPITALS and Title Case to the model.
        line_breaks: "keep", "join" (a line break within a paragraph is a space) or "auto" (join
            paragraphs that are wrapped at one width); by default as the format has them.
        memory: name of a translation memory.
        memory_threshold: least score of alternatives from the memory, from 0.5 to 1.
    """

    split_sentences: bool | None
    allow_pivot: bool | None
    glossary: Glossary | None
    verbatim: VerbatimKinds | None
    adapt_letter_case: bool | None
    line_breaks: str | None
    memory: str
    memory_threshold: float | None


class TranslateArguments(TextArguments, total=False):
    """Arguments of `translate`.

    Attributes:
        num_hypotheses: number of translations of each sentence to return in `sentences`.
        return_tokens: return their tokens and the tokens' log-probabilities.
        return_alignments: "hard" returns the source token of each token, "soft" the weights too;
            with the tokens of both.
        mime_type: the format of the texts: "text/plain", "text/html", "text/xml" or
            "text/markdown".
        ignore_tags: names of elements whose content is copied, beside those of the format.
    """

    num_hypotheses: int | None
    return_tokens: bool
    return_alignments: str | None
    mime_type: str
    ignore_tags: Sequence[str]


class ScoreArguments(ModelArguments, total=False):
    """Arguments of `score`.

    Attributes:
        return_tokens: return the tokens of the translations with their log-probabilities.
        return_alignments: "hard" or "soft", as for `translate`.
    """

    return_tokens: bool
    return_alignments: str | None


class AttentionArguments(SearchArguments, total=False):
    """Arguments of `attention`.

    Attributes:
        kinds: "cross", "encoder_self" and "decoder_self"; none for "cross".
        layers: numbers of layers, from 0; none for all.
        heads: numbers of heads, from 0; none for all.
        average_layers: return the mean over the layers.
        average_heads: return the mean over the heads.
    """

    kinds: Sequence[str]
    layers: Sequence[int]
    heads: Sequence[int]
    average_layers: bool
    average_heads: bool
