"""The models of a server, and the choice of one for a request."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from model.directions import DirectionError, Directions
from service.engine.interface import ServableEngine
from service.errors import InvalidArgumentError, NotFoundError, StartupError
from service.translation.translator import Translator

# Characters of a language code; RFC 5646 has none over 35.
_LONGEST_CODE = 64
_MAX_LISTED = 20  # names in a message, which is sent in a header
_MAX_CODES = 8  # of a model among them


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
    """

    name: str
    version: str
    directions: Directions
    precision: str
    device: str
    engine: ServableEngine
    translator: Translator

    def fits(self, source: str, target: str) -> bool:
        """Whether it translates from `source` to `target`; "" is any language."""
        return self.directions.fits(source, target)

    def translator_between(self, source: str, target: str) -> Translator:
        """The translator for a request that `Registry.resolve` gave to this model.

        Raises:
            InvalidArgumentError: a language is missing, or could be several of the model's; names
                the field and the choices.
            NotFoundError: the model has no such direction.
        """
        if self.directions.is_one:
            return self.translator
        try:
            return self.translator.between(source, target)
        except DirectionError as exc:
            if exc.choices:
                raise InvalidArgumentError(f"{exc.side}_language_code", str(exc)) from exc
            raise NotFoundError(f"model {self.name}: {exc}") from exc


class Registry:
    """The models of a server, in order of preference.

    Raises:
        StartupError: no model, or two of one name.
    """

    def __init__(self, models: Sequence[ServedModel]) -> None:
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

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def get(self, name: str) -> ServedModel:
        """The model called `name`.

        Raises:
            NotFoundError: there is none; the message lists the models.
        """
        if name not in self._models:
            raise NotFoundError(
                f"there is no model {_shorten(name)}; there are: {_listed(list(self._models))}"
            )
        return self._models[name]

    def resolve(self, name: str, source: str, target: str) -> ServedModel:
        """The model for a request: by name, or the first for its languages.

        Args:
            name: a model's name, or "" for any.
            source: a BCP-47 code, or "" if only one language is possible. If no model fits its
                region or script, a model for the language itself does ("en" for "en-GB").
            target: likewise.

        Raises:
            InvalidArgumentError: a language is missing and more than one is possible.
            NotFoundError: no such model, or none for these languages; the message lists what there
                is.
        """
        candidates = [self.get(name)] if name else list(self)
        fitting: list[ServedModel] = []
        for ranges in itertools.product(_ranges(source), _ranges(target)):
            fitting = [model for model in candidates if model.fits(*ranges)]
            if fitting:
                break
        if not fitting:  # "zh" for a model with zh-Hans alone, or with zh-Hant too
            fitting = [m for m in candidates if m.directions.may_fit(source, target)]
        if not fitting:
            pairs = sorted({_described(model.directions) for model in candidates})
            raise NotFoundError(
                f"{'model ' + name if name else 'this server'} does not translate from "
                f"{_shorten(source) if source else 'any language'} to "
                f"{_shorten(target) if target else 'any language'}; "
                f"it translates: {_listed(pairs)}"
            )
        for field, given, other, languages in (
            ("source_language_code", source, target, _codes(m.directions.sources for m in fitting)),
            ("target_language_code", target, source, _codes(m.directions.targets for m in fitting)),
        ):
            if not given and len([code for code in languages if code.lower() != other.lower()]) > 1:
                raise InvalidArgumentError(
                    field, f"must be given, one of: {_listed(sorted(languages))}"
                )
        return fitting[0]

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


def _ranges(code: str) -> Iterator[str]:
    """The code, then shorter and shorter beginnings of it (RFC 4647, section 3.4)."""
    subtags = code.split("-") if len(code) <= _LONGEST_CODE else [code]
    for count in range(len(subtags), 0, -1):
        if count == len(subtags) or len(subtags[count - 1]) > 1:
            yield "-".join(subtags[:count])


def _codes(languages: Iterable[Iterable[str]]) -> set[str]:
    return set(itertools.chain.from_iterable(languages))


def _described(directions: Directions) -> str:
    if directions.is_one:
        return " to ".join(directions.first)
    sources, targets = directions.sources, directions.targets
    if sources == targets:
        return f"between {_listed(sources, _MAX_CODES)}"
    return f"from {_listed(sources, _MAX_CODES)} to {_listed(targets, _MAX_CODES)}"


def _listed(names: Sequence[str], most: int = _MAX_LISTED) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 64 else text[:61] + "...")
