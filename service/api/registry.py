"""The models of a server, and the choice of one for a request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model.directions import DirectionError, Directions
from service.api.routing import Route, Router, RoutingRules, listed, shortened
from service.engine.interface import ServableEngine
from service.errors import InvalidArgumentError, NotFoundError, StartupError
from service.translation.translator import Translator


@dataclass(frozen=True)
class ServedModel:
    """A model that is ready to translate.

    Attributes:
        name: for requests.
        version: of its weights.
        directions: that it translates.
        precision: "fp32", "fp16" or "int8".
        device: "cpu" or "cuda".
        engine: runs the model.
        translator: translates texts with the engine.
        origin: where its weights come from, in words; "" if unknown.
    """

    name: str
    version: str
    directions: Directions
    precision: str
    device: str
    engine: ServableEngine
    translator: Translator
    origin: str = ""

    def fits(self, source: str, target: str) -> bool:
        """Whether it translates from `source` to `target`; "" is any language."""
        return self.directions.fits(source, target)

    def choose(self, source: str, target: str) -> tuple[str, str]:
        """The direction that is meant, by the model's codes.

        Args:
            source: a BCP-47 code, which can be longer or shorter than the model's; "" if only one
                is possible.
            target: likewise.

        Raises:
            InvalidArgumentError: a language is missing, or could be several of the model's; names
                the field and the choices.
            NotFoundError: the model has no such direction.
        """
        try:
            return self.directions.choose(source, target)
        except DirectionError as exc:
            if exc.choices:
                raise InvalidArgumentError(f"{exc.side}_language_code", str(exc)) from exc
            raise NotFoundError(f"model {self.name}: {exc}") from exc


class Registry:
    """The models of a server, in order of preference.

    Args:
        models: the models.
        rules: how to choose among them.

    Raises:
        StartupError: no model, two of one name, or rules that name what there is not.
    """

    def __init__(self, models: Sequence[ServedModel], rules: RoutingRules | None = None) -> None:
        if not models:
            raise StartupError(
                "no model to serve: name a bundle directory with --model "
                "(`dragoman export` makes one)"
            )
        self._models: dict[str, ServedModel] = {}
        for model in models:
            if model.name in self._models:
                raise StartupError(
                    f"two models are called {model.name!r}, and requests choose by name: serve "
                    "only one of them, or export one again with `dragoman export --name`"
                )
            self._models[model.name] = model
        self._router = Router(self, rules or RoutingRules())

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def get(self, name: str) -> ServedModel:
        """The model called `name`.

        Raises:
            NotFoundError: there is none; the message lists the models.
        """
        if name not in self._models:
            raise NotFoundError(
                f"there is no model {shortened(name)}; there are: {listed(list(self._models))}"
            )
        return self._models[name]

    def route(
        self, name: str, source: str, target: str, *, allow_pivot: bool | None = None
    ) -> Route:
        """The model for a request, or the two that translate through a pivot language.

        Args:
            name: a model's name, or "" for any.
            source: a BCP-47 code, or "" if only one language is possible. If no model fits its
                region or script, a model for the language itself does ("en" for "en-GB").
            target: likewise.
            allow_pivot: False for one model only; None for the rules' choice.

        Raises:
            InvalidArgumentError: a language is missing and more than one is possible.
            NotFoundError: no such model, or none for these languages; the message lists what there
                is.
        """
        if name:
            return self._router.named(self.get(name), source, target)
        return self._router.route(source, target, allow_pivot=allow_pivot)

    async def start(self) -> None:
        """Start every engine."""
        for model in self:
            await model.engine.start()

    async def wait_until_failed(self) -> ServedModel:
        """Wait until an engine has failed, and return its model."""
        ends = {asyncio.ensure_future(m.engine.wait_until_ended()): m for m in self}
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        return ends[done.pop()]

    async def stop(self) -> None:
        """Stop every engine at once; unfinished requests fail with UnavailableError.

        Bounded: an engine that hangs is abandoned, and counts as failed.
        """
        await asyncio.gather(*(model.engine.stop() for model in self))
