"""A published generation configuration becomes a bundle's default search, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory
from export.huggingface.generation import (
    check_default_search,
    default_search,
    excludes_pad,
    forbids_pad,
)
from service.domain.requests import SearchOptions
from tests.factories import tiny_config

PAD, EOS = 9, 2
CONFIG = {"pad_token_id": PAD, "eos_token_id": EOS}


def directory(**generation: Any) -> ModelDirectory:
    return ModelDirectory(Path("model"), CONFIG, generation, {})


BEAMS = {"early_stopping": "heuristic", "length_penalty_kind": "power", "length_penalty": 1.0}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"beam_size": 1}),
        ({"num_beams": 4}, {"beam_size": 4, **BEAMS}),
        (
            {"num_beams": 5, "early_stopping": True, "length_penalty": 0.0},
            {"beam_size": 5, **BEAMS, "early_stopping": "first", "length_penalty": 0.0},
        ),
        ({"early_stopping": "never"}, {"beam_size": 1, **BEAMS, "early_stopping": "never"}),
        # The start token counts in lengths there.
        ({"max_length": 200}, {"beam_size": 1, "max_new_tokens": 199}),
        ({"max_length": 200, "max_new_tokens": 30}, {"beam_size": 1, "max_new_tokens": 30}),
        ({"min_length": 5}, {"beam_size": 1, "min_new_tokens": 4}),
        ({"forced_eos_token_id": EOS}, {"beam_size": 1, "forced_eos": True}),
        ({"no_repeat_ngram_size": 3}, {"beam_size": 1, "no_repeat_ngram_size": 3}),
        # Padding is in the configuration of the network.
        ({"bad_words_ids": [[PAD]]}, {"beam_size": 1}),
        (
            {"bad_words_ids": [[PAD], [7], [EOS]], "suppress_tokens": [5]},
            {"beam_size": 1, "suppressed_ids": [5, 7]},
        ),
    ],
)
def test_fields(given: dict[str, Any], expected: dict[str, Any]) -> None:
    found = default_search(directory(**given))
    assert found == expected
    SearchOptions(**found)
    assert forbids_pad(directory(**given)) == ([PAD] in given.get("bad_words_ids", []))


def test_the_token_of_a_language_counts_for_no_limit() -> None:
    found = default_search(directory(max_length=200, min_length=5), num_start=1)
    assert found == {"beam_size": 1, "max_new_tokens": 198, "min_new_tokens": 3}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("do_sample", True),
        ("num_beam_groups", 2),
        ("early_stopping", "sometimes"),
        ("forced_eos_token_id", 5),
        ("repetition_penalty", 0.5),
        ("bad_words_ids", [[3, 4]]),
        ("num_beams", "four"),
        ("max_length", [1]),
    ],
)
def test_what_would_be_another_search_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ExportError, match=name if value not in ("four", [1]) else "generation"):
        default_search(directory(**{name: value}))


def test_without_padding_the_others_share_its_probability() -> None:
    """The files of OPUS-MT, since 2023."""
    given = {"bad_words_ids": [[PAD]], "renormalize_logits": True, "forced_eos_token_id": EOS}
    assert default_search(directory(**given)) == {"beam_size": 1, "forced_eos": True}
    assert excludes_pad(directory(**given))
    assert not forbids_pad(directory(**given))
    assert not excludes_pad(directory(**{**given, "renormalize_logits": False}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bad_words_ids", [[PAD], [7]]),
        ("suppress_tokens", [7]),
        ("repetition_penalty", 1.2),
        ("no_repeat_ngram_size", 3),
        ("min_length", 5),
    ],
)
def test_other_tokens_probability_is_not_shared(name: str, value: Any) -> None:
    with pytest.raises(ExportError, match=f"renormalize_logits True .* together with {name}"):
        default_search(directory(**{name: value, "renormalize_logits": True}))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_beams", -1, "num_beams: must be at least 1, not -1"),
        ("num_beams", 10_000, "num_beams: 10000 is more than 160"),
        ("length_penalty", float("nan"), "length_penalty: must be between -50 and 50, not nan"),
        ("repetition_penalty", 1e9, "repetition_penalty: must be between 1 and 100"),
        ("no_repeat_ngram_size", -1, "no_repeat_ngram_size: must be at least 0"),
        ("no_repeat_ngram_size", 100, "no_repeat_ngram_size: 100 is more than 63"),
        ("bad_words_ids", [[10**9]], "bad_words_ids: 1000000000 is no token: there are 320"),
        ("suppress_tokens", [-1], "suppress_tokens: -1 is no token"),
        ("suppress_tokens", list(range(300)), "suppress_tokens: 300 is more than 256, the limit"),
        ("max_length", 2, "max_length: must be at least 1, not 0"),
        ("max_new_tokens", -3, "max_new_tokens: must be at least 1"),
        ("max_length", float("inf"), "generation configuration: cannot convert"),
        ("min_length", 66, "min_length: 64 is more than 63, the limit"),
        ("bad_words_ids", [5], "generation configuration"),
        ("eos_token_id", [2, 5], r"eos_token_id \[2, 5\] is not supported"),
        ("eos_token_id", 5, "eos_token_id 5 is not supported"),
    ],
)
def test_what_no_server_would_open_is_refused(name: str, value: Any, message: str) -> None:
    given, config = directory(**{name: value}), tiny_config(max_positions=64)
    with pytest.raises(ExportError, match=f"model: (its generation configuration: )?.*{message}"):
        check_default_search(given, default_search(given, num_start=1), config, num_start=1)


@pytest.mark.parametrize("eos_id", [EOS, [EOS], None])
def test_the_configuration_s_eos_is_accepted(eos_id: Any) -> None:
    given = directory(eos_token_id=eos_id, max_length=500)
    search = default_search(given)
    check_default_search(given, search, tiny_config(max_positions=64))
    assert search == {"beam_size": 1, "max_new_tokens": 499}
