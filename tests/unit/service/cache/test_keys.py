"""The key of a request depends on everything that changes its result, and on nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from service.cache.keys import can_be_cached, request_key
from service.domain.attention import AttentionKind, AttentionSelection
from service.domain.requests import GenerationRequest, Priority, ScoringRequest, SearchOptions
from service.domain.sampling import Sampling

IDS = (5, 6, 3)
WHO_ASKS = {
    "deadline": 7.0,
    "request_id": "r",
    "client": "c",
    "client_id": "i",
    "priority": Priority.HIGH,
}
# Another valid value of each field, in options that allow it.
BEAM = SearchOptions(beam_size=4, num_hypotheses=2)
OTHER_OPTIONS: dict[str, Any] = {
    "max_new_tokens": 9,
    "beam_size": 5,
    "num_hypotheses": 3,
    "length_penalty": 0.6,
    "length_penalty_kind": "gnmt",
    "early_stopping": "never",
    "min_new_tokens": 1,
    "suppressed_ids": (4,),
    "repetition_penalty": 1.5,
    "no_repeat_ngram_size": 3,
    "prefix_ids": (8,),
    "forced_eos": True,
    "exact": True,
    "listed_ids": (9,),
}
OTHER_SAMPLING: dict[str, Any] = {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "seed": 1}
OTHER_SCORE: dict[str, Any] = {
    "source_ids": (5, 3),
    "options": SearchOptions(exact=True),
    "target_ids": (4, 3),
    "num_hidden_source": 1,
    "num_hidden_target": 1,
    "alignment": "hard",
    "selection": AttentionSelection(((AttentionKind.CROSS, (0,)),), (0,), False, False),
    "num_weights": 1,
}


def key(request: GenerationRequest, revision: str = "1", tenant: str = "") -> bytes:
    return request_key(revision, tenant, request)


def searched(options: SearchOptions) -> bytes:
    return key(GenerationRequest(IDS, options))


@pytest.mark.parametrize("name", [each.name for each in dataclasses.fields(SearchOptions)])
def test_every_option_of_a_search_changes_the_key(name: str) -> None:
    if name == "sampling":
        assert searched(SearchOptions(sampling=Sampling())) != searched(SearchOptions())
    else:
        assert name in OTHER_OPTIONS, f"add another valid value of {name} to OTHER_OPTIONS"
        other = dataclasses.replace(BEAM, **{name: OTHER_OPTIONS[name]})
        assert searched(other) != searched(BEAM)


@pytest.mark.parametrize("name", [each.name for each in dataclasses.fields(Sampling)])
def test_every_option_of_sampling_changes_the_key(name: str) -> None:
    other = dataclasses.replace(Sampling(), **{name: OTHER_SAMPLING[name]})
    options = [SearchOptions(sampling=each) for each in (Sampling(), other)]
    assert len(set(map(searched, options))) == 2


@pytest.mark.parametrize("name", [each.name for each in dataclasses.fields(ScoringRequest)])
def test_every_field_of_a_request_but_who_asks_changes_the_key(name: str) -> None:
    request = ScoringRequest(IDS, target_ids=IDS)
    other = dataclasses.replace(request, **{name: {**OTHER_SCORE, **WHO_ASKS}[name]})
    assert (key(other) != key(request)) == (name not in WHO_ASKS)


def test_an_option_that_is_added_later_changes_the_key() -> None:
    @dataclasses.dataclass(frozen=True)
    class LaterOptions(SearchOptions):
        creativity: float = 0.0

    assert searched(LaterOptions()) != searched(LaterOptions(creativity=0.1))
    assert searched(LaterOptions()) != searched(SearchOptions())


def test_revision_tenant_and_tokens_change_the_key() -> None:
    request = GenerationRequest(IDS)
    keys = {
        key(request),
        key(request, revision="2"),
        key(request, tenant="t"),
        key(GenerationRequest((5, 6, 4, 3))),
        key(GenerationRequest((5, 63))),
        key(GenerationRequest((56, 3))),
        key(ScoringRequest(IDS, target_ids=IDS)),
    }
    assert len(keys) == 7
    assert {len(each) for each in keys} == {32}


def test_an_option_without_a_canonical_form_is_noticed() -> None:
    @dataclasses.dataclass(frozen=True)
    class OddOptions(SearchOptions):
        table: object = dataclasses.field(default_factory=object)

    with pytest.raises(TypeError, match="object has no canonical form"):
        searched(OddOptions())


def test_weights_are_not_cached() -> None:
    assert can_be_cached(GenerationRequest(IDS))
    assert can_be_cached(ScoringRequest(IDS, target_ids=IDS, alignment="hard"))
    assert not can_be_cached(ScoringRequest(IDS, target_ids=IDS, alignment="soft"))
    assert not can_be_cached(ScoringRequest(IDS, selection=OTHER_SCORE["selection"]))
