"""Chooses models for a pair of languages: one, or two through a pivot language."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from model.bundle.directions import DirectionError, Side
from model.bundle.languages import is_language_code
from service.errors import InvalidArgumentError, NotFoundError
from service.models.reachable import Reachable
from service.models.routing_rules import (
    RoutingRules,
    language_ranges,
    listed,
    pairs_of,
    pivot_languages,
    shortened,
)
from service.models.served_model import ServedModel
from service.translation.options import TranslateOptions
from service.translation.pivot import PivotTranslator
from service.translation.translator import Translator

# Most possible pivot languages to look at closely: most requests take the first one.
_MAX_PIVOTS_TRIED = 16
# Most cached legs: clients can write a pair of languages in any number of ways.
_MAX_LEGS = 256


@dataclass(frozen=True)
class Leg:
    """A part of a route: a model, its source language and its target language."""

    model: ServedModel
    source: str
    target: str

    @property
    def translator(self) -> Translator:
        """The model's translator between the two languages."""
        return self.model.translator.between(self.source, self.target)


@dataclass(frozen=True)
class Route:
    """The models that translate a request.

    Attributes:
        legs: one leg, or two through a pivot language.
    """

    legs: tuple[Leg, ...]

    @property
    def model(self) -> ServedModel:
        """The model whose translations are returned."""
        return self.legs[-1].model

    @property
    def key(self) -> tuple[tuple[str, str, str], ...]:
        """A key that is the same for equal routes."""
        return tuple((leg.model.name, leg.source, leg.target) for leg in self.legs)

    @property
    def pivot_language(self) -> str:
        """The language between two legs; "" for one leg."""
        return self.legs[0].target if len(self.legs) > 1 else ""

    @property
    def pivot_model(self) -> str:
        """The name of the model that translates into the pivot language; "" for one leg."""
        return self.legs[0].model.name if len(self.legs) > 1 else ""

    def translator(self, *first_options: TranslateOptions) -> Translator | PivotTranslator:
        """The translator of texts along the route.

        Args:
            first_options: options of the first of two legs; none for one leg.
        """
        first, *others = (leg.translator for leg in self.legs)
        if not others:
            return first
        return PivotTranslator(first, others[0], self.pivot_language, *first_options)


