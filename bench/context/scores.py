"""BLEU and chrF of several systems, and whether they differ from the first by more than chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NUM_SAMPLES = 1000


def compared(
    hypotheses: Mapping[str, Sequence[str]], references: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Scores by system, each with the probability that the first one is as good.

    Paired bootstrap resampling (Koehn, 2004), as sacreBLEU does it.

    Args:
        hypotheses: by system; the first is the baseline.
        references: one each.
    """
    import sacrebleu
    from sacrebleu.significance import PairedTest

    metrics = {"BLEU": sacrebleu.BLEU(), "chrF2": sacrebleu.CHRF()}
    systems: list[tuple[str, Sequence[str]]] = [
        (name, list(lines)) for name, lines in hypotheses.items()
    ]
    test = PairedTest(systems, metrics, [list(references)], "bs", n_samples=_NUM_SAMPLES, n_jobs=1)
    table: Any = test()[1]
    return {
        name: {
            metric: {"score": row[index].score, "p": row[index].p_value}
            for metric, row in table.items()
            if metric != "System"
        }
        for index, name in enumerate(table["System"])
    }
