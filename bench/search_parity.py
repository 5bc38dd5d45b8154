"""Compares the engine's searches with the PyTorch reference search on real sentences.

    python -m bench.search_parity --checkpoint model/checkpoints/en-de --sentences valid.en

The checkpoint is exported to fp32 and int8. The engine searches each sentence in process, alone
and with 64 rows filled, greedily and with a beam of four; `model.evaluation.search` searches it in
PyTorch. For fp32 the token sequences must be the same for 99.8 % of the sentences, and every
difference must be a near-tie that rounding decides:

- greedy: the log-probabilities of the first tokens that differ are within 1e-4 in the reference;
- beam: the reference scores the two translations within 1e-4 of each other.

int8 has other weights, so its differences are counted, not judged. But alone and at load its
results must be the same to the last bit, as fp32's.
"""

from __future__ import annotations

import asyncio
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.recompute import store
from bench.submission import submit_many

# onnxruntime reports usage to its makers unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from model.bundle.bundle import Bundle
    from model.evaluation.search import ReferenceHypothesis
    from model.network.transformer import Transformer
    from service.domain.requests import GenerationResult

NAME = "search-parity"
NEAR_TIE = 1e-4
LEAST_IDENTICAL = 0.998
LOAD_ROWS = 64
BEAM_SIZES = (1, 4)
_REFERENCE_BATCH = 50

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class SearchComparison:
    """One way to search with one bundle, compared with the reference.

    Attributes:
        precision, beam_size, rows: the way; `rows` sentences or hypotheses at the same time.
        num_sentences: compared.
        differences: the sentences (numbers from 0) with other tokens, and the distance of the two
            in nats: see the module's description. None of int8.
    """

    precision: str
    beam_size: int
    rows: int
    num_sentences: int
    differences: Sequence[tuple[int, float | None]]

    @property
    def share_identical(self) -> float:
        """The share of sentences without a difference, 0 to 1."""
        return 1.0 - len(self.differences) / self.num_sentences

    @property
    def holds(self) -> bool:
        """Whether the requirement for fp32 holds."""
        return self.share_identical >= LEAST_IDENTICAL and all(
            gap is not None and gap < NEAR_TIE for _, gap in self.differences
        )


@dataclass(frozen=True)
class SearchParity:
    """The figures of the report.

    Attributes:
        what: the checkpoint and the sentences.
        versions: of what computed.
        same_bits: whether results alone and at load were the same to the last bit.
        comparisons: one for each way to search.
    """

    what: str
    versions: str
    same_bits: bool
    comparisons: Sequence[SearchComparison]

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> SearchParity:
        """The figures that `to_dict` gave."""
        comparisons = [SearchComparison(**one) for one in fields["comparisons"]]
        return cls(fields["what"], fields["versions"], fields["same_bits"], comparisons)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"benchmark": NAME, **asdict(self)}

    @property
    def holds(self) -> bool:
        """Whether all requirements hold."""
        return self.same_bits and all(c.holds for c in self.comparisons if c.precision == "fp32")


async def search_with_engine(
    bundle: Bundle, sources: Sequence[Tokens], beam_size: int, rows: int
) -> list[GenerationResult]:
    """Search every source, with as many at a time as fit into `rows`."""
    from service.domain.requests import GenerationRequest, SearchOptions
    from service.engine.engine import Engine, EngineConfig
    from service.runtime.cpu.runner import OnnxRunner

    options = SearchOptions(beam_size=beam_size)
    engine = Engine(
        OnnxRunner(bundle, max_rows=rows, intra_op_threads=1),
        EngineConfig(
            bos_id=bundle.config.bos_id,
            eos_id=bundle.config.eos_id,
            max_waiting=2 * beam_size * len(sources),
        ),
    )
    await engine.start()
    try:
        generations = submit_many(engine, [GenerationRequest(s, options) for s in sources])
        return [await generation.result() for generation in generations]
    finally:
        await engine.stop()


