"""The parity check of a bundle: its graphs against the PyTorch checkpoint, token by token.

The checkpoint's greedy translation of every sentence is forced through the bundle's graphs. At
every position the log-probabilities of the bundle's best tokens must be close to the checkpoint's.
The bundle's best token must be the checkpoint's, unless the checkpoint's margin between the two is
so small that rounding decides. Most sentences must agree at every position, and so have the same
translation. The scoring graph must give the checkpoint's log-probabilities and attention.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence

from export.cache_steps import CacheSteps
from export.errors import ExportError
from export.onnx_outputs import OnnxGraphs
from export.parity_check import (
    TOLERANCES,
    ParityCheck,
    ParityReport,
    SentenceDifferences,
    Tolerance,
    compare,
)
from export.rounding import rounding_differences
from export.shortlists import shortlist_agreement
from export.torch_outputs import in_batches, torch_outputs, translate
from model.bundle.bundle import Bundle
from model.bundle.languages import primary_subtag
from model.evaluation.evaluation import choose_search_threads
from model.network.transformer import Transformer

__all__ = [
    "SENTENCES",
    "TOLERANCES",
    "OnProgress",
    "ParityReport",
    "Tolerance",
    "check_parity",
    "is_english",
]

_log = logging.getLogger("dragoman.parity")

OnProgress = Callable[[str, int, int], None]

SENTENCES = (
    "A dog is running.",
    "Good morning!",
    "Where is the nearest train station?",
    "Two men are playing guitar in the street while a crowd watches.",
    "I don't think that we have met before, but your name sounds familiar to me.",
    "The meeting was moved from 3:30 to 4:15 on Tuesday, 12 May 2020.",
    "She closed the door, sat down at the table and began to read the letter.",
    "In 1969, people walked on the moon for the first time; half the world watched.",
    "Yes.",
    "If it rains tomorrow, the children will stay at home and bake a cake.",
    "\u00bfQu\u00e9? \u2013 \u201cZo\u00eb\u201d paid 12,50 \u20ac.",
    "This sentence is here because a long one finds errors that short ones hide: it goes on and "
    "on, comes to a comma, turns a corner, mentions a river, a bridge and an old mill, and only "
    "then, when nobody expects it any more, reaches its end.",
)


def is_english(language: str) -> bool:
    """Whether a BCP-47 code is that of the built-in sentences' language."""
    return primary_subtag(language) == "en"


def check_parity(
    bundle: Bundle,
    model: Transformer,
    sentences: Sequence[str] = SENTENCES,
    tolerance: Tolerance | None = None,
    *,
    cache_steps: CacheSteps | None = None,
    threads: int = 0,
    on_progress: OnProgress | None = None,
) -> ParityReport:
    """Compare a bundle with the model that it was exported from.

    Args:
        bundle: the bundle; it runs on the CPU.
        model: the network, in evaluation mode.
        tolerance: accepted differences; by default those of the bundle's precision; for int8, if
            they are exceeded, those that follow from rounding weights and caches alone
            (`export.rounding`).
        cache_steps: steps of the bundle's 8-bit caches, if it has such.
        threads: threads of PyTorch and of ONNX Runtime; 0 measures how many are fastest.
        on_progress: called with a stage, the number of finished sentences and of all sentences.

    Raises:
        ExportError: the difference exceeds the tolerance; names the sentence.
    """
    tokenizer = bundle.tokenizer()
    longest = bundle.max_source_positions - 1
    sources = [
        (*ids[:longest], bundle.config.eos_id) for ids in tokenizer.encode_batch(list(sentences))
    ]
    if not threads:
        _log.info("choosing the number of threads")
    threads = choose_search_threads(model, sources, threads)

    def counter(stage: str) -> Callable[[int], None]:
        num_done = 0

        def advance(count: int) -> None:
            nonlocal num_done
            num_done += count
            if on_progress is not None:
                on_progress(stage, num_done, len(sources))

        advance(0)
        return advance

    # Without the token of its language, a multilingual model's translation may end at once.
    start_ids = tokenizer.target.start_ids
    forced = translate(model, sources, counter("translating with the checkpoint"), start_ids)
    graphs, layer = OnnxGraphs(bundle, threads), bundle.alignment_layer
    assert layer is not None
    batches = list(in_batches(forced))
    outputs = graphs.run(batches, counter("translating with the bundle"))
    advance = counter("comparing with the bundle")
    compared: list[tuple[str, SentenceDifferences]] = []
    for batch, outcome in zip(batches, outputs, strict=True):
        expected = torch_outputs(model, batch, layer, bundle.alignment_head)
        for translation, wanted, found in zip(batch, expected, outcome, strict=True):
            compared.append((sentences[translation.index], compare(translation, wanted, found)))
        advance(len(batch))
    limits = tolerance or TOLERANCES[bundle.precision]
    listed = shortlist_agreement(bundle, ((t.source_ids, t.target_ids) for t in forced))
    try:
        report = _judge(compared, limits, bundle.precision)
        return dataclasses.replace(report, listed=listed)
    except ExportError:
        if bundle.precision != "int8" or tolerance is not None:
            raise
        _log.info("measuring what rounding changes")
        rounding = rounding_differences(model, batches, bundle.top_k, cache_steps or {})
        if not rounding.is_bearable:
            raise
        report = _judge(compared, rounding.widened(limits), bundle.precision)
        return dataclasses.replace(report, rounding_difference=rounding.mean, listed=listed)


def _judge(
    compared: Sequence[tuple[str, SentenceDifferences]], tolerance: Tolerance, precision: str
) -> ParityReport:
    check = ParityCheck(tolerance, precision, len(compared))
    for sentence, differences in compared:
        check.add(sentence, differences)
    return check.report()
