"""`GetAttention` through a real server: requests, refusals, the command."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
import pytest_asyncio

from dragoman.client import (
    AttentionView,
    Client,
    FinishReason,
    Search,
    SourceToken,
    Token,
)
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from model.bundle.tokenizer import Tokenizer
from tests.client_errors import refused, status_error_of
from tests.factories import tiny_bundle
from tests.integration.servers import Running, done, running_bundle

# One server for all tests of this module, and so one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT, TRANSLATION = "A dog is running, isn't it?", "Ein Hund rennt, nicht?"
KINDS = ("cross", "encoder_self", "decoder_self")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(bundle_path: Path) -> AsyncIterator[Running]:
    async with running_bundle(bundle_path, max_characters=500, max_request_characters=2000) as made:
        yield made


def sizes(view: AttentionView) -> dict[str, tuple[int, int]]:
    """Rows and columns of each kind."""
    source, target = len(view.source_tokens), len(view.tokens)
    return {"cross": (target, source), "encoder_self": (source,) * 2, "decoder_self": (target,) * 2}


async def test_a_given_pair_has_every_kind_layer_and_head(
    server: Running, tokenizer: Tokenizer
) -> None:
    view = await server.client.attention(TEXT, TRANSLATION, source="en", target="de", kinds=KINDS)
    assert (view.model, view.translation) == ("tiny", TRANSLATION)
    assert view.finish_reason is FinishReason.UNSPECIFIED
    assert [token.piece for token in view.source_tokens[:-1]] == [
        tokenizer.id_to_piece(i) for i in tokenizer.encode(TEXT)
    ]
    assert view.source_tokens[-1].piece == view.tokens[-1].piece == "</s>"
    assert [token.piece for token in view.input_tokens] == [
        tokenizer.id_to_piece(tokenizer.bos_id),
        *(token.piece for token in view.tokens[:-1]),
    ]
    assert [(each.kind, each.layer, each.head) for each in view.maps] == [
        (kind, layer, head)
        for kind in KINDS
        for layer in range(2)
        for head in range(view.num_heads)
    ]
    for each in view.maps:
        rows, columns = sizes(view)[each.kind]
        assert len(each.rows) == rows
        assert all(len(row) == columns for row in each.rows)
        assert all(sum(row) == pytest.approx(1.0, abs=1e-5) for row in each.rows)
        if each.kind == "decoder_self":
            assert all(not any(row[i + 1 :]) for i, row in enumerate(each.rows))
    score = (await server.client.score([(TEXT, TRANSLATION)], return_tokens=True)).scores[0]
    for ours, theirs in zip(view.tokens, score.tokens, strict=True):
        assert ours._replace(log_probability=0.0) == theirs._replace(log_probability=0.0)
        assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-3)


async def test_words_are_those_between_spaces(server: Running) -> None:
    view = await server.client.attention(TEXT, TRANSLATION, average_layers=True, average_heads=True)
    assert [(each.kind, each.layer, each.head) for each in view.maps] == [("cross", None, None)]
    assert joined(TEXT, view.source_tokens, view.source_words) == [
        *("A", "dog", "is", "running", ",", "isn't", "it", "?", ""),
    ]
    assert joined(TRANSLATION, view.tokens, view.words) == [
        *("Ein", "Hund", "rennt", ",", "nicht", "?", ""),
    ]


def joined(text: str, tokens: Sequence[Token | SourceToken], words: Sequence[int]) -> list[str]:
    """The characters of each word."""
    found = [""] * (words[-1] + 1)
    for token, word in zip(tokens, words, strict=True):
        found[word] += text[token.start : token.end]
    return found


@pytest.mark.parametrize("beam_size", [1, 3])
async def test_a_translation_of_the_model_s_own(server: Running, beam_size: int) -> None:
    search = Search(beam_size=beam_size)
    view = await server.client.attention(TEXT, search=search, max_new_tokens=9, layers=[1])
    batch = await server.client.translate(
        [TEXT], search=search, max_new_tokens=9, split_sentences=False, return_tokens=True
    )
    [hypothesis] = batch.translations[0].sentences[0].hypotheses
    assert view.translation == hypothesis.text
    assert view.finish_reason is hypothesis.finish_reason
    assert [token.piece for token in view.tokens] == [token.piece for token in hypothesis.tokens]
    assert [each.layer for each in view.maps] == [1] * view.num_heads


async def test_what_is_refused_is_named(server: Running) -> None:
    client = server.client
    for arguments, message in (
        (("", TRANSLATION), "source_text: is blank"),
        ((" ",), "source_text: is blank: the text is empty"),
        (("w " * 260,), "source_text: 520 characters, the limit is 500"),
        (("w" * 200,), r"source_text: \d+ tokens, .* limit is"),
        (("a", "w" * 200), r"translated_text: \d+ tokens, .* limit is"),
        (("a\0",), "source_text: the character NUL at position 1"),
    ):
        await invalid(client.attention(*arguments), message)
    for options, message in (
        ({"layers": [2]}, "options.layers: there is no layer of CROSS 2: they are 0 to 1"),
        ({"heads": [-1]}, "options.heads: there is no head -1"),
        ({"heads": [0, 0]}, "options.heads: 0 is there twice"),
        ({"kinds": ["cross", "cross"]}, "options.kinds: CROSS is there twice"),
        ({"layers": [0] * 2000}, "options.layers: 2,000 are more than 1,024, the limit"),
        ({"search": Search(beam_size=0)}, "options.search.beam_size"),
        ({"max_new_tokens": 0}, "options.max_new_tokens"),
    ):
        await invalid(client.attention("a", "b", **cast(Any, options)), message)
    with pytest.raises(ValueError, match="kinds must be one of cross, encoder_self"):
        await client.attention("a", kinds=["x"])
    with pytest.raises(TypeError, match="kinds: must be a list"):
        await client.attention("a", kinds="cross")
    newer = pb.AttentionOptions()
    newer.MergeFromString(b"\xf8\x03\x01")  # field 63 of some newer contract
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        for given, message in (
            (newer, "options: this server does not know option number 63"),
            (pb.AttentionOptions(kinds=[cast(Any, 9)]), "options.kinds: .* value 9"),
        ):
            request = pb.AttentionRequest(source_text="a", options=given)
            error = await status_error_of(stub.GetAttention(request), message)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def invalid(call: Any, message: str) -> None:
    await refused(call, "INVALID_ARGUMENT", message)


async def test_too_many_weights_are_refused(tmp_path: Path) -> None:
    long = tiny_bundle(
        tmp_path / "long", max_source_positions=1100, max_target_positions=1100, num_heads=4
    )
    async with running_bundle(long.path) as server:
        text = "w" * 720  # 2 layers and 4 heads are just too many
        for translation in ("", "a"):
            call = server.client.attention(text, translation, kinds=["encoder_self"])
            await invalid(call, r"options: [\d,]+ weights .* the limit is 4,000,000: ask for fewer")
        message = "source_text: 1,052 tokens, .* of at most 1,024"
        await invalid(server.client.attention("w" * 1050, "a", heads=[0]), message)
        view = await server.client.attention(text, "a", kinds=["encoder_self"], heads=[3])
        assert [(each.layer, each.head) for each in view.maps] == [(0, 3), (1, 3)]
        view = await server.client.attention(
            text, "a", kinds=["encoder_self"], average_layers=True, average_heads=True
        )
        assert [(each.layer, each.head) for each in view.maps] == [(None, None)]
        text = "w" * 1000
        call = server.client.attention(
            text, text, kinds=KINDS, average_layers=True, average_heads=True
        )
        await invalid(call, r"options: [\d,]+ weights .* before averages; the limit is 16,777,216")


async def test_an_older_bundle_translates_and_says_how_to_export(
    bundle_path: Path, tmp_path: Path
) -> None:
    old = Path(shutil.copytree(bundle_path, tmp_path / "old"))
    manifest = json.loads((old / "bundle.json").read_text(encoding="utf-8"))
    del manifest["graphs"]["attention"], manifest["sha256"]["attention.onnx"]
    (old / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")
    (old / "attention.onnx").unlink()
    async with running_bundle(old) as server:
        assert (await server.client.translate([TEXT])).translations[0].error is None
        assert (await server.client.score([(TEXT, TRANSLATION)])).scores[0].error is None
        await refused(
            server.client.attention(TEXT), "FAILED_PRECONDITION", "export its checkpoint again"
        )


async def test_a_look_changes_no_bit_of_translations(server: Running) -> None:
    before = await server.client.translate([TEXT] * 3, num_hypotheses=1, return_tokens=True)
    await server.client.attention(TEXT, kinds=KINDS)
    after = await server.client.translate([TEXT] * 3, num_hypotheses=1, return_tokens=True)
    assert after.translations == before.translations


async def test_the_command_draws_with_a_server_and_with_a_bundle(
    server: Running, bundle_path: Path, tmp_path: Path
) -> None:
    drawings = []
    for place in (("--server", server.address), ("--bundle", bundle_path)):
        file = tmp_path / f"{place[0]}.svg"
        arguments = ("--layer", "1", "--head", "0", "--output", file)
        status, lines, errors = await run(TEXT, *arguments, *place)
        assert (status, errors) == (0, "")
        assert lines[-2:] == [f"{file}: cross attention, layer 1, head 0", ""]
        drawings.append(file.read_text(encoding="utf-8"))
    assert drawings[0] == drawings[1]
    assert "cross attention, layer 1, head 0" in drawings[0]


async def test_the_command_draws_blocks_or_says_what_is_wrong(
    server: Running,
) -> None:
    pair = (TEXT, "--translation", TRANSLATION, "--words", "--server", server.address)
    status, lines, errors = await run(*pair)
    assert (status, errors) == (0, "")
    assert lines[0] == "cross attention, mean of layers, mean of heads"
    first = {line.split()[0] for line in lines if line.strip()}
    assert {"Hund", "rennt", "</s>", "rows:"} <= first
    status, _, errors = await run(*pair, "--layer", "7")
    message = "--layer: there is no layer of CROSS 7: they are 0 to 1"
    assert status == 1
    assert errors == f"dragoman: {server.address}: INVALID_ARGUMENT: {message}\n"


async def run(*arguments: str | Path) -> tuple[int, list[str], str]:
    status, output, errors = await done("attention", *arguments)
    return status, output.split("\n"), errors


async def test_the_client_for_threads_has_the_call(server: Running) -> None:
    def call() -> AttentionView:
        with Client(server.address) as client:
            return client.attention(TEXT, TRANSLATION, heads=[1])

    ours, theirs = (
        await asyncio.to_thread(call),
        await server.client.attention(TEXT, TRANSLATION, heads=[1]),
    )
    assert ours.maps == theirs.maps
