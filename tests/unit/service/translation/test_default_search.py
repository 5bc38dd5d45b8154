"""The search of a bundle is the default of requests, which override it field by field."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from dragoman.conversions import model_info
from dragoman.v1 import translation_pb2 as pb
from model.bundle.bundle import Bundle
from model.bundle.config import ModelConfig
from model.bundle.held_files import HeldFiles
from model.bundle.manifest import BundleCorruptError
from model.bundle.tokenizer import Tokenizer
from service.domain.plan import RunnerLimits
from service.domain.requests import SearchOptions
from service.domain.sampling import Sampling
from service.errors import InvalidArgumentError, StartupError
from service.fronts.dragoman.conversions import describe_search, options_of
from service.translation.default_search import check_rows, default_search
from service.translation.options import TranslateOptions
from tests.factories import tiny_config, tiny_tokenizer

DEFAULT = SearchOptions(
    beam_size=4,
    length_penalty=0.5,
    early_stopping="first",
    max_new_tokens=30,
    min_new_tokens=2,
    no_repeat_ngram_size=3,
    repetition_penalty=1.5,
    suppressed_ids=(7, 8),
    forced_eos=True,
    exact=True,
)
LIMITS = RunnerLimits(8, 64, 64, 8, 320)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def bundle(config: ModelConfig | None = None, **search: Any) -> Bundle:
    manifest = {
        "name": "m",
        "search": search,
        "limits": {"max_target_positions": 65},
        "tokenizer": {"start_ids": [5]},  # counts for no limit
    }
    path = Path(__file__).parent  # any directory: nothing of it is read
    return Bundle(path, manifest, config or tiny_config(), HeldFiles(path))


def searched(tokenizer: Tokenizer, max_new_tokens: int | None = None, **given: Any) -> Any:
    """The engine's options of a request with these fields."""
    message = pb.TranslateOptions(search=pb.SearchOptions(**given))
    if max_new_tokens is not None:
        message.max_new_tokens = max_new_tokens
    options = options_of(message, TranslateOptions(search=DEFAULT))
    return options.search_options(LIMITS, tokenizer)


def test_a_bundle_without_a_search_is_searched_greedily() -> None:
    assert default_search(bundle()) == SearchOptions()


def test_a_manifest_s_search() -> None:
    fields = {**dataclasses.asdict(DEFAULT), "suppressed_ids": [7, 8]}
    for name in ("num_hypotheses", "prefix_ids", "sampling", "listed_ids"):
        del fields[name]
    assert default_search(bundle(**fields)) == DEFAULT
    # Within the model's limit.
    fields["max_new_tokens"] = 511
    assert default_search(bundle(**fields)).max_new_tokens == 64


def test_a_default_that_the_request_does_not_set_gives_way(tokenizer: Tokenizer) -> None:
    short = searched(tokenizer, max_new_tokens=1)
    assert (short.min_new_tokens, short.max_new_tokens) == (1, 1)
    assert searched(tokenizer, min_new_tokens=40).max_new_tokens == 41
    assert searched(tokenizer, min_new_tokens=64).max_new_tokens == 64
    forced = searched(tokenizer, target_prefix="a " * 35)
    assert 30 <= len(forced.prefix_ids) < forced.max_new_tokens <= 64
    seven = tokenizer.id_to_piece(7)
    assert searched(tokenizer, suppressed_tokens=[seven]).suppressed_ids == (7, 8)
    with pytest.raises(InvalidArgumentError, match="min_new_tokens"):  # the client's own
        searched(tokenizer, max_new_tokens=1, min_new_tokens=2)
    for bad in (0, -1, 65):
        with pytest.raises(InvalidArgumentError, match="max_new_tokens"):
            searched(tokenizer, max_new_tokens=bad)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_dreams", 3),
        ("sampling", {}),
        ("beam_size", 0),
        ("beam_size", "4"),
        ("early_stopping", "soon"),
        ("suppressed_ids", [999_999]),
    ],
)
def test_a_bad_manifest_is_refused(name: str, value: Any) -> None:
    with pytest.raises(BundleCorruptError, match="search"):
        default_search(bundle(**{"beam_size": 1, name: value}))


