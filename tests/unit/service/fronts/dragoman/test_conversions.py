"""Every search option of the contract reaches the domain's options and has a client argument."""

import dataclasses
import operator
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dragoman
from dragoman.v1 import translation_pb2 as pb
from service.domain.attention import AttentionKind, AttentionLabel, AttentionShape
from service.domain.requests import Priority
from service.fronts.dragoman.conversions import attention_options_of, attention_response, options_of
from service.translation.attention import AttentionResult
from service.translation.options import TranslateOptions

CONTRACT = Path(__file__).parents[5] / "proto/dragoman/v1/translation.proto"
# A valid value of each field that is not the default, and the domain's value.
SEARCH: dict[str, tuple[Any, Any]] = {
    "beam_size": (3, 3),
    "length_penalty": (0.5, 0.5),
    "length_penalty_kind": (pb.LENGTH_PENALTY_KIND_GNMT, "gnmt"),
    "early_stopping": (pb.EARLY_STOPPING_NEVER, "never"),
    "min_new_tokens": (2, 2),
    "suppressed_tokens": (["a", "b"], ("a", "b")),
    "repetition_penalty": (1.5, 1.5),
    "no_repeat_ngram_size": (2, 2),
    "exact": (True, True),
    "target_prefix": ("Da", "Da"),
}
SAMPLING: dict[str, float] = {"temperature": 0.5, "top_k": 7, "top_p": 0.25, "seed": 5}
# Text that the translator turns into token ids, outside of the engine's options.
AS_TEXT = {"suppressed_tokens", "target_prefix"}


def test_every_field_of_the_contract_is_listed_here_and_in_the_client() -> None:
    search = {field.name for field in pb.SearchOptions.DESCRIPTOR.fields}
    assert search == {*SEARCH, "sampling"}
    assert search == {field.name for field in dataclasses.fields(dragoman.Search)}
    sampling = {field.name for field in pb.Sampling.DESCRIPTOR.fields}
    assert sampling == set(SAMPLING)
    assert sampling == {field.name for field in dataclasses.fields(dragoman.Sampling)}


@pytest.mark.parametrize("name", SEARCH)
def test_a_search_option_reaches_the_domain(name: str) -> None:
    given, expected = SEARCH[name]
    search = pb.SearchOptions(**{name: given})
    options, default = options_of(pb.TranslateOptions(search=search)), TranslateOptions()
    found, unset = (one if name in AS_TEXT else one.search for one in (options, default))
    assert getattr(found, name) == expected != getattr(unset, name)


@pytest.mark.parametrize("name", [*SEARCH, "sampling"])
def test_the_first_model_of_two_has_the_options_that_the_contract_lists(name: str) -> None:
    described = " ".join(CONTRACT.read_text().split())
    [listed] = re.findall("Both searches have .*? All other options", described)
    given, _ = SEARCH.get(name, (pb.Sampling(), None))
    options = options_of(pb.TranslateOptions(search=pb.SearchOptions(**{name: given})))
    is_shared = options.into_pivot("en") != TranslateOptions()
    assert is_shared == (f"`{name}`" in listed), (
        "TranslateOptions.into_pivot and the contract differ"
    )


@pytest.mark.parametrize("name", SAMPLING)
def test_a_sampling_option_reaches_the_domain(name: str) -> None:
    def sampling(message: pb.Sampling) -> Any:
        search = pb.SearchOptions(sampling=message)
        return options_of(pb.TranslateOptions(search=search)).search.sampling

    found = getattr(sampling(pb.Sampling(**{name: SAMPLING[name]})), name)  # type: ignore[arg-type]
    assert found == SAMPLING[name] != getattr(sampling(pb.Sampling()), name)


def test_each_option_of_attention_reaches_the_domain() -> None:
    given: dict[str, tuple[Any, str, Any]] = {
        "max_new_tokens": (7, "translation.max_new_tokens", 7),
        "search": (pb.SearchOptions(beam_size=3), "translation.search.beam_size", 3),
        "priority": (pb.PRIORITY_HIGH, "translation.priority", Priority.HIGH),
        "kinds": (
            [pb.ATTENTION_KIND_DECODER_SELF, pb.ATTENTION_KIND_CROSS],
            "kinds",
            (AttentionKind.DECODER_SELF, AttentionKind.CROSS),
        ),
        "layers": ([1, 0], "layers", (1, 0)),
        "heads": ([2], "heads", (2,)),
        "average_layers": (True, "average_layers", True),
        "average_heads": (True, "average_heads", True),
    }
    assert set(given) == {field.name for field in pb.AttentionOptions.DESCRIPTOR.fields}
    for name, (value, path, expected) in given.items():
        found = operator.attrgetter(path)(
            attention_options_of(pb.AttentionOptions(**{name: value}))
        )
        default = operator.attrgetter(path)(attention_options_of(pb.AttentionOptions()))
        assert found == expected != default


@pytest.mark.parametrize("size", [(1, 1), (3, 31), (5, 200), (700, 800)])
async def test_weights_arrive_as_they_are(size: tuple[int, int]) -> None:
    matrices = [
        (AttentionLabel(AttentionKind.CROSS, layer), array)
        for layer, array in enumerate(np.random.default_rng(0).random((2, *size), np.float32))
    ]
    shape = AttentionShape(2, 2, 1, bos_id=2)
    result = AttentionResult("", None, shape, [], [], [], [], [], matrices)
    sent = (await attention_response(result, "m")).SerializeToString()
    found = pb.AttentionResponse.FromString(sent).matrices
    assert [(each.layer, each.num_rows, each.num_columns) for each in found] == [
        (layer, *size) for layer in range(2)
    ]
    for each, (_, array) in zip(found, matrices, strict=True):
        assert np.array(each.weights, np.float32).tobytes() == array.tobytes()
