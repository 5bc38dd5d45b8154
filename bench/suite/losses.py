"""Where a peer is better than we are: a report says so at each load, and counts the loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.suite.cells import Cell, average, find
from bench.suite.points import OWN, PEER

_FEW = 3
_SAME_RATE = 1.05  # chance makes two runs at one rate differ by as much


def render(cells: Sequence[Cell]) -> list[str]:
    """Where a peer is better than we are: in throughput, latency, refusals or memory."""
    lines = []
    ours = {cell.load: cell for cell in cells if cell.system == OWN}
    for cell in cells:
        own = ours.get(cell.load)
        if own is None or cell is own:
            continue
        if _more_tokens(own, cell):
            rate, theirs = (
                average(s.target_tokens_per_second for s in c.summaries) for c in (own, cell)
            )
            if rate and theirs:
                lines.append(
                    f"- {cell.load}: {cell.system} writes {theirs / rate:.2f} times our tokens"
                )
        for percentile in (50.0, 90.0, 99.0):
            mine, other = (c.latency.at(percentile) for c in (own, cell))
            if mine is not None and other is not None and other < mine:
                lines.append(
                    f"- {cell.load}: {cell.system}'s p{percentile:g} is {other / mine:.2f} of ours"
                )
        if cell.failed_share < own.failed_share:
            lines.append(
                f"- {cell.load}: {own.failed_share:.1%} of our requests fail or are refused, "
                f"{cell.failed_share:.1%} of {cell.system}'s"
            )
        used, less = (average(s.max_memory_bytes for s in c.servers) for c in (own, cell))
        if used is not None and less is not None and less < used:
            lines.append(f"- {cell.load}: {cell.system} takes {less / used:.2f} of our memory")
    return lines or ["Nowhere in this report."]


def summary(models: Mapping[str, Sequence[Cell]]) -> list[str]:
    """At how many loads CTranslate2 is better than we are, and at which if they are few."""
    lines = []
    for what, loses in _LOSSES.items():
        known, num_lost, where = 0, 0, []
        for model, cells in models.items():
            verdicts = [(own.load, loses(own, peer)) for own, peer in pairs(cells)]
            told = [(load, verdict) for load, verdict in verdicts if verdict is not None]
            lost = [load for load, verdict in told if verdict]
            known += len(told)
            num_lost += len(lost)
            if lost:
                few = len(lost) <= _FEW
                named = ", ".join(lost) if few else f"{len(lost)} of {len(told)}"
                where.append(f"{model} {named}")
        if known:
            at = f": {'; '.join(where)}" if where else ""
            lines.append(f"- {what}: CTranslate2 is better at {num_lost} of {known} loads{at}.")
    return lines


def pairs(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Ours and CTranslate2's of each load that has both."""
    both = ((find(cells, c.load, OWN), c) for c in cells if c.system == PEER)
    return [(own, peer) for own, peer in both if own is not None]


def _more_tokens(own: Cell, peer: Cell) -> bool | None:
    """Of closed loops; in an open one the rate is given, unless it is more than can be done."""
    ours, theirs = (average(s.target_tokens_per_second for s in c.summaries) for c in (own, peer))
    if ours is None or theirs is None:
        return None
    return theirs > ours * (1.0 if own.load.startswith("closed") else _SAME_RATE)


def _shorter(percentile: float) -> Callable[[Cell, Cell], bool | None]:
    def is_shorter(own: Cell, peer: Cell) -> bool | None:
        ours, theirs = (c.latency.at(percentile) for c in (own, peer))
        return None if ours is None or theirs is None else theirs < ours

    return is_shorter


def _less_memory(own: Cell, peer: Cell) -> bool | None:
    ours, theirs = (average(s.max_memory_bytes for s in c.servers) for c in (own, peer))
    return None if ours is None or theirs is None else theirs < ours


_LOSSES: dict[str, Callable[[Cell, Cell], bool | None]] = {
    "Tokens a second": _more_tokens,
    "Median latency": _shorter(50.0),
    "p90": _shorter(90.0),
    "p99": _shorter(99.0),
    "Requests that fail or are refused": lambda own, peer: peer.failed_share < own.failed_share,
    "Memory": _less_memory,
}
