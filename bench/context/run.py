"""Measures whether a model translates better with the sentences before.

    dragoman serve --model model/pretrained/en-de
    python -m bench.context.run --from en --to de --output FOLDER --data DATA \
        --documents games=games/valid.en,games/valid.de,games/valid.doc

Documents in BLEU and chrF, and the test of pronouns, each sentence by sentence and with one, two
and three sentences before it, in several ways (`bench.context.methods`). Writes `report.md` and
`summary.json`.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.context.contrastive import Contrast, contrast
from bench.context.documents import DocumentSet, flat
from bench.context.methods import ContextMethods, ContextRun
from bench.context.pronouns import PronounItem, judge, pronoun_items
from bench.context.report import NAME, render
from bench.context.scores import compared
from dragoman import AsyncClient

_METHODS = ("joint", "prefix")


def main(
    output: Annotated[Path, typer.Option(help="Folder of the report.")],
    documents: Annotated[
        list[str] | None,
        typer.Option(help="NAME=SOURCE,REFERENCE[,DOCUMENTS]; may be repeated."),
    ] = None,
    pronouns_in: Annotated[
        list[str] | None,
        typer.Option(help="Likewise: sets to look for pronouns in; may be repeated."),
    ] = None,
    data: Annotated[
        Path, typer.Option(help="Folder of these files.", envvar="DRAGOMAN_DATA_ROOT")
    ] = Path(),
    server: Annotated[str, typer.Option(help="HOST:PORT.")] = "127.0.0.1:50051",
    source: Annotated[str, typer.Option("--from")] = "en",
    target: Annotated[str, typer.Option("--to")] = "de",
    counts: Annotated[str, typer.Option(help="Sentences before, separated by commas.")] = "1,2,3",
    methods: Annotated[str, typer.Option(help="Ways to translate.")] = ",".join(_METHODS),
    items: Annotated[int, typer.Option(help="Items of the test of pronouns.", min=0)] = 1440,
    distances: Annotated[str, typer.Option(help="Sentences between noun and pronoun.")] = "0,1,2",
) -> None:
    """Measure, and write the report."""
    plan = _Plan(
        documents=[DocumentSet.parse(each, data) for each in documents or ()],
        pronouns_in=[DocumentSet.parse(each, data) for each in pronouns_in or ()],
        counts=_numbers(counts),
        methods=[method for method in methods.split(",") if method],
        num_items=items,
        distances=_numbers(distances),
        languages=(source, target),
    )
    summary = {"benchmark": NAME, **asyncio.run(_measure(server, plan))}
    output.mkdir(parents=True, exist_ok=True)
    (output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    (output / "report.md").write_text(render(summary), encoding="utf-8")
    typer.echo(f"{output / 'report.md'}")


@dataclass(frozen=True)
class _Plan:
    """What to measure: the options of the command."""

    documents: list[DocumentSet]
    pronouns_in: list[DocumentSet]
    counts: list[int]
    methods: list[str]
    num_items: int
    distances: list[int]
    languages: tuple[str, str]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


async def _measure(server: str, plan: _Plan) -> dict[str, Any]:
    async with AsyncClient(server, timeout=600) as client:
        ways = ContextMethods(client, *plan.languages)
        return {
            "pronouns": [
                await _pronouns(client, ways, distance, plan) for distance in plan.distances
            ],
            "natural": [await _natural(client, each, plan) for each in plan.pronouns_in],
            "documents": [await _documents(ways, each, plan) for each in plan.documents],
        }


async def _translated(
    ways: ContextMethods, texts: list[list[str]], counts: list[int], methods: list[str]
) -> dict[str, ContextRun]:
    """The texts translated in each way, by its name."""
    runs = {"alone": await ways.alone(texts)}
    for method in methods:
        for count in counts:
            run = runs[f"{method} {count}"] = await getattr(ways, method)(texts, count)
            typer.echo(f"{method} {count}: {run.seconds:.0f} s")
    return runs


async def _documents(ways: ContextMethods, test: DocumentSet, plan: _Plan) -> dict[str, Any]:
    typer.echo(test.name)
    runs = await _translated(ways, test.sources, plan.counts, plan.methods)
    hypotheses = {name: flat(run.documents) for name, run in runs.items()}
    scores = compared(hypotheses, flat(test.references))
    return {
        "name": test.name,
        "num_documents": len(test.sources),
        "num_sentences": len(flat(test.sources)),
        "runs": {name: {**scores[name], **_cost(run)} for name, run in runs.items()},
    }


def _cost(run: ContextRun) -> dict[str, Any]:
    cost = asdict(run)
    del cost["documents"]
    return cost


async def _pronouns(
    client: AsyncClient, ways: ContextMethods, distance: int, plan: _Plan
) -> dict[str, Any]:
    """Free and contrastive, of the items made by rule; of fewer, the same at every distance."""
    items = random.Random(0).sample(pronoun_items(distance), plan.num_items)
    typer.echo(f"pronouns at distance {distance}")
    contrasts = await _contrasts(client, items, plan)
    counts = [count for count in plan.counts if count > distance]
    runs = await _translated(ways, [list(item.sources) for item in items], counts, plan.methods)
    return {
        "distance": distance,
        "num_items": len(items),
        "free": {name: asdict(judge(items, run.documents)) for name, run in runs.items()},
        "contrastive": contrasts,
    }


async def _natural(client: AsyncClient, test: DocumentSet, plan: _Plan) -> dict[str, Any]:
    """Contrastive, of the items found in text."""
    items = list(test.pronoun_items(max(plan.counts)))
    return {"name": test.name, "contrastive": await _contrasts(client, items, plan)}


async def _contrasts(
    client: AsyncClient, items: list[PronounItem], plan: _Plan
) -> dict[str, dict[str, Contrast]]:
    return {
        str(count): await contrast(client, items, count, *plan.languages)
        for count in (0, *plan.counts)
    }


if __name__ == "__main__":
    typer.run(main)
