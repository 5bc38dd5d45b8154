"""Training in bfloat16: the schedule, the loss, and the links that a head learns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model.bundle.config import AlignmentHead
from model.gpu.batches import MixedBatches
from model.gpu.training import Guidance, TimedSchedule, links_by, reversed_links, train
from model.network.layers import AttentionWeights
from model.network.transformer import Transformer
from model.training.optimization import SmoothedLoss
from tests.factories import random_model, tiny_config
from tests.unit.model.gpu.small import (
    BOS,
    PAD,
    fresh_network,
    random_corpus,
    shifted_corpus,
    store,
)

ENDLESS = TimedSchedule(seconds=1e6, rate=3e-3, matrix_rate=1e-2, cooldown=0.5, warmup=5)
HEAD = AlignmentHead(layer=1, head=1)


def toy_batches() -> MixedBatches:
    tokens = store()
    corpus = shifted_corpus(tokens, 200)
    limits = {"batch_tokens": 256, "longest": 12, "seed": 1}
    return MixedBatches(tokens, [(1.0, [corpus])], temperature=1.0, **limits)


def random_pair() -> tuple[Tensor, Tensor]:
    """Source ids [B, S], and target ids [B, T] with BOS."""
    tokens = store()
    corpus = random_corpus(tokens, "some", 12, longest=9, seed=1)
    starts = torch.full((12, 1), BOS)
    return tokens.padded(corpus.sources), torch.cat((starts, tokens.padded(corpus.targets)), dim=1)


@torch.no_grad()
def loss_of(model: Transformer, batches: list[tuple[Tensor, Tensor]]) -> float:
    """The loss of a target token, in nats."""
    measure = SmoothedLoss(model, 0.0)
    total = tokens = 0.0
    for sources, targets in batches:
        starts = targets.new_full((len(targets), 1), BOS)
        total += float(measure(sources, torch.cat((starts, targets), dim=1)))
        tokens += float((targets != PAD).sum())
    return total / tokens


@given(update=st.integers(1, 10_000), elapsed=st.floats(0, 200), cooldown=st.floats(0, 1))
def test_rates_rise_with_updates_and_fall_with_time(
    update: int, elapsed: float, cooldown: float
) -> None:
    schedule = TimedSchedule(100.0, 1e-3, 1e-2, cooldown, warmup=300)
    factor = schedule.factor(update, elapsed)
    assert 0.0 <= factor <= 1.0
    assert factor <= update / 300
    assert factor <= schedule.factor(update + 1, elapsed)
    assert factor >= schedule.factor(update, elapsed + 1.0)


def test_the_schedule_is_warmup_plateau_and_cooldown() -> None:
    schedule = TimedSchedule(100.0, 1e-3, 1e-2, cooldown=0.4, warmup=300)
    points = [(30, 1.0), (300, 10.0), (900, 60.0), (900, 80.0), (900, 90.0), (900, 100.0)]
    found = [schedule.factor(*point) for point in points]
    assert found == pytest.approx([0.1, 1.0, 1.0, 0.5, 0.25, 0.0])
    assert TimedSchedule(100.0, 1e-3, 1e-2, cooldown=0.0).factor(900, 99.0) == 1.0


def test_training_lowers_the_loss_of_a_network_whose_weights_stay_in_float32() -> None:
    model = fresh_network()
    batches = list(itertools.islice(toy_batches(), 90))
    before = loss_of(model.eval(), batches[:5])
    done = train(model, batches, ENDLESS, max_updates=80)
    assert done.updates == 80
    read = [int((targets != PAD).sum()) for _, targets in batches[:80]]
    assert done.target_tokens == sum(read)
    assert loss_of(model.eval(), batches[80:]) < 0.5 * before
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    for weight, narrow in zip(model.parameters(), done.worker.parameters(), strict=True):
        assert torch.equal(weight.bfloat16(), narrow)


def test_training_ends_with_its_batches_and_its_seconds() -> None:
    batches = list(itertools.islice(toy_batches(), 3))
    assert train(fresh_network(), batches, ENDLESS).updates == 3
    model = fresh_network()
    weights = [weight.clone() for weight in model.parameters()]
    over = TimedSchedule(seconds=1e-9, rate=1.0, matrix_rate=1.0, cooldown=0.5)
    assert train(model, batches, over)[1:] == (0, 0)
    assert all(map(torch.equal, weights, model.parameters()))


def test_a_loss_that_is_not_finite_ends_the_training() -> None:
    batches = list(itertools.islice(toy_batches(), 5))
    broken = fresh_network()
    with torch.no_grad():
        next(broken.parameters()).fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="the loss is nan at update 1"):
        train(broken, batches, ENDLESS)


def test_a_loss_that_becomes_infinite_is_found_at_the_end() -> None:
    batches = list(itertools.islice(toy_batches(), 5))
    rates = TimedSchedule(1e6, rate=1e30, matrix_rate=1e30, cooldown=0.0, warmup=1)
    with pytest.raises(FloatingPointError, match="at update 5"):
        train(fresh_network(), batches, rates)


def test_a_head_learns_links() -> None:
    """Each target token is linked with the source's token of the same place."""

    def links_of(sources: Tensor, targets: Tensor) -> Tensor:
        asked.append(targets.shape[1])
        real = (targets[:, 1:] != PAD)[:, :, None] & (sources != PAD)[:, None]
        return real & torch.eye(real.shape[1], real.shape[2], dtype=torch.bool)

    def on_links(guidance: Guidance) -> float:
        model = fresh_network()
        train(model, itertools.islice(toy_batches(), 40), ENDLESS, guidance=guidance)
        sources, targets = next(iter(toy_batches()))
        with_start = torch.cat((targets.new_full((len(targets), 1), BOS), targets), dim=1)
        wanted, record, mask = links_of(sources, with_start), AttentionWeights(), sources != PAD
        with torch.no_grad():
            memory = model.eval().encode(sources, mask)
            model.decode_hidden(with_start[:, :-1], memory, mask, record)
        return float(record.decoder_cross[HEAD.layer][:, HEAD.head][wanted].mean())

    asked: list[int] = []
    taught = on_links(Guidance(HEAD, 1.0, links_of, after=0.0))
    assert len(asked) == 41
    asked.clear()
    later = on_links(Guidance(HEAD, 1.0, links_of, after=1.0))
    assert len(asked) == 1  # only of the measurement
    assert taught > later + 0.2


