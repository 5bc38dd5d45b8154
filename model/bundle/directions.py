"""The directions of a model, and the tokens that choose one. Free of torch."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from model.bundle.languages import LanguageError, find_language

MAX_LANGUAGES = 1000
"""The side of a model's languages: sources or targets."""


Side = Literal["source", "target"]


class DirectionError(LanguageError):
    """A model has no such direction, or several.

    Attributes:
        side: the side of the language that caused the error.
    """

    def __init__(self, side: Side, message: str, choices: Iterable[str] = ()) -> None:
        super().__init__(message, choices)
        self.side = side


@dataclass(frozen=True)
class Directions:
    """Directions from each source language into each other target language.

    Tokens tell the model the languages of a translation. M2M-100, NLLB and mBART-50 read the source
    language's before the text and begin the translation with the target language's (Fan et al.,
    2020, "Beyond English-Centric Multilingual Machine Translation", section 2.1). Marian's models
    with several targets read the target language's before the text (Johnson et al., 2017, "Google's
    Multilingual Neural Machine Translation System", section 3).

    Attributes:
        sources, targets: BCP-47 codes.
        token_ids: the tokens of languages, by their codes.
        source_prefix: the language whose token comes before the text; "" for none.
        target_prefix: the language whose token begins the translation; "" for none.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    token_ids: Mapping[str, int] = field(default_factory=dict)
    source_prefix: Literal["", "source", "target"] = ""
    target_prefix: Literal["", "target"] = ""

    @classmethod
    def one(cls, source: str, target: str) -> Directions:
        """A single direction, which needs no tokens."""
        return cls((source,), (target,))

    @property
    def is_one(self) -> bool:
        """Whether there is a single direction."""
        return len(self.sources) == len(self.targets) == 1

    @property
    def first(self) -> tuple[str, str]:
        """A source and a target to represent all directions; from English if that is a source."""
        source = "en" if "en" in self.sources else self.sources[0]
        return next((one, other) for one, other in self._pairs([source]) if one == source)

    def of(self, side: Side) -> tuple[str, ...]:
        """`sources` or `targets`."""
        return self.sources if side == "source" else self.targets

    @property
    def count(self) -> int:
        """The number of directions."""
        same = len({*self.sources} & {*self.targets})
        return 1 if self.is_one else len(self.sources) * len(self.targets) - same

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Each source and target."""
        return self._pairs(self.sources)

    def fits(self, source: str, target: str) -> bool:
        """Whether `source` and `target`, in upper or lower case, are a direction; "" is any."""
        source, target = source.lower(), target.lower()
        if source not in self._sources or target not in self._targets:
            return False
        return self.is_one or not source or source != target

    def choose(self, source: str, target: str) -> tuple[str, str]:
        """The direction that a request means: a code of `sources`, and one of `targets`.

        A code can be longer or shorter than the model's: `en-GB` for `en`.

        Args:
            source: BCP-47 code of the source language; "" if only one is possible.
            target: BCP-47 code of the target language; "" if only one is possible.

        Raises:
            DirectionError: a language is missing, unknown or ambiguous.
        """
        found_source = self.find("source", source) if source else ""
        found_target = self.find("target", target) if target else ""
        found_source = found_source or self._only("source", self.sources, found_target)
        found_target = found_target or self._only("target", self.targets, found_source)
        if found_source == found_target and not self.is_one:
            raise DirectionError("target", f"{target[:64]!r} is the source language")
        return found_source, found_target

    def find(self, side: Side, code: str) -> str:
        """The language of one side that a BCP-47 code means, as in `choose`.

        Raises:
            DirectionError: the language is unknown or ambiguous.
        """
        if (found := self._written[side].get(code.lower())) is not None:
            return found
        try:
            return find_language(code, self.of(side))
        except LanguageError as exc:
            raise DirectionError(side, str(exc), exc.choices) from exc

    def may_fit(self, source: str, target: str) -> bool:
        """Whether `choose` finds a direction, or several that could be meant."""
        try:
            self.choose(source, target)
        except DirectionError as exc:
            return bool(exc.choices)
        return True

    def prefix_ids(self, source: str, target: str) -> tuple[int, ...]:
        """The tokens before a text that is translated from `source` into `target`."""
        language = {"": "", "source": source, "target": target}[self.source_prefix]
        return (self.token_ids[language],) if language else ()

    def start_ids(self, target: str) -> tuple[int, ...]:
        """The tokens that every translation into `target` begins with."""
        return (self.token_ids[target],) if self.target_prefix else ()

    def to_dict(self) -> dict[str, Any]:
        """The entry of `bundle.json`."""
        return {**asdict(self), "sources": list(self.sources), "targets": list(self.targets)}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any], vocab_size: int) -> Directions:
        """Read the entry of `bundle.json`.

        Raises:
            ValueError: it makes no sense; names the field.
        """
        for name in ("sources", "targets"):
            codes = entry.get(name)
            if not isinstance(codes, list) or not all(isinstance(code, str) for code in codes):
                raise ValueError(f"{name} is not a list of language codes")
            if not 1 <= len({code.lower() for code in codes}) == len(codes) <= MAX_LANGUAGES:
                raise ValueError(f"{name} has not between 1 and {MAX_LANGUAGES} different codes")
        ids = entry.get("token_ids")
        if not isinstance(ids, dict) or any(
            type(i) is not int or not 0 <= i < vocab_size for i in ids.values()
        ):
            raise ValueError("token_ids is not a table of token ids")
        sources, targets = tuple(entry["sources"]), tuple(entry["targets"])
        before, first = entry.get("source_prefix"), entry.get("target_prefix")
        if before not in ("", "source", "target") or first not in ("", "target"):
            raise ValueError("source_prefix or target_prefix has an unknown value")
        languages = {"": (), "source": sources, "target": targets}
        for code in (*languages[before], *languages[first]):
            if code not in ids:
                raise ValueError(f"token_ids has no {code!r}")
        directions = cls(sources, targets, ids, before, first)
        if not directions.count:
            raise ValueError("sources and targets are one language")
        return directions

    def _only(self, side: Side, codes: Iterable[str], other: str) -> str:
        possible = [code for code in codes if self.is_one or code != other]
        if len(possible) == 1:
            return possible[0]
        shown = ", ".join(possible[:20]) + (", ..." if len(possible) > 20 else "")
        raise DirectionError(side, f"must be given, one of: {shown}", possible)

    def _pairs(self, sources: Iterable[str]) -> Iterator[tuple[str, str]]:
        for source in sources:
            for target in self.targets:
                if self.is_one or source != target:
                    yield source, target

    @functools.cached_property
    def _sources(self) -> frozenset[str]:
        return frozenset({"", *(code.lower() for code in self.sources)})

    @functools.cached_property
    def _targets(self) -> frozenset[str]:
        return frozenset({"", *(code.lower() for code in self.targets)})

    @functools.cached_property
    def _written(self) -> dict[Side, dict[str, str]]:
        """The codes by themselves in lower case: `find_language` would look at each of them."""
        return {
            "source": {code.lower(): code for code in reversed(self.sources)},
            "target": {code.lower(): code for code in reversed(self.targets)},
        }
