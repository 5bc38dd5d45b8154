"""The loads at which a peer is better than Dragoman: named at each load, and counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.suite.cells import Cell, find
from bench.suite.points import OWN, PEER

_FEW = 3
_SAME_RATE = 1.05  # chance makes two runs at one rate differ by as much


def render(cells: Sequence[Cell]) -> list[str]:
    """Every loss in throughput, latency, refusals or memory, one a line."""
    lines = []
    for cell in cells:
        own = find(cells, cell.load, OWN)
        if own is None or cell is own:
            continue
        load, peer = cell.load, cell.system
        rate, theirs = own.median("tokens_per_second"), cell.median("tokens_per_second")
        if _more_tokens(own, cell) and rate and theirs:
            lines.append(f"- {load}: {peer} writes {theirs / rate:.2f} times our tokens")
        for percentile in (50.0, 90.0, 99.0):
            mine, other = own.latency.at(percentile), cell.latency.at(percentile)
            if mine is not None and other is not None and other < mine:
                lines.append(f"- {load}: {peer}'s p{percentile:g} is {other / mine:.2f} of ours")
        if cell.failed_share < own.failed_share:
            lines.append(
                f"- {load}: {own.failed_share:.1%} of our requests fail or are refused, "
                f"{cell.failed_share:.1%} of {peer}'s"
            )
        used, less = own.median("memory_bytes"), cell.median("memory_bytes")
        if used is not None and less is not None and less < used:
            lines.append(f"- {load}: {peer} takes {less / used:.2f} of our memory")
    return lines or ["Nowhere in this report."]


def summary(models: Mapping[str, Sequence[Cell]]) -> list[str]:
    """The number of loads at which CTranslate2 is better, with their names if they are few."""
    lines = []
    for what, loses in _LOSSES.items():
        known, num_lost, where = 0, 0, []
        for model, cells in models.items():
            compared = [(own.load, loses(own, peer)) for own, peer in pairs(cells)]
            counted = [(load, is_loss) for load, is_loss in compared if is_loss is not None]
            lost = [load for load, is_loss in counted if is_loss]
            known += len(counted)
            num_lost += len(lost)
            if lost:
                few = len(lost) <= _FEW
                named = ", ".join(lost) if few else f"{len(lost)} of {len(counted)}"
                where.append(f"{model} {named}")
        if known:
            at = f": {'; '.join(where)}" if where else ""
            lines.append(f"- {what}: CTranslate2 is better at {num_lost} of {known} loads{at}.")
    return lines


def pairs(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """The cells of Dragoman and CTranslate2 of each load that has both."""
    both = ((find(cells, c.load, OWN), c) for c in cells if c.system == PEER)
    return [(own, peer) for own, peer in both if own is not None]


def _is_less(theirs: float | None, ours: float | None) -> bool | None:
    return None if ours is None or theirs is None else theirs < ours


def _more_tokens(own: Cell, peer: Cell) -> bool | None:
    """Whether the peer writes more tokens; in an open loop, by more than chance explains."""
    ours, theirs = own.median("tokens_per_second"), peer.median("tokens_per_second")
    tolerated = 1.0 if own.load.startswith("closed") else _SAME_RATE
    return _is_less(None if ours is None else ours * tolerated, theirs)


def _shorter(percentile: float) -> Callable[[Cell, Cell], bool | None]:
    return lambda own, peer: _is_less(peer.latency.at(percentile), own.latency.at(percentile))


_LOSSES: dict[str, Callable[[Cell, Cell], bool | None]] = {
    "Tokens a second": _more_tokens,
    "Median latency": _shorter(50.0),
    "p90": _shorter(90.0),
    "p99": _shorter(99.0),
    "Requests that fail or are refused": lambda own, peer: peer.failed_share < own.failed_share,
    "Memory": lambda own, peer: _is_less(peer.median("memory_bytes"), own.median("memory_bytes")),
}
