"""`Score` and alignments through a real server: requests, refusals, the command."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
import pytest_asyncio

from dragoman.client import Client, Search
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1 import translation_pb2_grpc
from model.bundle.bundle import Bundle
from model.bundle.tokenizer import Tokenizer
from tests.client_errors import refused, status_error_of
from tests.integration.servers import Running, done, running_bundle

# One server for all tests of this module, and so one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "A dog is running. Two men are playing!\n\n The lake."
PAIRS = [
    ("A dog is running across the green field.", "Ein Hund rennt über die grüne Wiese."),
    ("The lake.", ""),
    ("Two men.\nA woman.", "Zwei Männer.\nEine Frau."),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(bundle_path: Path) -> AsyncIterator[Running]:
    async with running_bundle(bundle_path, max_characters=500, max_request_characters=2000) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def old_server(bundle_path: Path, tmp_path: Path) -> AsyncIterator[Running]:
    """A server of an old bundle without a scoring graph."""
    old = Path(shutil.copytree(bundle_path, tmp_path / "old"))
    manifest = json.loads((old / "bundle.json").read_text(encoding="utf-8"))
    del manifest["graphs"]["scoring"], manifest["scoring"], manifest["sha256"]["scoring.onnx"]
    (old / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")
    (old / "scoring.onnx").unlink()
    async with running_bundle(old) as made:
        yield made


async def test_pairs_are_scored_in_order_and_add_up(server: Running, tokenizer: Tokenizer) -> None:
    batch = await server.client.score(PAIRS, source="en", target="de", return_tokens=True)
    assert batch.model == "tiny"
    assert batch.compute_seconds > 0.0
    assert len(batch.scores) == len(PAIRS)
    for (source, target), score in zip(PAIRS, batch.scores, strict=True):
        assert score.error is None
        assert score.num_source_tokens == len(tokenizer.encode(source))
        assert score.num_target_tokens == len(tokenizer.encode(target))
        assert score.tokens[-1].piece == "</s>"
        assert len(score.tokens) == score.num_target_tokens + 1
        total = sum(token.log_probability for token in score.tokens)
        assert score.log_probability == pytest.approx(total)
        assert score.log_probability < 0.0
        shown = "".join(target[token.start : token.end] for token in score.tokens)
        assert shown == "".join(target.split())
        assert score.alignment is None
        assert score.source_tokens == ()
    plain = await server.client.score(PAIRS)
    assert [score.log_probability for score in plain.scores] == [
        score.log_probability for score in batch.scores
    ]
    assert all(score.tokens == () for score in plain.scores)


@pytest.mark.parametrize("kind", ["hard", "soft"])
async def test_hypotheses_come_with_their_alignments(
    server: Running, tokenizer: Tokenizer, kind: str
) -> None:
    plain = await server.client.translate([TEXT], search=Search(beam_size=3), num_hypotheses=3)
    batch = await server.client.translate(
        [TEXT], search=Search(beam_size=3), num_hypotheses=3, return_alignments=kind
    )
    [translation], [unaligned] = batch.translations, plain.translations
    assert translation.text == unaligned.text  # looking on changes nothing
    assert len(translation.sentences) == 3
    for sentence in translation.sentences:
        text = sentence.source_text
        *words, end = sentence.source_tokens
        assert [token.piece for token in words] == [
            tokenizer.id_to_piece(i) for i in tokenizer.encode(text)
        ]
        assert end.piece == "</s>"
        shown = "".join(text[token.start : token.end] for token in words)
        assert shown == "".join(text.split())
        assert len(sentence.hypotheses) == 3
        for hypothesis in sentence.hypotheses:
            alignment, tokens = hypothesis.alignment, hypothesis.tokens
            assert alignment is not None
            num_words = len(tokens) - (tokens[-1].piece == "</s>")
            assert [target for _, target in alignment.links] == list(range(num_words))
            assert len(alignment.rows) == (len(tokens) if kind == "soft" else 0)
            for row in alignment.rows:
                assert sum(row) == pytest.approx(1.0, abs=1e-5)
                assert len(row) == len(words) + 1
            for source, target in alignment.links if kind == "soft" else ():
                weights = alignment.rows[target][:-1]
                assert source == weights.index(max(weights))


async def test_what_was_given_is_aligned_like_the_rest(server: Running) -> None:
    """A given beginning has log-probability 0, but is aligned with source and text."""
    search = Search(beam_size=2, target_prefix="Zwei Männer")
    [translation] = (
        await server.client.translate(["Two men."], search=search, return_alignments="soft")
    ).translations
    [hypothesis] = translation.sentences[0].hypotheses
    plain = (await server.client.translate(["Two men."], search=search)).translations[0]
    assert translation.text == hypothesis.text == plain.text
    assert translation.text.startswith("Zwei Männer")
    alignment, tokens = hypothesis.alignment, hypothesis.tokens
    assert alignment is not None
    assert tokens[0].log_probability == 0.0
    assert tokens[-1].log_probability < 0.0
    assert len(alignment.rows) == len(tokens)
    shown = [hypothesis.text[token.start : token.end] for token in tokens]
    assert "".join(shown).startswith("ZweiMänner")
    num_words = len(tokens) - (tokens[-1].piece == "</s>")
    assert [target for _, target in alignment.links] == list(range(num_words))


async def test_a_bad_pair_does_not_fail_the_others(server: Running) -> None:
    bad = [
        (("", "Ein Hund."), "pairs[1].source_text", "is blank"),
        ((" \n", "Ein Hund."), "pairs[2].source_text", "is blank"),
        (("A dog.", "Ein\0Hund"), "pairs[3].translated_text", "NUL at position 3"),
        (("w " * 200, "Ein Hund."), "pairs[4].source_text", "the model's limit is 64"),
        (("A dog.", "w " * 200), "pairs[5].translated_text", "the model's limit is 64"),
        (("A dog\ud800", "Ein Hund."), "pairs[6].source_text", "position 5 is not Unicode"),
        (("A dog.", "Ein \udfff"), "pairs[7].translated_text", "position 4 is not Unicode"),
    ]
    batch = await server.client.score([PAIRS[0], *(pair for pair, _, _ in bad), PAIRS[1]])
    first, *failed, last = batch.scores
    assert first.error is None
    assert last.error is None
    for score, (_, field, description) in zip(failed, bad, strict=True):
        assert score.error is not None
        assert score.error.code is grpc.StatusCode.INVALID_ARGUMENT
        assert score.error.field == field
        assert description in score.error.description
        assert score.log_probability == 0.0


@pytest.mark.parametrize(
    ("pairs", "field", "description"),
    [
        ([], "pairs", "at least one pair is needed"),
        ([("a", "b")] * 1025, "pairs", "1,025 pairs, the limit is 1,024"),
        ([("a", "b" * 501)], "pairs[0].translated_text", "501 characters, the limit is 500"),
        ([("a", "b"), ("\ufdfa" * 30, "b")], "pairs[1].source_text", "540 characters after norm"),
        ([("a" * 400, "b" * 400)] * 3, "pairs", "2,400 characters in all texts"),
    ],
)
async def test_what_is_too_much_is_refused(
    server: Running, pairs: list[tuple[str, str]], field: str, description: str
) -> None:
    error = await refused(server.client.score(pairs), "INVALID_ARGUMENT")
    assert error.field == field
    assert description in error.description


async def test_options_that_make_no_sense_are_refused(server: Running) -> None:
    pair = pb.ScorePair(source_text="a", translated_text="b")
    newer, nine = pb.ScoreOptions(), cast(Any, 9)
    newer.MergeFromString(b"\xf8\x01\x01")  # field 31 of some newer contract
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        for options, message in (
            (
                pb.ScoreOptions(return_alignments=cast(Any, 9)),
                "options.return_alignments: .* value 9",
            ),
            (pb.ScoreOptions(priority=nine), "options.priority: .* value 9"),
            (newer, "options: this server does not know option number 31"),
        ):
            error = await status_error_of(
                stub.Score(pb.ScoreRequest(pairs=[pair], options=options)), message
            )
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        aligned = pb.TranslateOptions(return_alignments=pb.ALIGNMENT_KIND_HARD)
        with pytest.raises(grpc.aio.AioRpcError, match=r"options.return_alignments: a stream"):
            async for _ in stub.StreamTranslate(
                pb.StreamTranslateRequest(content="a", options=aligned)
            ):
                pass
    with pytest.raises(ValueError, match="return_alignments must be one of hard, soft, not 'x'"):
        await server.client.score([("a", "b")], return_alignments="x")


async def test_a_score_that_comes_too_late_is_not_waited_for(server: Running) -> None:
    await refused(server.client.score([("a", "b")] * 1000, timeout=0.001), "DEADLINE_EXCEEDED")
    assert (await server.client.score(PAIRS)).scores[0].error is None


async def test_an_old_bundle_translates_and_says_how_it_could_score(old_server: Running) -> None:
    client = old_server.client
    assert (await client.translate([TEXT])).translations[0].error is None
    [model] = await client.list_models()
    assert not model.can_score
    for call in (client.score(PAIRS), client.translate([TEXT], return_alignments="hard")):
        await refused(call, "FAILED_PRECONDITION", "export its checkpoint again")


async def test_a_graph_that_was_written_over_fails_scores_alone(
    bundle: Bundle, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(bundle.path, tmp_path / "bundle"))
    async with running_bundle(directory) as server:
        (directory / "scoring.onnx").write_bytes(b"another graph")
        await refused(server.client.score(PAIRS), "UNAVAILABLE")
        assert (await server.client.translate([TEXT])).translations[0].error is None


async def test_the_threaded_client_scores_too(server: Running) -> None:
    def ask() -> list[float]:
        with Client(server.address, timeout=60) as client:
            return [score.log_probability for score in client.score(PAIRS).scores]

    expected = [score.log_probability for score in (await server.client.score(PAIRS)).scores]
    assert await asyncio.to_thread(ask) == expected
    assert (await server.client.list_models())[0].can_score


# --- dragoman score ------------------------------------------------------------------------------


async def run(
    server: Running, *arguments: str | Path, given: bytes = b""
) -> tuple[int, list[str], str]:
    result = await done("score", "--server", server.address, *arguments, given=given)
    return result.status, result.output.split("\n"), result.errors


async def test_the_command_reads_tabs_or_two_files(server: Running, tmp_path: Path) -> None:
    pairs = [PAIRS[0], PAIRS[1], ("Zoë.", "Die Kinder.")] * 60
    scores = (await server.client.score(pairs[:3], return_alignments="hard")).scores
    expected = [f"{score.log_probability:.6f}\t{score.num_target_tokens}" for score in scores]
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    assert await run(server, given=lines) == (0, [*expected * 60, ""], "")
    for name, texts in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        (tmp_path / name).write_text("\n".join(texts), encoding="utf-8")  # no newline at the end
    status, output, errors = await run(server, tmp_path / "en", tmp_path / "de", "--alignments")
    assert (status, errors) == (0, "")
    links = [
        " ".join(f"{source}-{target}" for source, target in score.alignment.links)
        for score in scores
        if score.alignment
    ]
    assert output[:3] == [f"{line}\t{link}" for line, link in zip(expected, links, strict=True)]
    assert len(output) == len(pairs) + 1


async def test_the_command_names_bad_lines(server: Running, tmp_path: Path) -> None:
    given = b"A dog.\tEin Hund.\nno tab\n\tx\na\tb\tc\n\xff\tx\n" + b"w " * 260 + b"\tx\nA.\tB.\n"
    status, output, errors = await run(server, given=given)
    assert status == 1
    assert [bool(line) for line in output] == [True, False, False, False, False, False, True, False]
    assert errors.splitlines() == [
        "dragoman: line 2: no tab between a text and its translation",
        "dragoman: line 3: is blank: there is nothing to compare a translation with",
        "dragoman: line 4: more than one tab",
        "dragoman: line 5: not valid UTF-8 at byte 1",
        "dragoman: line 6: 520 characters, the limit is 500",
    ]
    one, two, nowhere = (tmp_path / name for name in ("one", "two", "nowhere"))
    one.write_text("a\n")
    two.write_text("a\nb\n")
    for files, expected, message in (
        ([two, one], 1, f"{one} ends before line 2 of {two}"),
        ([one, two], 1, f"{one} ends before {two}"),
        ([one, nowhere], 1, f"{nowhere}: No such file or directory"),
        ([one], 2, "give two files, SOURCE and TARGET, or none"),
    ):
        status, _, errors = await run(server, *files)
        assert (status, errors) == (expected, f"dragoman: {message}\n")
