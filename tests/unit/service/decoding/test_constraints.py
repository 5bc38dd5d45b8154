"""Token rules give the same results as rules over the whole vocabulary."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.evaluation.search import BeamOptions, ReferenceBeam
from model.evaluation.search import ReferenceHypothesis as Expected
from model.evaluation.search import _Running as Running
from service.decoding.sampling import draw, uniform
from service.domain.requests import GenerationResult, SearchOptions
from service.domain.sampling import Sampling
from service.errors import InvalidArgumentError
from tests.fake_runner import moody
from tests.searches import EOS, moody_runner, run_all, search

VOCAB_SIZE = 32
MAX_TOKENS = 20


def run(
    wanted: Sequence[tuple[tuple[int, ...], SearchOptions]], max_rows: int
) -> list[GenerationResult]:
    """The results of all searches, in a batch of at most `max_rows` rows."""
    scheduler, runner = moody_runner(max_rows, VOCAB_SIZE, MAX_TOKENS)
    jobs = [
        search(source, options, options.max_new_tokens or MAX_TOKENS) for source, options in wanted
    ]
    scheduler.add(jobs)
    results = run_all(scheduler, runner)
    return [results[job.id] for job in jobs]


def ruled(
    source: tuple[int, ...], tokens: tuple[int, ...], options: SearchOptions
) -> tuple[list[int], list[float]]:
    """The whole vocabulary under the rules, best first, and its scores."""
    logits = moody(VOCAB_SIZE)((*source, EOS), tokens)
    scores = logits.astype(np.float64) - np.float64(np.float32(np.logaddexp.reduce(logits)))
    size = options.no_repeat_ngram_size
    seen = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
    for token in range(VOCAB_SIZE):
        if token in tokens:
            scores[token] *= options.repetition_penalty
        repeats = size and (*tokens[len(tokens) - size + 1 :], token) in seen
        too_early = token == EOS and len(tokens) < options.min_new_tokens
        if token in options.suppressed_ids or too_early or repeats:
            scores[token] = -np.inf
    by_logit = np.argsort(-logits, kind="stable")
    order = by_logit[np.argsort(-scores[by_logit], kind="stable")]
    return order.tolist(), scores[order].tolist()


def reference(source: tuple[int, ...], options: SearchOptions) -> list[Expected]:
    fields = dataclasses.asdict(options)
    names = [field.name for field in dataclasses.fields(BeamOptions)]
    beam = ReferenceBeam(
        BeamOptions(**{name: fields[name] for name in names}),
        options.max_new_tokens or MAX_TOKENS,
        EOS,
    )
    prefix = options.prefix_ids
    beam.running = [Running(prefix, (0.0,) * len(prefix), 0.0)]
    width = 2 * options.beam_size
    while not beam.done:
        both = [ruled(source, running.token_ids, options) for running in beam.running]
        beam.advance([ids[:width] for ids, _ in both], [scores[:width] for _, scores in both])
    return beam.finished[: options.num_hypotheses]


@st.composite
def constrained(draw: st.DrawFn) -> SearchOptions:
    beam_size = draw(st.integers(2, 4))
    return SearchOptions(
        max_new_tokens=draw(st.integers(8, MAX_TOKENS)),
        beam_size=beam_size,
        num_hypotheses=beam_size,
        min_new_tokens=draw(st.integers(0, 12)),
        suppressed_ids=tuple(draw(st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=6))),
        repetition_penalty=draw(st.sampled_from([1.0, 1.2, 2.0])),
        no_repeat_ngram_size=draw(st.sampled_from([0, 2, 3])),
        prefix_ids=tuple(draw(st.lists(st.integers(4, VOCAB_SIZE - 1), max_size=5))),
    )


@st.composite
def led(draw: st.DrawFn) -> SearchOptions:
    """A prefix and no other rule: after it, the search is an ordinary one."""
    prefix = draw(st.lists(st.integers(4, VOCAB_SIZE - 1), min_size=1, max_size=5))
    beam_size = draw(st.integers(2, 4))
    return SearchOptions(MAX_TOKENS, beam_size, beam_size, prefix_ids=tuple(prefix))


sources = st.lists(st.integers(10, 99), max_size=4).map(tuple)


@given(
    st.lists(
        st.tuples(sources, constrained() | led() | st.just(SearchOptions())), min_size=1, max_size=5
    )
)
@settings(max_examples=200)
def test_beams_under_rules_are_the_reference_s_over_the_whole_vocabulary(
    wanted: list[tuple[tuple[int, ...], SearchOptions]],
) -> None:
    for (source, options), result in zip(wanted, run(wanted, max_rows=6), strict=True):
        if options.beam_size == 1:  # rules do not affect neighbours
            [alone] = run([(source, options)], max_rows=1)
            assert result.hypotheses == alone.hypotheses
            continue
        expected = reference(source, options)
        assert [(tuple(h.token_ids), h.score, h.ended) for h in result.hypotheses] == [
            (e.token_ids, e.score, e.finished) for e in expected
        ]


@given(sources, constrained() | led())
@settings(max_examples=200)
def test_greedy_under_rules(source: tuple[int, ...], options: SearchOptions) -> None:
    options = dataclasses.replace(options, beam_size=1, num_hypotheses=1)
    [result] = run([(source, options)], max_rows=1)
    tokens = options.prefix_ids
    while len(tokens) < (options.max_new_tokens or 0):
        best = ruled(source, tokens, options)[0][0]
        tokens = (*tokens, best)
        if best == EOS:
            break
    assert tuple(result.token_ids) == tuple(token for token in tokens if token != EOS)
    # Reported is what the model thinks, whatever the rules make of it.
    [hypothesis] = result.hypotheses
    for position, found in enumerate(hypothesis.token_log_probabilities):
        ids, scores = ruled(source, tokens[:position], SearchOptions())
        forced = position < len(options.prefix_ids)
        assert found == (0.0 if forced else scores[ids.index(tokens[position])])


def test_where_everything_is_forbidden_the_text_ends() -> None:
    options = SearchOptions(suppressed_ids=tuple(range(VOCAB_SIZE)))
    beam = dataclasses.replace(options, beam_size=3, prefix_ids=(7, 8))
    greedy_result, beam_result = run([((10,), options), ((11,), beam)], max_rows=4)
    assert greedy_result.token_ids == []
    assert beam_result.token_ids == [7, 8]


# --- sampling -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(sources, st.integers(0, 5)), min_size=2, max_size=8))
@settings(max_examples=100)
def test_a_sampled_text_depends_on_its_seed_and_not_on_its_neighbours(
    wanted: list[tuple[tuple[int, ...], int]],
) -> None:
    requests = [(source, SearchOptions(sampling=Sampling(seed=seed))) for source, seed in wanted]
    beam = ((50,), SearchOptions(beam_size=2))
    together = run([*requests, beam], max_rows=3)
    for request, result in zip(requests, together, strict=False):
        assert run([request], max_rows=1)[0].hypotheses == result.hypotheses


def test_sentences_of_one_seed_are_drawn_independently() -> None:
    sampling = Sampling(temperature=0.7, seed=5)
    sources = [(10, number, 3) for number in range(2000)]
    seeded = [sampling.for_sentence(source) for source in sources]
    assert seeded == [sampling.for_sentence(source) for source in sources]
    assert all(one == dataclasses.replace(sampling, seed=one.seed) for one in seeded)
    assert all(one.seed is not None for one in seeded)
    for position in (0, 1, 7):
        draws = np.array([uniform(one.seed or 0, position) for one in seeded])
        shares = np.histogram(draws, bins=10, range=(0.0, 1.0))[0] / len(draws)
        assert shares == pytest.approx(0.1, abs=0.03)
        assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.1
    others = [dataclasses.replace(sampling, seed=6).for_sentence(source) for source in sources]
    assert not {one.seed for one in seeded} & {other.seed for other in others}


def test_a_cold_or_narrow_sample_is_the_greedy_search() -> None:
    [greedy] = run([((10, 11), SearchOptions(min_new_tokens=5))], max_rows=1)
    for sampling in (Sampling(top_k=1), Sampling(top_p=1e-9), Sampling(top_k=1, seed=7)):
        options = SearchOptions(min_new_tokens=5, sampling=sampling)
        assert run([((10, 11), options)], max_rows=1)[0].hypotheses == greedy.hypotheses


def test_draws_have_the_probabilities_that_they_should() -> None:
    scores = np.log([0.5, 0.25, 0.15, 0.1])
    num_draws = 20_000

    def shares(**options: float) -> list[float]:
        drawn = [
            draw(scores, Sampling(seed=seed, **options), 3)  # type: ignore[arg-type]
            for seed in range(num_draws)
        ]
        return [drawn.count(i) / num_draws for i in range(4)]

    assert shares() == pytest.approx([0.5, 0.25, 0.15, 0.1], abs=0.02)
    assert shares(top_k=2) == pytest.approx([2 / 3, 1 / 3, 0, 0], abs=0.02)
    assert shares(top_p=0.7) == pytest.approx([2 / 3, 1 / 3, 0, 0], abs=0.02)
    squared = np.array([0.5, 0.25, 0.15, 0.1]) ** 2
    assert shares(temperature=0.5) == pytest.approx(squared / squared.sum(), abs=0.02)


def test_uniform_numbers() -> None:
    # SplitMix64 from the seed 1234567, as published with it.
    first = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [uniform(1234567, i) for i in range(3)] == [(n >> 11) * 2.0**-53 for n in first]
    assert all(0.0 <= uniform(2**64 - 1, i) < 1.0 for i in range(100))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"top_k": 257}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": float("nan")}, "top_p"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_sampling_is_named(options: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Sampling(**options)  # type: ignore[arg-type]
    assert caught.value.field == field
