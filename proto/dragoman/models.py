"""Descriptions of a server's models and of their languages."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.options import Search

_PLAIN = Search()


@dataclass(frozen=True)
class ModelLimits:
    """The limits of a model; the contract's `ModelLimits`."""

    max_texts: int
    max_characters: int
    max_source_tokens: int
    max_target_tokens: int
    max_rows: int


@dataclass(frozen=True)
class ModelInfo:
    """A model on a server.

    Attributes:
        name: value for the argument `model`.
        version: version of its weights.
        language_pairs: (source, target), as BCP-47 codes; empty if there are more than 100.
        precision: "fp32", "fp16" or "int8".
        device: "cpu" or "cuda".
        limits: the largest request that it accepts.
        can_score: whether it supports `score` and `return_alignments`.
        source_languages: languages that it translates from.
        target_languages: languages that it translates into, from every other source language.
        default_search: search options of requests that set none; None leaves a field at the
            contract's default.
        origin: origin of its weights, in words; "" if the server does not know.
        state: "serving", "asleep" (the next call wakes it) or "loading"; "" if the server doesn't
            say.
    """

    name: str
    version: str
    language_pairs: tuple[tuple[str, str], ...]
    precision: str
    device: str
    limits: ModelLimits
    can_score: bool = False
    source_languages: tuple[str, ...] = ()
    target_languages: tuple[str, ...] = ()
    default_search: Search = _PLAIN
    origin: str = ""
    state: str = ""


@dataclass(frozen=True)
class LanguageGroup:
    """Directions of a server: from each source language into each target language but itself.

    Attributes:
        source_languages, target_languages: BCP-47 codes.
        models: names of the models for these directions, in order of preference; empty with a
            pivot.
        pivot_language: the third language that two models translate through; "" if one model does.
    """

    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    models: tuple[str, ...]
    pivot_language: str = ""
