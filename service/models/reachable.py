"""The languages that models translate into, each model alone or two through a third language.

This runs on the event loop. So that it stays quick with hundreds of languages, sources with the
same targets are looked at once, and sets of languages are the bits of integers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from model.bundle.directions import Directions
from service.models.routing_rules import TranslatingModel

PivotGroup = tuple[tuple[str, ...], tuple[str, ...], str]
"""Sources, targets, and the language between each source and each other target."""


@dataclass(frozen=True)
class _Targets:
    """Targets of sources that have the same ones.

    Attributes:
        direct: targets of single models, in the models' order; a source may be among them.
        through: pivot languages, each with the bits of the targets that it adds.
    """

    direct: Sequence[str]
    through: Sequence[tuple[str, int]]


class Reachable:
    """The languages that models translate into.

    Args:
        pivots: languages that may be pivots, the preferred one first.
    """

    def __init__(self, models: Iterable[TranslatingModel], pivots: Sequence[str]) -> None:
        of_source: dict[str, list[Directions]] = {}
        for model in models:
            for source in model.directions.sources:
                of_source.setdefault(source, []).append(model.directions)
        unions: dict[tuple[int, ...], dict[str, None]] = {}
        direct: dict[str, dict[str, None]] = {}
        for source, known in of_source.items():
            key = tuple(map(id, known))
            if key not in unions:
                unions[key] = dict.fromkeys(itertools.chain(*(each.targets for each in known)))
            direct[source] = unions[key]
        self._codes = list(dict.fromkeys(itertools.chain(*unions.values())))
        self._own = self._own_bits(of_source)
        self._targets = self._grouped(direct, pivots)

    def _own_bits(self, of_source: dict[str, list[Directions]]) -> dict[str, int]:
        """The bits of each source's own code, which it is not translated into."""
        spelled: dict[str, int] = {}
        for number, code in enumerate(self._codes):
            spelled[code.lower()] = spelled.get(code.lower(), 0) | 1 << number
        return {
            # One direction can lead from a language to itself.
            source: 0 if any(k.is_one and k.fits(source, source) for k in known) else bits
            for source, known in of_source.items()
            for bits in [spelled.get(source.lower(), 0)]
        }

    def _grouped(
        self, direct: dict[str, dict[str, None]], pivots: Sequence[str]
    ) -> dict[str, _Targets]:
        bits = {code: 1 << number for number, code in enumerate(self._codes)}
        of_union = {id(each): sum(map(bits.__getitem__, each)) for each in direct.values()}
        masks = {source: of_union[id(targets)] for source, targets in direct.items()}
        possible = [(p, bits[p], masks[p]) for p in pivots if p in bits and p in masks]
        everything = (1 << len(self._codes)) - 1
        groups: dict[int, _Targets] = {}
        for source, mask in masks.items():
            if mask in groups:
                continue
            missing, through = everything & ~mask, []
            for pivot, bit, its_mask in possible:
                if mask & bit and (added := missing & its_mask):
                    through.append((pivot, added))
                    missing &= ~added
            groups[mask] = _Targets(list(direct[source]), through)
        return {source: groups[mask] for source, mask in masks.items()}

    def targets(self) -> dict[str, list[str]]:
        """The targets of each source, those of single models first."""
        whole: dict[int, list[str]] = {}
        found = {}
        for source, targets in self._targets.items():
            if id(targets) not in whole:
                added = sum(mask for _, mask in targets.through)
                whole[id(targets)] = [*targets.direct, *self._named(added)]
            found[source] = whole[id(targets)].copy()
            for own in self._named(self._own[source]):
                if own in found[source]:
                    found[source].remove(own)
        return found

    def pivot_groups(self) -> list[PivotGroup]:
        """Directions that only two models translate, by their targets and pivot."""
        sources: dict[tuple[int, str], list[str]] = {}
        for source, targets in self._targets.items():
            others = ~self._own[source]
            for pivot, mask in targets.through:
                if mask & others:
                    sources.setdefault((mask, pivot), []).append(source)
        return [
            (tuple(from_), tuple(self._named(mask)), pivot)
            for (mask, pivot), from_ in sources.items()
        ]

    def _named(self, mask: int) -> Iterator[str]:
        while mask:
            lowest = mask & -mask
            yield self._codes[lowest.bit_length() - 1]
            mask ^= lowest
