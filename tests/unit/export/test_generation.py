"""A published generation configuration becomes a bundle's default search, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory
from export.huggingface.generation import default_search, forbids_pad
from service.decoding.requests import SearchOptions

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
        ("renormalize_logits", True),
        ("num_beams", "four"),
        ("max_length", [1]),
    ],
)
def test_what_would_be_another_search_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ExportError, match=name if value not in ("four", [1]) else "generation"):
        default_search(directory(**{name: value}))