def search_with_reference(
    model: Transformer, sources: Sequence[Tokens], beam_size: int
) -> list[ReferenceHypothesis]:
    """The reference's best hypothesis of every source, sentences of like lengths together."""
    import torch

    from model.evaluation.search import BeamOptions, beam_search, greedy_search

    found: dict[int, ReferenceHypothesis] = {}
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for start in range(0, len(order), _REFERENCE_BATCH):
        some = order[start : start + _REFERENCE_BATCH]
        width = max(len(sources[index]) for index in some)
        source_ids = torch.full((len(some), width), model.config.pad_id)
        for row, index in enumerate(some):
            source_ids[row, : len(sources[index])] = torch.tensor(sources[index])
        if beam_size == 1:
            best = greedy_search(model, source_ids)
        else:
            options = BeamOptions(beam_size)
            best = [first for first, *_ in beam_search(model, source_ids, options=options)]
        found.update(zip(some, best, strict=True))
    return [found[index] for index in range(len(sources))]


def gap_between(
    model: Transformer, source: Tokens, found: Tokens, expected: Tokens, beam_size: int
) -> float:
    """The distance of two translations of a source in the reference: see `SearchComparison`.

    Args:
        model: the reference's.
        source: EOS included.
        found: the engine's tokens, EOS included if it came to it.
        expected: the reference's hypotheses, in the same order.
        beam_size: width of the beam; 1 is greedy.
    """
    scores = [_log_probabilities(model, source, tokens) for tokens in (found, expected)]
    if beam_size > 1:  # the default length penalty: the mean over the tokens
        first, second = (sum(each) / len(each) for each in scores)
        return abs(first - second)
    pairs = enumerate(zip(found, expected, strict=False))
    position = next(position for position, (one, other) in pairs if one != other)
    return abs(scores[0][position] - scores[1][position])


def compare(
    model: Transformer,
    bundle: Bundle,
    sources: Sequence[Tokens],
    results: Sequence[GenerationResult],
    reference: Sequence[ReferenceHypothesis],
    beam_size: int,
    rows: int,
) -> SearchComparison:
    """The sentences that differ, and by how much."""
    eos = model.config.eos_id
    differences = []
    for index, (source, result, wanted) in enumerate(zip(sources, results, reference, strict=True)):
        [best] = result.hypotheses
        found = (*best.token_ids, *([eos] if best.ended else []))
        expected = (*wanted.token_ids, *([eos] if wanted.finished else []))
        if found == expected:
            continue
        gap = None
        if bundle.precision == "fp32":
            gap = gap_between(model, source, found, expected, beam_size)
        differences.append((index, gap))
    return SearchComparison(bundle.precision, beam_size, rows, len(sources), differences)


def _log_probabilities(model: Transformer, source: Tokens, target: Tokens) -> list[float]:
    """The log-probability of each token of a target, by the reference in one pass."""
    import torch

    with torch.inference_mode():
        fed = torch.tensor([[model.config.bos_id, *target[:-1]]])
        logits = model(torch.tensor([source]), fed)[0].double()
        chosen: list[float] = logits.log_softmax(-1)[range(len(target)), list(target)].tolist()
    return chosen


def measure(
    model: Transformer,
    bundle: Bundle,
    sources: Sequence[Tokens],
    references: Mapping[int, Sequence[ReferenceHypothesis]],
) -> tuple[list[SearchComparison], bool]:
    """Compare every way to search with one bundle.

    Args:
        model: the reference's.
        bundle: what the engine runs.
        sources: EOS included.
        references: results of the reference by beam size, the same for every precision.

    Returns:
        The comparisons, and whether results alone and at load were the same to the last bit.
    """
    comparisons = []
    same_bits = True
    for beam_size, reference in references.items():
        hypotheses = []
        for rows in (beam_size, LOAD_ROWS):
            results = asyncio.run(search_with_engine(bundle, sources, beam_size, rows))
            hypotheses.append([result.hypotheses for result in results])
            comparisons.append(compare(model, bundle, sources, results, reference, beam_size, rows))
        same_bits = same_bits and hypotheses[0] == hypotheses[1]
    return comparisons, same_bits


