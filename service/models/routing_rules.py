"""The operator's routing rules, checked against the server's models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.bundle.bundle import Bundle
from model.bundle.directions import Directions
from service.errors import StartupError
from service.models.served_model import ServedModel

# Most characters of a language code; RFC 5646 has none over 35.
_LONGEST_CODE = 64
_MAX_SUBTAGS = 8  # most prefixes of a code: those of source and target are tried in all pairs
_MAX_LISTED = 20  # most names in a message, which is sent in a header
_MAX_CODES = 8  # most codes of one model among them
# The preferred pivot unless the rules name others: most models translate from or into it.
_USUAL_PIVOT = "en"


TranslatingModel = ServedModel | Bundle
"""A model for the rules, loaded or not."""


@dataclass(frozen=True)
class RoutingRules:
    """Rules for choosing among models that could answer a request.

    Attributes:
        defaults: models of pairs of languages, each as "en-de=NAME". For other pairs, the first
            model that fits is taken.
        pivots: whether a pair without a model may be translated by two, through a third language.
        pivot_languages: languages that may be pivots, the preferred one first; empty for any,
            English first.
    """

    defaults: tuple[str, ...] = ()
    pivots: bool = True
    pivot_languages: tuple[str, ...] = ()

    def resolved(self, models: Sequence[TranslatingModel]) -> ResolvedRules:
        """Check the rules against these models.

        Raises:
            StartupError: the rules name an unknown model or language.
        """
        defaults: dict[tuple[str, str], str] = {}
        for text in self.defaults:
            pair, name = _default(text, models)
            if defaults.setdefault(pair, name) != name:
                raise StartupError(
                    f"setting default: {'-'.join(pair)} has two models, "
                    f"{defaults[pair]!r} and {name!r}"
                )
        possible = {language.lower(): language for language in pivot_languages(models)}
        pivots = tuple(_pivot_language(code, possible) for code in self.pivot_languages)
        return ResolvedRules(defaults, pivots)


@dataclass(frozen=True)
class ResolvedRules:
    """Rules that were checked against the models of a server.

    Attributes:
        defaults: names of models by source and target, in lower case.
        pivot_languages: codes of the pivot languages, as the models write them.
    """

    defaults: Mapping[tuple[str, str], str]
    pivot_languages: tuple[str, ...]


def check_names(models: Sequence[TranslatingModel], paths: Sequence[Path] = ()) -> None:
    """Raise StartupError if there is no model, or two models have the same name.

    Args:
        paths: directories of their bundles, in the same order, for the message.
    """
    names: list[str] = []
    for index, model in enumerate(models):
        if model.name in names:
            where = ""
            if paths:
                where = f" ({paths[names.index(model.name)]} and {paths[index]})"
            raise StartupError(
                f"two models are called {model.name!r}{where}, and requests choose by name: serve "
                "only one of them, or make one again with `dragoman export --name` or `dragoman "
                "import --name`"
            )
        names.append(model.name)
    if not names:
        raise StartupError(
            "no model to serve: name a bundle directory with --model (`dragoman export` and "
            "`dragoman import` make one)"
        )


def pivot_languages(models: Sequence[TranslatingModel]) -> list[str]:
    """The languages that models translate both into and from, in order of preference."""
    sources = {code.lower() for model in models for code in model.directions.sources}
    targets = dict.fromkeys(code for model in models for code in model.directions.targets)
    found = [t for t in targets if any(r.lower() in sources for r in language_ranges(t))]
    return sorted(found, key=lambda language: language.lower() != _USUAL_PIVOT)


def _pivot_language(code: str, possible: Mapping[str, str]) -> str:
    if code.lower() not in possible:
        raise StartupError(
            f"setting pivot_languages: nothing can be translated through {code!r}: no model "
            f"translates into it, or none from it; there are: "
            f"{listed(sorted(possible)) or 'none'}"
        )
    return possible[code.lower()]


def _default(text: str, served: Iterable[TranslatingModel]) -> tuple[tuple[str, str], str]:
    """Parse "en-de=NAME": the languages, in lower case, and the model's name.

    Codes can contain hyphens ("pt-BR-en"): they are split where the model has the direction.
    """
    codes, equals, name = text.partition("=")
    if not equals or "-" not in codes or not name:
        raise StartupError(f"setting default: must be like en-de=NAME, not {text!r}")
    models = {model.name: model for model in served}
    if name not in models:
        raise StartupError(
            f"setting default: {text}: there is no model {shortened(name)}; "
            f"there are: {listed(list(models))}"
        )
    parts, model = codes.split("-"), models[name]
    splits = [("-".join(parts[:n]), "-".join(parts[n:])) for n in range(1, len(parts))]
    pairs = [pair for pair in splits if model.directions.fits(*pair)]
    if not pairs:
        raise StartupError(
            f"setting default: {text}: {name} does not translate {codes}; "
            f"it translates: {listed(pairs_of([model]))}"
        )
    [(source, target), *_] = pairs
    return (source.lower(), target.lower()), name


def pairs_of(models: Iterable[TranslatingModel]) -> list[str]:
    """The directions of models for a message: one text for each distinct set."""
    return sorted({_described(model.directions) for model in models})


def _described(directions: Directions) -> str:
    if directions.is_one:
        return " to ".join(directions.first)
    sources, targets = directions.sources, directions.targets
    if sources == targets:
        return f"between {listed(sources, _MAX_CODES)}"
    return f"from {listed(sources, _MAX_CODES)} to {listed(targets, _MAX_CODES)}"


def language_ranges(code: str) -> Iterator[str]:
    """Yield the code, then ever shorter prefixes of it (RFC 4647, section 3.4)."""
    subtags = code.split("-", _MAX_SUBTAGS) if len(code) <= _LONGEST_CODE else [code]
    for count in range(len(subtags), 0, -1):
        if count == len(subtags) or len(subtags[count - 1]) > 1:
            yield "-".join(subtags[:count])


def listed(names: Sequence[str], most: int = _MAX_LISTED) -> str:
    """Join names for a message; of many names, only the first."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def shortened(text: str) -> str:
    """Quote and shorten a client's text for a message."""
    return repr(text if len(text) <= 64 else text[:61] + "...")
