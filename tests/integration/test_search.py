"""Search options in clients' requests, and their results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from dragoman.client import FinishReason, Sampling, Search
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from model.bundle.tokenizer import Tokenizer
from tests.client_errors import refused, status_error_of
from tests.integration.servers import Running, done, running_bundle, streamed

# One server for all tests of this module, and so one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "A dog is running. Two men are playing the guitar!\n\n  The children swim.\n"
SENTENCES = ["A dog is running.", "Two men are playing the guitar!", "The children swim."]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real(bundle_path: Path) -> AsyncIterator[Running]:
    """A server of the tiny random model."""
    # Not in a process of its own, which would be started for each of many tests.
    async with running_bundle(bundle_path, in_process=True) as made:
        yield made


async def test_a_beam_is_another_search(real: Running) -> None:
    client = real.client
    [greedy] = (await client.translate([TEXT])).translations
    [one] = (await client.translate([TEXT], search=Search(beam_size=1))).translations
    [beam] = (await client.translate([TEXT], search=Search(beam_size=6))).translations
    again = await client.translate([TEXT] * 3, search=Search(beam_size=6))
    assert one.text == greedy.text != beam.text
    assert {translation.text for translation in again.translations} == {beam.text}


async def test_hypotheses_come_sentence_by_sentence_best_first(
    real: Running, tokenizer: Tokenizer
) -> None:
    search = Search(beam_size=4, length_penalty=0.6, length_penalty_kind="gnmt")
    [translation] = (
        await real.client.translate([TEXT], search=search, num_hypotheses=3, return_tokens=True)
    ).translations
    assert [sentence.source_text for sentence in translation.sentences] == SENTENCES
    for sentence in translation.sentences:
        assert len({hypothesis.text for hypothesis in sentence.hypotheses}) > 1
        assert len(sentence.hypotheses) == 3
        scores = [hypothesis.score for hypothesis in sentence.hypotheses]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in sentence.hypotheses:
            length = len(hypothesis.tokens)
            total = sum(token.log_probability for token in hypothesis.tokens)
            assert hypothesis.log_probability == pytest.approx(total)
            assert hypothesis.score == pytest.approx(total / ((5 + length) / 6) ** 0.6)
            pieces = [token.piece for token in hypothesis.tokens]
            ended = hypothesis.finish_reason is FinishReason.EOS
            assert (pieces[-1] == "</s>") == ended
            ids = [tokenizer.piece_to_id(piece) for piece in pieces]
            assert tokenizer.decode(ids) == hypothesis.text
    position = 0
    for sentence in translation.sentences:  # the text is made of the best ones
        position = translation.text.index(sentence.hypotheses[0].text, position)


async def test_what_is_not_asked_for_is_not_sent(real: Running) -> None:
    [plain] = (await real.client.translate([TEXT], search=Search(beam_size=2))).translations
    assert plain.sentences == ()
    batch = await real.client.translate([TEXT], search=Search(beam_size=2), num_hypotheses=1)
    [sentence, *_] = batch.translations[0].sentences
    assert [hypothesis.tokens for hypothesis in sentence.hypotheses] == [()]
    assert batch.translations[0].text == plain.text


@pytest.mark.parametrize(
    ("search", "others", "field", "limit"),
    [
        (Search(beam_size=0), {}, "options.search.beam_size", "at least 1"),
        (Search(beam_size=65), {}, "options.search.beam_size", "64"),
        (Search(length_penalty=51.0), {}, "options.search.length_penalty", "50"),
        (Search(length_penalty=float("nan")), {}, "options.search.length_penalty", "50"),
        (Search(beam_size=2), {"num_hypotheses": 3}, "options.num_hypotheses", "2"),
        (Search(), {"num_hypotheses": 0}, "options.num_hypotheses", "1"),
        (Search(min_new_tokens=-1), {}, "options.search.min_new_tokens", "0"),
        (Search(min_new_tokens=65), {}, "options.search.min_new_tokens", "64"),
        (Search(min_new_tokens=9), {"max_new_tokens": 8}, "options.search.min_new_tokens", "8"),
        (Search(repetition_penalty=0.9), {}, "options.search.repetition_penalty", "1"),
        (Search(no_repeat_ngram_size=-1), {}, "options.search.no_repeat_ngram_size", "0"),
        (Search(suppressed_tokens=("Ünsinn",)), {}, "options.search.suppressed_tokens", "Ünsinn"),
        (Search(suppressed_tokens=("a",) * 257), {}, "options.search.suppressed_tokens", "256"),
        (Search(target_prefix="a b " * 40), {}, "options.search.target_prefix", "63"),
        (Search(target_prefix="a" * 10_001), {}, "options.search.target_prefix", "10,001 char"),
        (Search(target_prefix="\ufdfa" * 556), {}, "options.search.target_prefix", "10,008 char"),
        (Search(target_prefix="a\0"), {}, "options.search.target_prefix", "NUL"),
        (Search(sampling=Sampling(top_k=257)), {}, "options.search.sampling.top_k", "256"),
        (Search(sampling=Sampling(), beam_size=2), {}, "options.search.sampling", "beam_size"),
    ],
)
async def test_bad_options_are_named_with_their_limit(
    real: Running, search: Search, others: dict[str, Any], field: str, limit: str
) -> None:
    caught = await refused(
        real.client.translate(["A dog."], search=search, **others), "INVALID_ARGUMENT"
    )
    assert caught.field == field
    assert limit in caught.description
    [fine] = (await real.client.translate(["A dog."])).translations
    assert fine.error is None


async def tokens_of(real: Running, search: Search, text: str = TEXT) -> list[list[str]]:
    """The pieces of each sentence's translation."""
    batch = await real.client.translate([text], search=search, return_tokens=True)
    return [
        [token.piece for token in sentence.hypotheses[0].tokens]
        for sentence in batch.translations[0].sentences
    ]


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_a_translation_goes_on_from_the_given_beginning(
    real: Running, tokenizer: Tokenizer, beam_size: int
) -> None:
    prefix = "Ein Hund rennt"
    search = Search(beam_size=beam_size, target_prefix=prefix)
    [translation] = (await real.client.translate([TEXT], search=search)).translations
    assert translation.text.startswith(prefix)
    batch = await real.client.translate([TEXT], search=Search(beam_size=beam_size))
    free, first = batch.translations[0].text, translation.text
    # Only the first sentence is led.
    assert free.split("\n\n")[-1] == first.split("\n\n")[-1]
    batch = await real.client.translate([TEXT], search=search, return_tokens=True)
    tokens = batch.translations[0].sentences[0].hypotheses[0].tokens
    num_forced = len(tokenizer.encode(prefix))
    assert [token.log_probability for token in tokens[:num_forced]] == [0.0] * num_forced
    assert len(tokens) > num_forced


