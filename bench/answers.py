"""Records what a server answers to 3,000 mixed requests, to compare it with another commit.

    python -m bench.answers /tmp/before.jsonl
    python -m bench.answers /tmp/after.jsonl --against /tmp/before.jsonl

Requests are generated (`answers_requests.py`): plain texts, documents of all formats, glossaries, a
memory, a pivot, streams, and what is refused. Each answer is recorded whole, without times. Of a
stream, the joined deltas are. The second command lists the requests that are answered otherwise,
and ends with 1 if there are any.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import grpc
import typer
from google.protobuf.json_format import MessageToDict, ParseDict

from bench.answers_requests import MEMORY, Request, Requests, memory_pairs
from bench.server_process import ROOT, RunningProcess, server_process
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub

_AT_ONCE = 8
_MESSAGE_BYTES = 64 * 2**20
_SHOWN = 20
_RETRY_SECONDS = 0.5


def main(
    output: Annotated[Path, typer.Argument(help="The file for the answers (JSON lines).")],
    against: Annotated[Path | None, typer.Option(help="Answers to compare with.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of requests.")] = 3000,
    lines: Annotated[
        Path | None, typer.Option(help="A file with sentences to mix in, one a line.")
    ] = None,
    seed: int = 1,
) -> None:
    """Record the answers to generated requests; compare them with recorded ones."""
    own = lines.read_text(encoding="utf-8").splitlines() if lines else []
    made = Requests(seed, own).make(count)
    with tempfile.TemporaryDirectory() as directory, _server(Path(directory)) as server:
        answers = asyncio.run(_answers(server.address, made))
    rows: list[dict[str, Any]] = [
        {"kind": request.kind, "request": request.message, "answer": answer}
        for request, answer in zip(made, answers, strict=True)
    ]
    output.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    outcomes = Counter((row["kind"], row["answer"].get("error", "OK")[:30]) for row in rows)
    for (kind, outcome), number in sorted(outcomes.items()):
        typer.echo(f"{kind:10} {outcome:30} {number}")
    if against is not None:
        with against.open(encoding="utf-8") as recorded:  # not splitlines: texts have U+2028
            before = [json.loads(line) for line in recorded]
        raise typer.Exit(int(_tell_differences(before, rows)))


def _server(directory: Path) -> AbstractContextManager[RunningProcess]:
    bundles = ("pretrained/en-de", "optional/de-en", "optional/en-fr")
    options = [f"--model={ROOT / 'model' / bundle}" for bundle in bundles]
    ports = ["--port=0", "--metrics-port=0"]
    return server_process(
        ["-m", "cli.main", "serve", *options, *ports, f"--memory-store={directory / 'memories'}"]
    )


async def _answers(address: str, made: Sequence[Request]) -> list[dict[str, Any]]:
    """The answers, in the order of the requests."""
    options = [("grpc.max_receive_message_length", _MESSAGE_BYTES)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stub = TranslationServiceStub(channel)
        await stub.CreateMemory(pb.CreateMemoryRequest(name=MEMORY))
        for source, target in memory_pairs():
            await stub.AddTranslation(
                pb.AddTranslationRequest(
                    memory=MEMORY,
                    source_text=source,
                    translated_text=target,
                    source_language_code="en",
                    target_language_code="de",
                )
            )
        room = asyncio.Semaphore(_AT_ONCE)

        async def answer(request: Request) -> dict[str, Any]:
            async with room:
                return await _answer(stub, request)

        return await asyncio.gather(*map(answer, made))


async def _answer(stub: Any, request: Request) -> dict[str, Any]:
    """The answer, or the error; a call that is refused for load is made again."""
    message = ParseDict(request.message, getattr(pb, f"{request.method}Request")())
    while True:
        try:
            return await _called(getattr(stub, request.method)(message))
        except grpc.aio.AioRpcError as exc:
            if exc.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                trailers = dict(exc.trailing_metadata() or ())
                details = bytes(trailers.get("grpc-status-details-bin", b"")).hex()
                return {"error": f"{exc.code().name}: {exc.details()}", "details": details}
        await asyncio.sleep(_RETRY_SECONDS)


async def _called(call: Any) -> dict[str, Any]:
    """The response of a call, or all that its stream has."""
    if not hasattr(call, "__aiter__"):
        return dict(_without_times(MessageToDict(await call)))
    text, summary = "", dict[str, Any]()
    async for event in call:
        text += event.delta.text
        summary = MessageToDict(event.summary) if event.HasField("summary") else summary
    return {"text": text, "summary": _without_times(summary)}


def _without_times(answer: Any) -> Any:
    if isinstance(answer, Mapping):
        return {key: _without_times(value) for key, value in answer.items() if key != "timing"}
    return [_without_times(each) for each in answer] if isinstance(answer, list) else answer


def _tell_differences(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Print the rows that differ; returns whether any do.

    Raises:
        typer.BadParameter: the requests differ.
    """
    if [row["request"] for row in before] != [row["request"] for row in after]:
        raise typer.BadParameter("other requests were recorded: another seed, count or --lines")
    found = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    for old, new in found[:_SHOWN]:
        texts = [json.dumps(row["answer"], ensure_ascii=False, indent=1) for row in (old, new)]
        typer.echo(f"\n{old['kind']}: {json.dumps(old['request'], ensure_ascii=False)[:2000]}")
        first, second = (text.splitlines() for text in texts)
        typer.echo("\n".join(difflib.unified_diff(first, second, n=0, lineterm="")))
    counts = Counter(old["kind"] for old, _ in found)
    typer.echo(f"\n{len(found)} of {len(after)} answers differ: {dict(counts)}")
    return bool(found)


if __name__ == "__main__":
    typer.run(main)
