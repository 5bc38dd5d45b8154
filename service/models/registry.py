"""The models of a server, and the choice of one for a request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

from service.cache.response_cache import ResponseCache
from service.errors import NotFoundError
from service.models.lifecycle.interface import LifecycleObserver
from service.models.lifecycle.model_lifecycle import ModelLifecycle
from service.models.reachable import PivotGroup
from service.models.routing import Leg, Route, Router
from service.models.routing_rules import RoutingRules, check_names, listed, shortened
from service.models.served_model import ServedModel


class Registry:
    """The models of a server, in order of preference, and the choice of one for a request.

    Attributes:
        lifecycles: life cycles of the models, by name.

    Raises:
        StartupError: there is no model, two models have the same name, or the rules name an unknown
            model or language.
    """

    def __init__(
        self,
        models: Sequence[ServedModel],
        rules: RoutingRules | None = None,
        observer: LifecycleObserver | None = None,
        cache: ResponseCache | None = None,
    ) -> None:
        check_names(models)
        self._cache = cache
        self.lifecycles: dict[str, ModelLifecycle[ServedModel]] = {
            model.name: ModelLifecycle(model, observer) for model in models
        }
        self._router = Router(self, rules or RoutingRules())

    def __iter__(self) -> Iterator[ServedModel]:
        return iter([lifecycle.current for lifecycle in self.lifecycles.values()])

    def get(self, name: str) -> ServedModel:
        """The model called `name`.

        Raises:
            NotFoundError: there is no such model; the message lists the models.
        """
        if name not in self.lifecycles:
            raise NotFoundError(
                f"there is no model {shortened(name)}; there are: {listed(list(self.lifecycles))}"
            )
        return self.lifecycles[name].current

    def route(
        self, name: str, source: str, target: str, *, allow_pivot: bool | None = None
    ) -> Route:
        """The route of a request: one model, or two that translate through a pivot language.

        Args:
            name: a model's name, or "" for any.
            source: BCP-47 code, or "" if only one source language is possible. If no model fits its
                region or script, a model for the language itself does ("en" for "en-GB").
            target: BCP-47 code, or "" if only one target language is possible.
            allow_pivot: False for one model only; None for the rules' choice.

        Raises:
            InvalidArgumentError: a language is missing and more than one is possible.
            NotFoundError: there is no such model, or none for these languages; the message lists
                the models or directions.
        """
        if name:
            return self._router.named(self.get(name), source, target)
        return self._router.route(source, target, allow_pivot=allow_pivot)

    def reachable_targets(self, models: Sequence[ServedModel]) -> dict[str, list[str]]:
        """The languages that each source language can be translated into, pivots included."""
        return self._router.reachable(models).targets()

    def pivot_groups(self, models: Sequence[ServedModel]) -> list[PivotGroup]:
        """Directions that pairs of models translate, and no model does directly."""
        return self._router.reachable(models).pivot_groups()

    @contextlib.asynccontextmanager
    async def lease(self, route: Route) -> AsyncIterator[Route]:
        """Hold the serving versions of a route's models for one call.

        Raises:
            UnavailableError: a sleeping model can't be opened; the next call tries again.
            NotFoundError: a new version that took over in between lacks the direction.
        """
        with contextlib.ExitStack() as leases:
            legs = []
            for leg in route.legs:
                model = leases.enter_context(await self.lifecycles[leg.model.name].lease())
                is_same = model is leg.model
                legs.append(leg if is_same else Leg(model, *model.choose(leg.source, leg.target)))
            yield Route(tuple(legs))

    async def start(self) -> None:
        """Start the first version of every model, and their cache."""
        if self._cache is not None:
            await self._cache.start()
        for lifecycle in self.lifecycles.values():
            await lifecycle.start()

    async def wait_until_failed(self) -> None:
        """Wait until the engine of any serving model has ended."""
        ends = [asyncio.ensure_future(each.wait_until_ended()) for each in self.lifecycles.values()]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    async def stop(self) -> None:
        """Stop all models at once, in bounded time, with `ModelLifecycle.stop`."""
        await asyncio.gather(*(lifecycle.stop() for lifecycle in self.lifecycles.values()))
        if self._cache is not None:
            await self._cache.stop()
