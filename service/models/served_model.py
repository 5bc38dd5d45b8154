"""A version of a model that is ready to translate."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from model.bundle.directions import DirectionError, Directions
from model.bundle.manifest import manifest_sha256
from service.engine.interface import EngineObserver, ServableEngine
from service.errors import InvalidArgumentError, NotFoundError
from service.translation.options import TranslateOptions
from service.translation.translator import Translator

# Texts of several lengths, so that memory for more than one batch size is allocated.
_WARM_UP_TEXTS = ("1.", "One, two, three.", "One, two, three, four, five, six, seven, eight, nine.")
_WARM_UP_TOKENS = 16
_MAX_LACKING = 20  # most directions in a message


@dataclass(frozen=True)
class ServedModel:
    """A version of a model that is ready to translate.

    Attributes:
        name: name of the model in requests.
        version: version of the weights.
        directions: pairs of languages that the model translates between.
        precision: "fp32", "fp16" or "int8".
        device: "cpu" or "cuda".
        engine: runs the model.
        translator: translates texts with the engine.
        origin: description of where the weights come from; "" if unknown.
        observer: receives the engine's events.
        bundle: path of the bundle as configured, not resolved; None without a bundle.
        manifest_sha256: hash of the manifest, which has the checksums of all other files.
        has_own_process: whether the engine runs in a process of its own, not in the server's.
        reopen: opens a directory as another version of the model while this one serves, at a low
            priority if the second argument is True. Raises StartupError. None if the model can be
            neither replaced nor put to sleep.
    """

    name: str
    version: str
    directions: Directions
    precision: str
    device: str
    engine: ServableEngine
    translator: Translator
    origin: str = ""
    observer: EngineObserver = dataclasses.field(default_factory=EngineObserver)
    bundle: Path | None = None
    manifest_sha256: str = ""
    has_own_process: bool = False
    reopen: Callable[[Path, bool], ServedModel] | None = None

    def fits(self, source: str, target: str) -> bool:
        """Whether the model translates from `source` to `target`; "" stands for any language."""
        return self.directions.fits(source, target)

    def choose(self, source: str, target: str) -> tuple[str, str]:
        """Choose the model's direction for a request, in the model's language codes.

        Args:
            source: BCP-47 code, which can be longer or shorter than the model's; "" if only one
                source language is possible.
            target: BCP-47 code of the target language, by the same rules.

        Raises:
            InvalidArgumentError: a language is missing or ambiguous; names the field and the
                choices.
            NotFoundError: the model has no such direction.
        """
        try:
            return self.directions.choose(source, target)
        except DirectionError as exc:
            if exc.choices:
                raise InvalidArgumentError(f"{exc.side}_language_code", str(exc)) from exc
            raise NotFoundError(f"model {self.name}: {exc}") from exc

    def is_changed(self) -> bool:
        """Whether the bundle in the directory has changed or is unreadable. Blocks."""
        return self.bundle is not None and manifest_sha256(self.bundle) != self.manifest_sha256

    def lacks(self, other: ServedModel) -> list[str]:
        """The first 20 directions that only `other` translates, such as "en to de"."""
        lost = (f"{source} to {target}" for source, target in self._lost(other.directions))
        return list(itertools.islice(lost, _MAX_LACKING))

    def _lost(self, others: Directions) -> Iterator[tuple[str, str]]:
        """Directions that this model lacks, found without a loop over up to a million pairs."""
        if others.is_one:
            yield from (pair for pair in others if not self.fits(*pair))
            return
        lost_targets = [target for target in others.targets if not self.fits("", target)]
        for source in others.sources:
            for target in lost_targets if self.fits(source, "") else others.targets:
                if others.fits(source, target):
                    yield source, target

    async def warm_up(self) -> None:
        """Translate a few short texts with the started engine.

        Raises:
            DragomanError: a translation fails.
        """
        translator = self.translator
        limits = translator.limits
        options = TranslateOptions(
            max_new_tokens=min(_WARM_UP_TOKENS, translator.max_target_tokens)
        )
        longest = min(limits.max_characters, limits.max_request_characters)
        calls = [translator.translate([text[:longest]], options) for text in _WARM_UP_TEXTS]
        for [result] in await asyncio.gather(*calls):
            if result.error is not None:
                raise result.error
