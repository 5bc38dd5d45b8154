"""CTranslate2 in half precision on the same GPU, if it loads there."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from bench.gpu.models import MeasuredModel
from bench.gpu.plan import GpuPlan
from bench.gpu.results import PointLog
from bench.peers.conversion import convert, vocabulary
from model.sessions import Device


def measure(
    model: MeasuredModel, device: str, plan: GpuPlan, results: PointLog, directory: Path
) -> None:
    """Translate whole batches, its fastest mode: sorted by length, finished rows removed."""
    translator: Any = None
    for beam_size in plan.beams:
        for rows in plan.concurrency:
            point = {"model": model.name, "beam": beam_size, "rows": rows}
            if not results.wants(**point):
                continue
            try:
                translator = translator or _load(model, device, directory)
                results.add(**point, **_measure(translator, model, plan, beam_size, rows))
            except Exception as exc:  # it has no CUDA 13 build, say: that is a result, too
                results.add(**point, error=f"{type(exc).__name__}: {str(exc)[:300]}")


def _load(model: MeasuredModel, device: str, directory: Path) -> Any:
    import ctranslate2

    converted = directory / model.name / "ctranslate2"
    if not converted.exists():
        partial = converted.with_name("ctranslate2.partial")
        shutil.rmtree(partial, ignore_errors=True)
        convert(model.config, model.arrays(), partial)
        partial.replace(converted)
    where = Device.parse(device)
    return ctranslate2.Translator(
        str(converted),
        device=where.kind,
        device_index=where.index,
        compute_type="float16" if where.kind == "cuda" else "float32",
    )


def _measure(
    translator: Any, model: MeasuredModel, plan: GpuPlan, beam_size: int, rows: int
) -> dict[str, Any]:
    names = vocabulary(model.config)
    sources = [[names[token_id] for token_id in source] for source in model.sources()]

    def translate(texts: list[list[str]]) -> int:
        found = translator.translate_batch(
            texts, beam_size=beam_size, max_batch_size=rows, max_input_length=0,
            min_decoding_length=0, return_end_token=True,
        )  # fmt: skip
        return sum(len(result.hypotheses[0]) for result in found)

    translate(sources[:rows])
    texts = tokens = 0
    start = time.perf_counter()
    while time.perf_counter() - start < plan.seconds:
        # Several batches at once, so that it can sort; and as many as there are texts for.
        some = [sources[(texts + i) % len(sources)] for i in range(8 * rows)]
        tokens += translate(some)
        texts += len(some)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "texts_per_second": texts / seconds,
        "tokens_per_second": tokens / seconds,
        "compute_type": str(translator.compute_type),
    }
