"""Calibrates a bundle: maps the model's log-probabilities to the quality to expect.

    python -m bench.calibration --model model/pretrained/en-de --data-root CORPORA

translates sentences of held-out texts, compares them with their references, and writes the map from
one to the other into the bundle (`calibration.json`), for `confidence` in answers. Every text is a
pair of files CORPORA/*/valid.LANGUAGE that training has not seen, one sentence a line. Of the lines
that are taken, every second one is only for the report: how well the map predicts them.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from bench.quality import only
from bench.sentence_translator import sentence_translator
from model.bundle.bundle import Bundle, add_calibration
from model.bundle.calibration import Calibration, fit
from model.bundle.manifest import BundleError
from model.data.corpus import CorpusError
from service.translation.default_search import default_search
from service.translation.options import TranslateOptions

_BATCH = 500


def main(
    model: Annotated[Path, typer.Option(help="The bundle, which is changed.")],
    data_root: Annotated[
        Path,
        typer.Option(help="Folder of folders with the files of held-out text."),
    ],
    name: Annotated[str, typer.Option(help="Name of the files, without the language.")] = "valid",
    per_text: Annotated[int, typer.Option(help="Lines of each text, evenly spread.", min=2)] = 100,
    threads: Annotated[int, typer.Option(min=1)] = 1,
    write: Annotated[bool, typer.Option(help="Change the bundle, or only report.")] = True,
) -> None:
    """Measure a bundle's calibration, report how well it predicts, and put it into the bundle."""
    try:
        bundle = Bundle.load(model)
        pairs = held_out_pairs(data_root, name, bundle, per_text)
    except (BundleError, CorpusError) as exc:
        raise typer.BadParameter(str(exc)) from exc
    scores, values = asyncio.run(measure(bundle, pairs, threads))
    calibration = fit(bundle.source_language, bundle.target_language, scores[::2], values[::2])
    for line in report(calibration, scores[1::2], values[1::2]):
        typer.echo(line)
    if write:
        add_calibration(model, calibration)
        typer.echo(f"written into {model}")


def held_out_pairs(root: Path, name: str, bundle: Bundle, per_text: int) -> list[tuple[str, str]]:
    """Sentences and references of every text under `root`.

    Raises:
        CorpusError: there is no text, or one can't be read.
    """
    from model.evaluation.scoring import TestSet

    pairs: list[tuple[str, str]] = []
    for source in sorted(root.glob(f"*/{name}.{bundle.source_language}")):
        target = source.with_suffix(f".{bundle.target_language}")
        if not target.is_file():
            continue
        test = TestSet.read(source, target)
        count = len(test.sources)
        taken = sorted({count * index // per_text for index in range(per_text)})
        chosen = only(test, taken)
        pairs += zip(chosen.sources, chosen.references, strict=True)
    if not pairs:
        raise CorpusError(
            f"there is no {root}/*/{name}.{bundle.source_language} with a translation beside it"
        )
    return pairs


async def measure(
    bundle: Bundle, pairs: Sequence[tuple[str, str]], threads: int
) -> tuple[list[float], list[float]]:
    """The mean log-probability and the chrF (0 to 1) of each sentence that the model translates."""
    import sacrebleu

    chrf = sacrebleu.CHRF()
    options = TranslateOptions(
        split_sentences=False, search=default_search(bundle), num_hypotheses=1, return_tokens=True
    )
    scores, values = [], []
    async with sentence_translator(bundle.path, threads) as translator:
        translate = translator.between(bundle.source_language, bundle.target_language).translate
        for start in range(0, len(pairs), _BATCH):
            batch = pairs[start : start + _BATCH]
            results = await translate([source for source, _ in batch], options)
            for result, (_, reference) in zip(results, batch, strict=True):
                if len(result.sentences) != 1:  # copied, or too long for the model
                    continue
                [best] = result.sentences[0].hypotheses
                scores.append(statistics.fmean(token.log_probability for token in best.tokens))
                values.append(chrf.sentence_score(best.text, [reference]).score / 100)
    return scores, values


def report(calibration: Calibration, scores: Sequence[float], values: Sequence[float]) -> list[str]:
    """Lines about the sentences that the calibration was not measured on."""
    predicted = list(map(calibration.confidence, scores))
    rank = float(np.corrcoef(_ranks(scores), _ranks(values))[0, 1])
    errors = [abs(guess - value) for guess, value in zip(predicted, values, strict=True)]
    mean = statistics.fmean(values)
    plain = statistics.fmean(abs(mean - value) for value in values)
    lines = [
        f"measured on {calibration.num_sentences:,} sentences, checked on {len(values):,} others",
        f"Spearman correlation of confidence and chrF: {rank:.3f}",
        f"mean absolute error: {statistics.fmean(errors):.3f} "
        f"({plain:.3f} for a constant, {mean:.3f})",
        "confidence  sentences  mean chrF",
    ]
    for low in range(10):
        inside = [
            value
            for guess, value in zip(predicted, values, strict=True)
            if low / 10 <= guess < (low + 1) / 10 + (low == 9)
        ]
        if inside:
            lines.append(
                f"{low / 10:.1f} to {(low + 1) / 10:.1f}  {len(inside):9,}  "
                f"{statistics.fmean(inside):9.3f}"
            )
    return lines


def _ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """The rank of each value; equal values have the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])


if __name__ == "__main__":
    typer.run(main)