def test_a_beam_needs_its_rows() -> None:
    check_rows("m", DEFAULT, dataclasses.replace(LIMITS, max_rows=4))
    with pytest.raises(StartupError, match=r"a beam of 4 .* there are 3"):
        check_rows("m", DEFAULT, dataclasses.replace(LIMITS, max_rows=3))


def test_a_request_without_options_has_the_default(tokenizer: Tokenizer) -> None:
    options = options_of(pb.TranslateOptions(), TranslateOptions(search=DEFAULT))
    assert options.search_options(LIMITS, tokenizer) == DEFAULT
    assert searched(tokenizer) == DEFAULT


def test_listed_words_are_tokens_of_the_shortlist(tokenizer: Tokenizer) -> None:
    options = TranslateOptions(listed_text="Hund Hundes")
    assert options.search_options(LIMITS, tokenizer).listed_ids == tuple(
        tokenizer.encode("Hund Hundes")
    )
    much = TranslateOptions(listed_text="Hund " * 5000).search_options(LIMITS, tokenizer)
    assert {*much.listed_ids} >= {*tokenizer.encode("Hund")}
    assert len(much.listed_ids) <= 2000


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"beam_size": 1}, 1),
        ({"length_penalty": 0.0}, 0.0),
        ({"length_penalty_kind": pb.LENGTH_PENALTY_KIND_GNMT}, "gnmt"),
        ({"early_stopping": pb.EARLY_STOPPING_HEURISTIC}, "heuristic"),
        ({"min_new_tokens": 0}, 0),
        ({"no_repeat_ngram_size": 0}, 0),
        ({"repetition_penalty": 1.0}, 1.0),
        ({"exact": False}, False),
        ({"max_new_tokens": 9}, 9),
    ],
)
def test_a_field_overrides_only_itself(
    tokenizer: Tokenizer, given: dict[str, Any], value: Any
) -> None:
    """Off included: 0, or 1 for a factor."""
    [name] = given
    assert searched(tokenizer, **given) == dataclasses.replace(DEFAULT, **{name: value})


def test_suppressed_tokens_add_up(tokenizer: Tokenizer) -> None:
    piece = tokenizer.id_to_piece(20)
    assert searched(tokenizer, suppressed_tokens=[piece]).suppressed_ids == (7, 8, 20)
    many = [tokenizer.id_to_piece(token_id) for token_id in range(10, 265)]
    with pytest.raises(
        InvalidArgumentError, match=r"257 is more than 256, .* own search takes 2"
    ) as caught:
        searched(tokenizer, suppressed_tokens=many)
    assert caught.value.field == "options.search.suppressed_tokens"
    assert len(searched(tokenizer, suppressed_tokens=many[1:]).suppressed_ids) == 256


def test_sampling_needs_no_beam(tokenizer: Tokenizer) -> None:
    found = searched(tokenizer, sampling=pb.Sampling(seed=3))
    expected = dataclasses.replace(DEFAULT, beam_size=1, sampling=Sampling(seed=3))
    assert found == expected
    with pytest.raises(InvalidArgumentError) as caught:
        searched(tokenizer, beam_size=2, sampling=pb.Sampling(seed=3))
    assert caught.value.field == "options.search.sampling"


def test_it_is_described(tokenizer: Tokenizer) -> None:
    """A default search that a client reads and sends back is unchanged."""
    message = describe_search(DEFAULT, tokenizer)
    read = model_info(pb.Model(default_search=message)).default_search
    assert (read.beam_size, read.length_penalty, read.early_stopping) == (4, 0.5, "first")
    assert (read.min_new_tokens, read.no_repeat_ngram_size, read.exact) == (2, 3, True)
    assert read.suppressed_tokens == (tokenizer.id_to_piece(7), tokenizer.id_to_piece(8))
    again = options_of(pb.TranslateOptions(search=message)).search_options(LIMITS, tokenizer)
    assert dataclasses.replace(again, max_new_tokens=30, forced_eos=True) == DEFAULT
