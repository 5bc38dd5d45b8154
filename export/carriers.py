"""Measures which carriers a model copies, on the network of its bundle."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from export.carrier_sentences import numbered_templates, templates_for
from model.bundle.carriers import DEFAULT_CARRIERS, SENTINELS, Carrier
from model.bundle.manifest import edited_manifest
from model.bundle.tokenizer import Tokenizer
from model.evaluation.evaluation import translate_ids
from model.network.transformer import Transformer

NUM_SENTENCES = 200
"""Sentences in the list, if the caller does not ask for fewer."""
CANDIDATES = (
    *DEFAULT_CARRIERS,
    *(Carrier("<x%d>"), Carrier("#%d#"), Carrier("ID%d"), Carrier("AX%d"), Carrier("X%dX")),
)
"""Forms that are measured for each model, beside its sentinels: signs and capitals in turn.

Version 4 of the included model copies each of them in 95 of 100 sentences or more, but __1__ in 12.
"""
_LEAST_KEPT = 0.5
_MOST = 3  # as many as the server tries
_FIRST_SHARE = 0.1  # of the list: enough to find those that are not worth the whole
# Sentinels have no other meaning, so that they are better than others that are kept as often.
_EQUAL = 2

Translate = Callable[[Sequence[str]], Sequence[str]]

_log = logging.getLogger("dragoman.carriers")


def translate_with(model: Transformer, tokenizer: Tokenizer) -> Translate:
    """Greedy translation of sentences with a network.

    Args:
        model: the network, in evaluation mode.
        tokenizer: the tokenizer of the source language.
    """
    config = model.config
    longest = min(config.num_source_positions, config.num_target_positions) - 1

    def translate(texts: Sequence[str]) -> list[str]:
        sources = [[*tokenizer.encode(text)[:longest], config.eos_id] for text in texts]
        found = translate_ids(model, sources, start_ids=tokenizer.target.start_ids)
        return [tokenizer.target.decode(ids) for ids in found]

    return translate


def measured_carriers(
    translate: Translate,
    num_sentinels: int,
    templates: Sequence[str],
    num_sentences: int = NUM_SENTENCES,
) -> tuple[Carrier, ...]:
    """The carriers that a model copies in at least half of some sentences, best first.

    Args:
        templates: templates of its source language, from `templates_for`.
        num_sentences: sentences in which the best carriers are measured.
    """
    carriers: Sequence[Carrier] = CANDIDATES
    if num_sentinels:
        carriers = (Carrier(SENTINELS, num_sentinels), *CANDIDATES)
    for count in (math.ceil(_FIRST_SHARE * num_sentences), num_sentences):
        asked = list(numbered_templates(templates, count))
        carriers = _best([_measured(translate, carrier, asked) for carrier in carriers])[:_MOST]
    _log.info("carriers: %s", ", ".join(f"{c.form} {c.kept:.1%}" for c in carriers) or "none")
    return tuple(carriers)


def record_carriers(
    directory: Path,
    model: Transformer,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    num_sentences: int,
) -> None:
    """Measure the carriers of a model, and put them into the manifest of its bundle.

    Args:
        model: the network, in evaluation mode.
        sentences: sentences of the proof, for languages without templates.
    """
    translate = translate_with(model, tokenizer)
    with edited_manifest(directory) as manifest:
        templates = templates_for(manifest["languages"]["source"], sentences)
        found = measured_carriers(translate, len(tokenizer.sentinels), templates, num_sentences)
        manifest["carriers"] = [carrier.to_dict() for carrier in found]


def _measured(
    translate: Translate, carrier: Carrier, asked: Sequence[tuple[str, list[int]]]
) -> Carrier:
    """The carrier with the share of the sentences in which each of its tokens is kept."""
    texts, given = [], []
    for template, numbers in asked:
        tokens = [token for number in numbers if (token := carrier.written(number)) is not None]
        if len(tokens) == len(numbers):  # else there are too few sentinels
            given.append(tokens)
            texts.append(template.format(*tokens))
    kept = sum(map(_is_kept, given, translate(texts)))
    return replace(carrier, kept=round(kept / max(1, len(texts)), 3))


def _is_kept(tokens: Sequence[str], translation: str) -> bool:
    """Whether each token is in the translation exactly once, not as part of a longer word."""
    return all(
        len(re.findall(rf"(?<!\w){re.escape(token)}(?!\w)", translation)) == 1 for token in tokens
    )


def _best(carriers: Sequence[Carrier]) -> list[Carrier]:
    able = [carrier for carrier in carriers if (carrier.kept or 0.0) >= _LEAST_KEPT]
    return sorted(able, key=lambda carrier: -round(carrier.kept or 0.0, _EQUAL))
