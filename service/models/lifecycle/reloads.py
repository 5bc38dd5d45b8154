"""Replaces models of a running server, one at a time, for the admin call and SIGHUP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from service.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from service.models.lifecycle.interface import ModelVersion
from service.models.lifecycle.model_lifecycle import ModelLifecycle

V = TypeVar("V", bound=ModelVersion)

_log = logging.getLogger("dragoman.lifecycle")


@dataclass(frozen=True)
class Reload:
    """The outcome of a reload for one model.

    Attributes:
        model: name of the model.
        previous_version: version of the weights before.
        version: version of the weights after.
        was_replaced: whether a new version took over; if not, the bundle was unchanged or `error`
            says why.
        error: reason why the old version continues to serve, if the reload failed; otherwise "".
    """

    model: str
    previous_version: str
    version: str
    was_replaced: bool = False
    error: str = ""


class Reloads(Generic[V]):
    """Reloads the models of a server. Belongs to the event loop.

    It replaces one model at a time, and only when the version replaced before has drained, since a
    reload needs memory for one more version of a model.

    Args:
        drain_seconds: longest time in which a replaced version may finish its calls.
    """

    def __init__(self, models: Mapping[str, ModelLifecycle[V]], drain_seconds: float) -> None:
        self._models = models
        self._drain_seconds = drain_seconds
        self._one_at_a_time = asyncio.Lock()
        self._asked = asyncio.Event()
        self._tasks: set[asyncio.Task[list[Reload]]] = set()
        self._was_stopped = False

    async def reload(
        self, name: str = "", bundle: Path | None = None, *, allow_fewer_languages: bool = False
    ) -> list[Reload]:
        """Replace one model, or all models with a changed bundle.

        Continues if the caller is cancelled.

        Args:
            name: name of the model; "" for all models with a changed bundle, or, together with
                `bundle`, for the only model.
            bundle: directory of the new version; None for the directory of the present one.

        Returns:
            The outcome for each model considered.

        Raises:
            NotFoundError: there is no model of this name.
            InvalidArgumentError: `bundle` without `name`, and there are several models.
            UnavailableError: the server is shutting down.
        """
        if name and name not in self._models:
            raise NotFoundError(
                f"there is no model {name[:64]!r}; there are: {', '.join(self._models)}"
            )
        if bundle is not None and not name and len(self._models) > 1:
            raise InvalidArgumentError(
                "name", f"is needed with a path; one of: {', '.join(self._models)}"
            )
        if self._was_stopped:
            raise UnavailableError("the server is shutting down")
        names = [name] if name else list(self._models)
        is_forced = bool(name) or bundle is not None
        work = self._reload_all(names, bundle, is_forced, allow_fewer_languages)
        task = asyncio.create_task(work, name="reload")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise UnavailableError("the server is shutting down") from None
            raise

    def ask(self) -> None:
        """Let `run` reload all models with a changed bundle. Repeated calls count as one."""
        self._asked.set()

    async def run(self) -> None:
        """Reload when asked to, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.reload()

    async def stop(self) -> None:
        """Cancel the reloads in progress."""
        self._was_stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _reload_all(
        self, names: list[str], bundle: Path | None, is_forced: bool, allow_fewer_languages: bool
    ) -> list[Reload]:
        async with self._one_at_a_time:
            done = []
            for name in names:
                model = self._models[name]
                if is_forced or await model.is_changed():
                    for other in self._models.values():
                        await other.wait_until_drained()
                    done.append(await self._reload(model, bundle, allow_fewer_languages))
                else:
                    version = model.current.version
                    done.append(Reload(name, version, version))
                    _log.info("not reloaded: its bundle is unchanged", extra={"model": name})
            return done

    async def _reload(
        self, model: ModelLifecycle[V], bundle: Path | None, allow_fewer_languages: bool
    ) -> Reload:
        name, before = model.current.name, model.current.version
        try:
            new = await model.replace(
                bundle, self._drain_seconds, allow_fewer_languages=allow_fewer_languages
            )
        except FailedPreconditionError as exc:
            _log.error("not reloaded", extra={"model": name, "version": before, "error": str(exc)})
            return Reload(name, before, before, error=str(exc))
        except Exception:
            _log.exception("not reloaded: a defect", extra={"model": name, "version": before})
            error = f"model {name} was not replaced: a defect; the log has it"
            return Reload(name, before, before, error=error)
        facts = {"model": name, "previous_version": before, "version": new.version}
        _log.info("reloaded", extra={**facts, "bundle": str(new.bundle)})
        return Reload(name, before, new.version, was_replaced=True)
