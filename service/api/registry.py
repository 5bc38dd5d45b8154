"""The models of a server, and the choice of one for a request."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.bundle import manifest_sha256
from service.engine.interface import EngineObserver, ServableEngine
from service.errors import InvalidArgumentError, NotFoundError, StartupError
from service.lifecycle.interface import LifecycleObserver
from service.lifecycle.model_lifecycle import ModelLifecycle
from service.translation.options import TranslateOptions
from service.translation.translator import Translator

# Characters of a language code; RFC 5646 has none over 35.
_LONGEST_CODE = 64
_MAX_LISTED = 20  # names in a message, which is sent in a header
# Of several lengths, so that the memory of more than one size of batch is taken.
_WARM_UP_TEXTS = ("1.", "One, two, three.", "One, two, three, four, five, six, seven, eight, nine.")
_WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class ServedModel:
    """A version of a model that is ready to translate.

    Attributes:
        name: for requests.
        version: of its weights.
        source, target: BCP-47 codes of the languages.
        precision: "fp32", "fp16" or "int8".
        device: "cpu" or "cuda".
        engine: runs the model.
        translator: translates texts with the engine.
        observer: receives the engine's events.
        bundle: the directory that it was opened from, as it was given; None if there is none.
        manifest_sha256: of its manifest, which has the checksums of all other files.
        reopen: opens a directory as another version of the model, in a process of its own; None if
            it can be neither replaced nor put to sleep. Raises StartupError.
    """

    name: str
    version: str
    source: str
    target: str
    precision: str
    device: str
    engine: ServableEngine
    translator: Translator
    observer: EngineObserver = dataclasses.field(default_factory=EngineObserver)
    bundle: Path | None = None
    manifest_sha256: str = ""
    reopen: Callable[[Path], ServedModel] | None = None

    def fits(self, source: str, target: str) -> bool:
        """Whether it translates from `source` to `target`; "" is any language."""
        return source.lower() in ("", self.source.lower()) and target.lower() in (
            "",
            self.target.lower(),
        )

    def is_changed(self) -> bool:
        """Whether the bundle in its directory is another one by now, or unreadable. Blocks."""
        return self.bundle is not None and manifest_sha256(self.bundle) != self.manifest_sha256

    def lacks(self, other: ServedModel) -> list[str]:
        """Directions that `other` translates and this one does not, as "en to de"."""
        lost = [(other.source, other.target)]
        return [f"{source} to {target}" for source, target in lost if not self.fits(source, target)]

    async def warm_up(self) -> None:
        """Translate a few short texts with the started engine.

        Raises:
            DragomanError: it fails.
        """
        limits = self.translator.limits
        options = TranslateOptions(
            max_new_tokens=min(_WARM_UP_TOKENS, self.engine.limits.max_target_positions)
        )
        longest = min(limits.max_characters, limits.max_request_characters)
        calls = [self.translator.translate([text[:longest]], options) for text in _WARM_UP_TEXTS]
        for [result] in await asyncio.gather(*calls):
            if result.error is not None:
                raise result.error


class Registry:
    """The models of a server, in order of preference, and the choice of one for a request.

    Args:
        models: the first version of each.
        observer: receives what happens to them.

    Attributes:
        lifecycles: of each model, by its name.

    Raises:
        StartupError: no model, or two of one name.
    """

    def __init__(
        self, models: Sequence[ServedModel], observer: LifecycleObserver | None = None
    ) -> None:
        if not models:
            raise StartupError(
                "no model to serve: name a bundle directory with --model "
                "(`dragoman export` makes one)"
            )
        self.lifecycles: dict[str, ModelLifecycle[ServedModel]] = {}
        for model in models:
            if model.name in self.lifecycles:
                raise StartupError(
                    f"two models are called {model.name!r}, and requests choose by name: serve "
                    "only one of them, or export one again with `dragoman export --name`"
                )
            self.lifecycles[model.name] = ModelLifecycle(model, observer)

    def __iter__(self) -> Iterator[ServedModel]:
        return iter([lifecycle.current for lifecycle in self.lifecycles.values()])

    def get(self, name: str) -> ServedModel:
        """The model called `name`.

        Raises:
            NotFoundError: there is none; the message lists the models.
        """
        if name not in self.lifecycles:
            raise NotFoundError(
                f"there is no model {_shorten(name)}; there are: {_listed(list(self.lifecycles))}"
            )
        return self.lifecycles[name].current

    def lease(self, model: ServedModel) -> contextlib.AbstractAsyncContextManager[ServedModel]:
        """The version of `model` that serves, held for one call; as `ModelLifecycle.lease`."""
        return self.lifecycles[model.name].lease()

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
        if not fitting:
            pairs = sorted({f"{model.source} to {model.target}" for model in candidates})
            raise NotFoundError(
                f"{'model ' + name if name else 'this server'} does not translate from "
                f"{_shorten(source) if source else 'any language'} to "
                f"{_shorten(target) if target else 'any language'}; "
                f"it translates: {_listed(pairs)}"
            )
        for field, given, languages in (
            ("source_language_code", source, {model.source for model in fitting}),
            ("target_language_code", target, {model.target for model in fitting}),
        ):
            if not given and len(languages) > 1:
                raise InvalidArgumentError(
                    field, f"must be given, one of: {_listed(sorted(languages))}"
                )
        return fitting[0]

    async def start(self) -> None:
        """Serve with the first version of every model."""
        for lifecycle in self.lifecycles.values():
            await lifecycle.start()

    async def wait_until_failed(self) -> None:
        """Wait until the engine of a model that serves has ended."""
        ends = [asyncio.ensure_future(each.wait_until_ended()) for each in self.lifecycles.values()]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    async def stop(self) -> None:
        """Stop every model at once, in bounded time; as `ModelLifecycle.stop`."""
        await asyncio.gather(*(lifecycle.stop() for lifecycle in self.lifecycles.values()))


def _ranges(code: str) -> Iterator[str]:
    """The code, then shorter and shorter beginnings of it (RFC 4647, section 3.4)."""
    subtags = code.split("-") if len(code) <= _LONGEST_CODE else [code]
    for count in range(len(subtags), 0, -1):
        if count == len(subtags) or len(subtags[count - 1]) > 1:
            yield "-".join(subtags[:count])


def _listed(names: list[str]) -> str:
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 64 else text[:61] + "...")