def test_links_are_where_most_of_a_heads_attention_is() -> None:
    model = random_model(tiny_config())
    sources, targets = random_pair()
    found = links_by(model, HEAD)(sources, targets)
    assert found.shape == (len(sources), targets.shape[1] - 1, sources.shape[1])
    assert found.dtype == torch.bool
    assert int(found.sum(dim=-1).max()) == 1
    assert not found[targets[:, 1:] == PAD].any()
    assert not found.transpose(1, 2)[sources == PAD].any()
    record, mask = AttentionWeights(), sources != PAD
    with torch.no_grad():
        model.decode_hidden(targets[:, :-1], model.encode(sources, mask), mask, record)
    attention = record.decoder_cross[HEAD.layer][:, HEAD.head]
    for row, step, place in np.argwhere(found.numpy()):
        assert attention[row, step, place] > 0.5


def test_reversed_links_are_the_transposed_ones_of_the_other_direction() -> None:
    links_of = links_by(random_model(tiny_config()), HEAD)
    sources, targets = random_pair()
    found = reversed_links(links_of, BOS)(sources, targets)
    assert found.shape == (len(sources), targets.shape[1] - 1, sources.shape[1])
    starts = torch.full((len(sources), 1), BOS)
    there = links_of(targets[:, 1:], torch.cat((starts, sources), dim=1))
    assert torch.equal(found, there.mT)
    assert found.any()