def main(
    checkpoint: Annotated[Path, typer.Option(help="What the bundles are made from.")],
    sentences: Annotated[Path, typer.Option(help="Source sentences, one a line.")],
    limit: Annotated[int, typer.Option(help="Take the first so many.", min=1)] = 1000,
    output: Annotated[
        Path | None, typer.Option(help="A directory for report.md and summary.json.")
    ] = None,
) -> None:
    """Compare the engine's searches with the reference's; exit status 1 if fp32 differs."""
    from export.bundle_writer import ExportOptions
    from export.exporter import export_checkpoint
    from model.bundle.bundle import Bundle
    from model.network.checkpoint import load_checkpoint

    loaded = load_checkpoint(checkpoint)
    model, tokenizer = loaded.model.eval(), loaded.tokenizer
    lines = sentences.read_text(encoding="utf-8").splitlines()
    texts = [line for line in lines if line.strip()][:limit]
    sources = [(*tokenizer.encode(text), tokenizer.eos_id) for text in texts]
    references = {size: search_with_reference(model, sources, size) for size in BEAM_SIZES}
    comparisons: list[SearchComparison] = []
    same_bits = True
    with tempfile.TemporaryDirectory() as folder:
        for precision in ("fp32", "int8"):
            directory = Path(folder) / precision
            export_checkpoint(checkpoint, directory, ExportOptions(precision))
            found, same = measure(model, Bundle.load(directory), sources, references)
            comparisons += found
            same_bits = same_bits and same
    import onnxruntime
    import torch

    versions = (
        f"ONNX Runtime {onnxruntime.__version__}, PyTorch {torch.__version__}, "
        f"{platform.machine()}, {platform.system()}; one thread"
    )
    parity = SearchParity(f"{checkpoint.name}, {sentences.name}", versions, same_bits, comparisons)
    typer.echo(render(parity))
    if output is not None:
        store(output, parity.to_dict())
    if not parity.holds:
        raise typer.Exit(1)


def files(summary: Mapping[str, Any]) -> dict[str, str]:
    """The files of the report, by name."""
    return {"report.md": render(SearchParity.from_dict(summary))}


def render(parity: SearchParity) -> str:
    """The comparisons as a Markdown table."""
    lines = [
        f"# The engine's searches against the reference's: {parity.what}",
        "",
        "| bundle | search | rows | sentences | same tokens | different | largest gap |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for c in parity.comparisons:
        search = "greedy" if c.beam_size == 1 else f"beam {c.beam_size}"
        gap = max((gap for _, gap in c.differences if gap is not None), default=0.0)
        lines.append(
            f"| {c.precision} | {search} | {c.rows} | {c.num_sentences:,} "
            f"| {c.share_identical:.1%} | {len(c.differences)} "
            f"| {f'{gap:.1g}' if c.precision == 'fp32' else 'not judged'} |"
        )
    fp32 = [c for c in parity.comparisons if c.precision == "fp32"]
    return "\n".join(
        [
            *lines,
            "",
            f"Promised of fp32: the same tokens for {LEAST_IDENTICAL:.1%} of the sentences, every "
            f"other one a near-tie (gap under {NEAR_TIE:g}): "
            f"{'kept' if all(c.holds for c in fp32) else 'BROKEN'}.",
            "Alone and at load, tokens and log-probabilities are "
            f"{'the same to the last bit' if parity.same_bits else 'NOT THE SAME'}.",
            "",
            f"{parity.versions}.",
            "",
        ]
    )


if __name__ == "__main__":
    typer.run(main)
