"""The proof of a bundle: it says what the checkpoint says, token by token, within a tolerance.

The checkpoint's own greedy translation of every sentence is forced through the bundle's graphs.
At every position the log-probabilities of the bundle's best tokens must be near the checkpoint's,
and its best token must be the checkpoint's, unless the checkpoint itself holds the two for nearly
equal: then rounding decides. A bundle that agrees at every position translates alike, and most
sentences have to agree so. The scoring graph must give the translation's tokens the checkpoint's
log-probabilities, and look where it looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from export.probe import Probe
from export.reference import expect, in_batches, translate
from export.verdict import TOLERANCES, Proof, Tolerance, Verdict, compare
from model.bundle import Bundle
from model.evaluation import choose_search_threads
from model.transformer import Transformer

__all__ = ["SENTENCES", "TOLERANCES", "OnProgress", "Proof", "Tolerance", "prove"]

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


def prove(
    bundle: Bundle,
    model: Transformer,
    sentences: Sequence[str] = SENTENCES,
    tolerance: Tolerance | None = None,
    *,
    threads: int = 0,
    on_progress: OnProgress | None = None,
) -> Proof:
    """Compare a bundle with the model that it was made from.

    Args:
        bundle: on the CPU, whatever it is meant for.
        model: in evaluation mode.
        sentences: in the source language.
        tolerance: by default that of the bundle's precision.
        threads: of PyTorch and of ONNX Runtime; 0 measures how many are fastest.
        on_progress: called with a stage, the sentences that are done and all of them.

    Raises:
        ExportError: they differ by more than the precision's tolerance; names the sentence.
    """
    tell = on_progress or (lambda stage, done, total: None)
    tokenizer = bundle.tokenizer()
    longest = bundle.max_source_positions - 1
    sources = [
        (*ids[:longest], bundle.config.eos_id) for ids in tokenizer.encode_batch(list(sentences))
    ]
    threads = choose_search_threads(model, sources, threads)
    progress = _Progress(tell, len(sources))
    forced = translate(model, sources, progress.of("translating with the checkpoint"))
    verdict = Verdict(tolerance or TOLERANCES[bundle.precision], bundle.precision, len(sources))
    probe, layer = Probe(bundle, threads), bundle.alignment_layer
    assert layer is not None
    advance = progress.of("comparing with the bundle")
    for batch in in_batches(forced):
        for one, expected, found in zip(
            batch,
            expect(model, batch, layer, bundle.alignment_head),
            probe.run(batch),
            strict=True,
        ):
            verdict.add(sentences[one.index], compare(one, expected, found))
        advance(len(batch))
    return verdict.proof()


class _Progress:
    """Counts the sentences of each stage."""

    def __init__(self, tell: OnProgress, total: int) -> None:
        self._tell = tell
        self._total = total

    def of(self, stage: str) -> Callable[[int], None]:
        """A function that takes the number of sentences that another batch had."""
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self._tell(stage, done, self._total)

        advance(0)
        return advance