class Router:
    """Finds routes through the models of a server.

    Args:
        models: the models in order of preference; read again for each request, since they may
            change.

    Raises:
        StartupError: the rules name an unknown model or language.
    """

    def __init__(self, models: Iterable[ServedModel], rules: RoutingRules) -> None:
        self._models = models
        self._rules = rules
        resolved = rules.resolved(list(models))
        self._defaults, self._allowed = resolved.defaults, resolved.pivot_languages
        self._known_of: list[ServedModel] = []  # the models that the two caches below are for
        self._pivots: list[str] | None = None
        self._legs: dict[tuple[str, str], Leg] = {}

    def named(self, model: ServedModel, source: str, target: str) -> Route:
        """The route through one model. Raises the same errors as `route`."""
        leg = self._leg([model], source, target)
        if leg is None:
            raise _not_found(f"model {model.name}", [model], source, target)
        return Route((leg,))

    def route(self, source: str, target: str, *, allow_pivot: bool | None = None) -> Route:
        """The shortest route between two languages, through the preferred models.

        Args:
            source: BCP-47 code, or "" if only one source language is possible.
            target: BCP-47 code, or "" if only one target language is possible.
            allow_pivot: False for a single model only; None for the rules' choice.

        Raises:
            InvalidArgumentError: a language is missing and more than one is possible.
            NotFoundError: there is no route; the message lists the directions.
        """
        models = self._current()
        if (leg := self._legs.get((source, target))) is not None:
            return Route((leg,))
        if (leg := self._leg(models, source, target)) is not None:
            if len(self._legs) < _MAX_LEGS:
                self._legs[source, target] = leg
            return Route((leg,))
        is_allowed = self._rules.pivots and allow_pivot is not False
        try:
            pivot = self._pivot(models, source, target)
        except InvalidArgumentError:
            if is_allowed:
                raise
            pivot = None
        if pivot is not None and is_allowed:
            return pivot
        missing = _not_found("this server", models, source, target)
        if pivot is None:
            raise missing
        why = "this request does not allow" if self._rules.pivots else "--no-pivot does not allow"
        raise NotFoundError(f"{missing}. Through {pivot.pivot_language!r} it could, but {why} that")

    def reachable(self, models: Iterable[ServedModel]) -> Reachable:
        """The languages that some of the router's models translate into."""
        pivots = (self._allowed or self._pivot_languages()) if self._rules.pivots else ()
        return Reachable(models, pivots)

    def _leg(self, models: Sequence[ServedModel], source: str, target: str) -> Leg | None:
        """The preferred model of `models` for these languages; None if none fits."""
        for ranges in itertools.product(language_ranges(source), language_ranges(target)):
            if fitting := [model for model in models if model.fits(*ranges)]:
                return self._preferred(fitting, *ranges)
        # For example "zh" for a model with zh-Hans only; if it also has zh-Hant, it is refused.
        fitting = [model for model in models if model.directions.may_fit(source, target)]
        return self._preferred(fitting, source, target) if fitting else None

    def _preferred(self, models: Sequence[ServedModel], source: str, target: str) -> Leg:
        _check_one_language("source", source, target, models)
        _check_one_language("target", target, source, models)
        pair = models[0].choose(source, target)
        name = self._defaults.get((pair[0].lower(), pair[1].lower()))
        chosen = next((model for model in models if model.name == name), models[0])
        return Leg(chosen, *chosen.choose(source, target))

    def _pivot(self, models: Sequence[ServedModel], source: str, target: str) -> Route | None:
        """The preferred route through a third language.

        This runs on the event loop for every pair without a model. So it looks closely only at
        languages that `source` can be translated into and `target` from, and only at a few of them.

        Raises:
            InvalidArgumentError: `source` or `target` is ambiguous, and there is no route.
        """
        if not source or not target:
            return None
        firsts, seconds = _knowing("source", source, models), _knowing("target", target, models)
        known = {code.lower() for _, code in (*firsts, *seconds)}
        # With one language on both sides, a route would only lead to a language and back.
        if not firsts or not seconds or (len(known) == 1 and known != {""}):
            return None
        through = self._allowed or self._pivot_languages()
        possible = (code for code in through if _is_between(code, firsts, seconds))
        ambiguous: InvalidArgumentError | None = None
        for language in itertools.islice(possible, _MAX_PIVOTS_TRIED):
            try:
                first = None
                first = self._leg([model for model, _ in firsts], source, language)
                second = first and self._leg([model for model, _ in seconds], language, target)
            except InvalidArgumentError as exc:
                # An error about the pivot language itself does not concern the client.
                is_own = exc.field == ("target" if first else "source") + "_language_code"
                ambiguous = ambiguous or (exc if is_own else None)
                continue
            # Not to a language and back: for example "en-GB" to "en-US" with models for "en".
            if first and second and first.source.lower() != second.target.lower():
                return Route((first, second))
        if ambiguous is not None:
            raise ambiguous
        return None

    def _pivot_languages(self) -> Sequence[str]:
        """The languages that models translate both into and from, in order of preference."""
        models = self._current()
        if self._pivots is None:
            self._pivots = pivot_languages(models)
        return self._pivots

    def _current(self) -> list[ServedModel]:
        """The models; if they have changed, the caches are cleared."""
        models = list(self._models)
        if not _are_same(models, self._known_of):
            self._known_of, self._pivots, self._legs = models, None, {}
        return models


def _are_same(models: Sequence[ServedModel], others: Sequence[ServedModel]) -> bool:
    return len(models) == len(others) and all(
        model is other for model, other in zip(models, others, strict=True)
    )


_Knowing = Sequence[tuple[ServedModel, str]]
"""Models that know a language, each with its own code for it; "" if several of its codes fit."""


def _knowing(side: Side, code: str, models: Iterable[ServedModel]) -> _Knowing:
    found = []
    for model in models:
        try:
            found.append((model, model.directions.find(side, code)))
        except DirectionError as exc:
            if exc.choices:
                found.append((model, ""))
    return found


def _is_between(code: str, firsts: _Knowing, seconds: _Knowing) -> bool:
    """Whether one of `firsts` translates into a language and one of `seconds` from it."""
    return any(model.fits(source, code) for model, source in firsts) and any(
        model.fits(shorter, target)
        for model, target in seconds
        for shorter in language_ranges(code)
    )


def _check_one_language(side: Side, code: str, other: str, models: Iterable[ServedModel]) -> None:
    """Raise InvalidArgumentError if `code` is missing and `models` have several on this side."""
    if code:
        return
    found = {language for model in models for language in model.directions.of(side)}
    if len([language for language in found if language.lower() != other.lower()]) > 1:
        field = f"{side}_language_code"
        raise InvalidArgumentError(field, f"must be given, one of: {listed(sorted(found))}")


def _not_found(
    subject: str, models: Sequence[ServedModel], source: str, target: str
) -> NotFoundError:
    why = ""
    for side, code in (("source", source), ("target", target)):
        if code and not is_language_code(code) and not why:
            why = (
                f"{side}_language_code: {shortened(code)} is not a language code "
                "(en and pt-BR, for example, are): "
            )
    return NotFoundError(
        f"{why}{subject} does not translate from "
        f"{shortened(source) if source else 'any language'} to "
        f"{shortened(target) if target else 'any language'}; "
        f"it translates: {listed(pairs_of(models))}"
    )