async def test_a_streamed_prefix_is_the_beginning_of_the_stream(real: Running) -> None:
    search = Search(target_prefix="Zwei Männer")
    [whole] = (await real.client.translate([TEXT], search=search)).translations
    assert (await streamed(real.client, TEXT, search=search))[0] == whole.text
    assert whole.text.startswith("Zwei Männer")


@pytest.mark.parametrize(("seed", "num_different"), [(7, range(1, 2)), (None, range(2, 9))])
async def test_samples_of_one_text_in_one_call(
    real: Running, seed: int | None, num_different: range
) -> None:
    search = Search(sampling=Sampling(temperature=1.5, top_k=50, seed=seed))
    translations = (await real.client.translate([TEXT] * 8, search=search)).translations
    assert len({translation.text for translation in translations}) in num_different


async def test_a_length_that_is_asked_for_is_given_beyond_the_default(real: Running) -> None:
    """The default limit for a short text is lower than the model's limit, 64."""
    plain, asked = Search(suppressed_tokens=("</s>",)), Search(min_new_tokens=63)
    [limited] = await tokens_of(real, plain, "dog")
    assert len(limited) < 60
    [tokens] = await tokens_of(real, asked, "dog")
    assert len(tokens) >= 63


async def test_a_value_of_a_newer_contract_is_refused(real: Running) -> None:
    unknown = {
        "length_penalty_kind": b"\x18\x63",  # value 99
        "options.search": b"\x90\x03\x05",  # field 50
    }
    async with grpc.aio.insecure_channel(real.address) as channel:
        stub = TranslationServiceStub(channel)
        for field, message in unknown.items():
            options = pb.TranslateOptions(search=pb.SearchOptions.FromString(message))
            error = await status_error_of(
                stub.Translate(pb.TranslateRequest(contents=["A dog."], options=options))
            )
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert field in (error.details() or "")


async def test_a_stream_takes_no_beam(real: Running) -> None:
    stream = streamed(real.client, "A dog.", search=Search(beam_size=2))
    error = await refused(stream, "INVALID_ARGUMENT")
    assert error.field == "options.search.beam_size"
    events = [event async for event in real.client.stream("A dog.", search=Search(beam_size=1))]
    assert len(events) > 1


async def test_the_command_line_searches_too(real: Running) -> None:
    lines = b"A dog is running. It runs.\n\n - The children swim. \n* 12\n"
    n_best = await command(real, "--n-best", "3", "--beam-size", "4", given=lines)
    fields = [line.split("\t") for line in n_best.split("\n")[:-1]]
    assert [number for number, _, _ in fields] == ["1"] * 3 + ["2"] + ["3"] * 3 + ["4"]
    batch = await real.client.translate(
        ["A dog is running. It runs.", "", "The children swim."],
        search=Search(beam_size=4),
        num_hypotheses=3,
        split_sentences=False,
    )
    expected = [
        [f"{hypothesis.score:.6f}", before + hypothesis.text.replace("\n", " ") + after]
        for translation, (before, after) in zip(
            batch.translations, [("", ""), ("", ""), (" - ", " ")], strict=True
        )
        for sentence in translation.sentences
        for hypothesis in sentence.hypotheses
    ]
    assert [field[1:] for field in fields if field[0] in "13"] == expected
    assert fields[-1][2] == "* 12"
    best = await command(real, "--beam-size", "4", given=lines)
    assert best.count("\n") == 4


async def command(real: Running, *arguments: str, given: bytes) -> str:
    """The output of `dragoman translate`; its lines end with "\\n".

    The random model writes other characters that `str.splitlines` divides lines at.
    """
    result = await done("translate", "--server", real.address, *arguments, given=given)
    assert result.status == 0
    return result.output
