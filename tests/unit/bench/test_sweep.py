from __future__ import annotations

from bench.suite.sweep import (
    Round,
    Settings,
    Sweep,
    distinct,
    one_isa_each,
    sweep_settings,
    with_every_isa,
    workers_and_threads,
)
from model.bundle.processor import num_usable_cores

ALL = sweep_settings((8, 16, 32, 64), (0.0, 2.0, 5.0), ("", "AVX512"), num_cores=2)
SWEEP = Sweep(ALL, (Round(1.0, 0.5, 4), Round(2.0, 0.5, 2), Round(4.0, 1.0, 1)))


def play(sweep: Sweep, worth: dict[int, float], most_in_flight: int | None) -> Settings:
    """The winner if each setting scores as `worth` says, by its place; others 0."""
    candidates = sweep.candidates(most_in_flight)
    for number in range(len(sweep.rounds)):
        scored = [(worth.get(ALL.index(dict(one)), 0.0), one) for one in candidates]
        candidates = sweep.next_candidates(number, scored, most_in_flight)
    assert len(candidates) == 1
    return candidates[0]


def test_sweeps_hold_every_combination() -> None:
    assert len(ALL) == len({tuple(sorted(one.items())) for one in ALL}) == 2 * 4 * 3 * 2


def test_every_combination_is_tried_with_one_instruction_set() -> None:
    first = one_isa_each(ALL)
    rest = {tuple(v for k, v in one.items() if k != "isa") for one in ALL}
    assert {tuple(v for k, v in one.items() if k != "isa") for one in first} == rest
    assert len(first) == len(ALL) // 2
    assert sum("isa" in one for one in first) == len(first) // 2


def test_the_best_setting_wins_whichever_it_is() -> None:
    for place in range(len(ALL)):
        # The sibling with the other instruction set is a little worse, as in reality.
        sibling = place + 1 if place % 2 == 0 else place - 1
        assert play(SWEEP, {place: 2.0, sibling: 1.9}, None) == ALL[place]


def test_batches_larger_than_what_can_wait_are_one_setting() -> None:
    for users, batches in ((1, {8}), (8, {8}), (9, {8, 16}), (64, {8, 16, 32, 64})):
        assert {one["max_batch"] for one in distinct(ALL, users)} == batches
    assert distinct(ALL, 1000) == list(ALL)
    assert play(SWEEP, {0: 1.0, 1: 2.0}, 1) == ALL[1]


def test_chosen_ones_go_on_with_every_instruction_set_once() -> None:
    assert with_every_isa([ALL[3], ALL[2], ALL[0]], ALL) == [ALL[2], ALL[3], ALL[0], ALL[1]]


def test_workers_and_threads_take_every_core() -> None:
    assert workers_and_threads(1) == [(1, 1)]
    assert workers_and_threads(2) == [(2, 1), (1, 2)]
    assert workers_and_threads(12) == [(12, 1), (6, 2), (4, 3), (3, 4), (2, 6), (1, 12)]
    settings = sweep_settings((8,), (0.0,), ("",))
    assert {one["inter_threads"] * one["intra_threads"] for one in settings} == {num_usable_cores()}
