"""Multilingual bundles translate each direction like `transformers`, in mixed batches.

Of each family a random model with three languages, as a bundle and in the library. `make test` has
mBART's; the others are long tests.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from dragoman.client import AsyncClient, Hypothesis, PairScore, Search, TranslationError
from export.bundle_writer import ExportOptions
from export.importer import import_directory
from model.bundle.bundle import Bundle
from model.bundle.directions import Directions
from model.bundle.piece_tokenizer import PieceTokenizer
from tests import foreign_models
from tests.client_errors import error_of, refused
from tests.integration.servers import Running, running_bundle, streamed

FAMILIES = ["mbart", *(pytest.param(f, marks=pytest.mark.long) for f in ("m2m", "nllb", "marian"))]
LANGUAGES = ("en", "de", "fr")
TEXTS = ("A dog is running.", "Two men are playing guitar in the street while a crowd watches.")
MAX_NEW_TOKENS = 20


@dataclass(frozen=True)
class Multilingual:
    """A model of the library, and the bundle that was made of its directory."""

    model: Any
    tokenizer: Any
    bundle: Bundle

    @property
    def directions(self) -> Directions:
        """Of the bundle."""
        return self.bundle.directions

    def generate(self, text: str, source: str, target: str, beam_size: int = 1) -> list[int]:
        """The library's translation of a text, without the tokens that begin it, and EOS."""
        ours, forced = self.direction(source, target), self.directions.start_ids(target)
        names = {code: ours.id_to_piece(i) for code, i in self.directions.token_ids.items()}
        if forced:  # the library itself adds the source language
            self.tokenizer.src_lang = names[source].strip("_")
            expected_id = self.tokenizer.convert_tokens_to_ids(names[target])
            assert forced == (expected_id,)
        else:
            text = f"{names[target]} {text}"
        with torch.inference_mode():
            found = self.model.generate(
                **self.tokenizer(text, return_tensors="pt"),
                num_beams=beam_size,
                max_length=None,
                max_new_tokens=MAX_NEW_TOKENS + len(forced),
                forced_bos_token_id=forced[0] if forced else None,
            )
        tokens: list[int] = found[0].tolist()[1 + len(forced) :]
        # An EOS that the limit forces is not among our tokens.
        return tokens[: self.longest(MAX_NEW_TOKENS)]

    def longest(self, limit: int) -> int:
        """Number of tokens of a translation that reaches the limit."""
        return limit - bool(self.bundle.search.get("forced_eos"))

    def direction(self, source: str, target: str) -> PieceTokenizer:
        """Our tokenizer of a direction."""
        ours, directions = self.bundle.tokenizer(), self.directions
        assert isinstance(ours, PieceTokenizer)
        return ours.between(directions.prefix_ids(source, target), directions.start_ids(target))


def make(path: Path, family: str, languages: Sequence[str] | None = LANGUAGES) -> Multilingual:
    """A model of `family`, imported with some languages, or with all that it has."""
    if family == "marian":
        codes = (">>deu<<", ">>fra<<", ">>spa<<")
        model = foreign_models.marian(path / "model", codes=codes)
    else:
        model = foreign_models.multilingual(path / "model", family)
    import_directory(path / "model", path / "bundle", ExportOptions("fp32"), languages, threads=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path / "model")
    return Multilingual(model, tokenizer, Bundle.load(path / "bundle"))


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Multilingual:
    return make(tmp_path_factory.mktemp("multilingual"), request.param)


@pytest.fixture
async def server(made: Multilingual, request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    """A server of the bundle; in long tests its model has a process of its own."""
    is_long = request.node.get_closest_marker("long") is not None
    async with running_bundle(made.bundle.path, in_process=not is_long) as real:
        yield real


async def check_translations(
    made: Multilingual,
    client: AsyncClient,
    beam_size: int,
    pairs: Iterable[tuple[str, str]] | None = None,
) -> None:
    """Check that all directions at once, each alone, and the library agree on tokens and texts.

    Args:
        made: model and bundle.
        client: client of a server with its bundle.
        beam_size: 1 is greedy search.
        pairs: directions; None for all.
    """
    cases = list(itertools.product(pairs or made.directions, TEXTS))

    async def translate(case: tuple[tuple[str, str], str]) -> Hypothesis:
        (source, target), text = case
        batch = await client.translate(
            [text],
            source=source,
            target=target,
            max_new_tokens=MAX_NEW_TOKENS,
            search=Search(beam_size=beam_size),
            return_tokens=True,
        )
        [found] = batch.translations
        ours = made.direction(source, target)
        shown = ours.encode(text)[len(ours.prefix_ids) :]
        assert found.num_source_tokens == len(shown)
        [best] = found.sentences[0].hypotheses
        ended = best.tokens[-1].piece == ours.id_to_piece(ours.eos_id)
        assert found.num_target_tokens == len(best.tokens) - ended
        return best

    together = await asyncio.gather(*map(translate, cases))
    for case, hypothesis in zip(cases, together, strict=True):
        assert await translate(case) == hypothesis  # bit for bit
        (source, target), text = case
        ours, expected = made.direction(source, target), made.generate(text, *case[0], beam_size)
        assert [token.piece for token in hypothesis.tokens] == [
            ours.id_to_piece(token_id) for token_id in expected
        ]
        assert hypothesis.text == ours.target.decode(expected)
    assert len({hypothesis.text for hypothesis in together}) > len(together) / 3


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_directions_of_one_batch(made: Multilingual, server: Running, beam_size: int) -> None:
    await check_translations(made, server.client, beam_size)


async def test_streams(made: Multilingual, server: Running) -> None:
    """A stream has the same text as `translate`, also for two sentences."""
    client = server.client
    text = " ".join(TEXTS)
    for source, target in made.directions:
        greedy = Search(beam_size=1)
        batch = await client.translate([text], source=source, target=target, search=greedy)
        [found] = batch.translations
        streamed_text, end = await streamed(client, text, source=source, target=target)
        assert streamed_text == found.text
        assert end.num_target_tokens == found.num_target_tokens


async def test_scores_and_alignments(made: Multilingual, server: Running) -> None:
    """Scores equal the library's, for the tokens after the target language's."""
    client = server.client
    text, translation = TEXTS

    async def score(source: str, target: str) -> PairScore:
        batch = await client.score(
            [(text, translation)],
            source=source,
            target=target,
            return_tokens=True,
            return_alignments="soft",
        )
        return batch.scores[0]

    pairs = list(made.directions)
    for (source, target), found in zip(
        pairs, await asyncio.gather(*(score(*pair) for pair in pairs)), strict=True
    ):
        assert await score(source, target) == found
        ours = made.direction(source, target)
        read, given = ours.encode(text), ours.target.encode(translation)
        shown, start = read[len(ours.prefix_ids) :], ours.target.start_ids
        labels = [*start, *given, ours.eos_id]
        with torch.inference_mode():
            logits = made.model(
                input_ids=torch.tensor([[*read, ours.eos_id]]),
                decoder_input_ids=torch.tensor([[ours.bos_id, *labels[:-1]]]),
            ).logits[0]
        # Padding is never chosen, but keeps its share of the probability.
        expected = logits.log_softmax(-1)[range(len(labels)), labels][len(start) :]
        assert [token.log_probability for token in found.tokens] == pytest.approx(
            expected.tolist(), abs=1e-4
        )
        assert found.log_probability == pytest.approx(float(expected.sum()), abs=1e-3)
        assert (found.num_source_tokens, found.num_target_tokens) == (len(shown), len(given))
        assert len(found.source_tokens) == len(shown) + 1
        assert found.alignment is not None
        weights = torch.tensor(found.alignment.rows)
        assert weights.shape == (len(given) + 1, len(shown) + 1)
        assert torch.allclose(weights.sum(1), torch.ones(len(given) + 1), atol=1e-5)
        assert found.alignment.links == tuple(
            (int(row.argmax()), index) for index, row in enumerate(weights[:-1, :-1])
        )


async def test_attention(made: Multilingual, server: Running) -> None:
    """Weights equal the library's, with language tokens among rows and columns.

    This covers every direction, for a given translation and for the model's own.
    """
    made.model.set_attn_implementation("eager")  # other implementations don't return weights
    for source, target in made.directions:
        for translation in (TEXTS[1], ""):
            await check_attention(made, server.client, (source, target), translation)


async def check_attention(
    made: Multilingual, client: AsyncClient, direction: tuple[str, str], translation: str
) -> None:
    text, (source, target) = TEXTS[0], direction
    view = await client.attention(
        text,
        translation,
        source=source,
        target=target,
        kinds=["cross", "encoder_self", "decoder_self"],
        search=Search(beam_size=1),
        max_new_tokens=MAX_NEW_TOKENS,
    )
    ours = made.direction(source, target)
    read = [*ours.encode(text), ours.eos_id]
    own = [*ours.target.encode(translation), ours.eos_id]
    if not translation:
        own = made.generate(text, source, target)
    chosen = [*ours.target.start_ids, *own]
    fed = [ours.bos_id, *chosen[:-1]]
    for shown, ids in (
        (view.source_tokens, read),
        (view.tokens, chosen),
        (view.input_tokens, fed),
    ):
        assert [token.piece for token in shown] == [ours.target.id_to_piece(i) for i in ids]
    with torch.inference_mode():
        outputs = made.model(
            input_ids=torch.tensor([read]),
            decoder_input_ids=torch.tensor([fed]),
            output_attentions=True,
        )
    expected = {
        "cross": outputs.cross_attentions,
        "encoder_self": outputs.encoder_attentions,
        "decoder_self": outputs.decoder_attentions,
    }
    for each in view.maps:
        assert each.layer is not None
        weights = expected[each.kind][each.layer][0, each.head]
        assert torch.allclose(torch.tensor(each.rows), weights, atol=1e-4)


async def test_limits(made: Multilingual, server: Running) -> None:
    """Language tokens count for no limit, and a given prefix follows them."""
    client = server.client
    source, target = made.directions.first
    names: dict[str, Any] = {"source": source, "target": target}
    ours = made.direction(source, target)
    for limit in (2, 3):
        search = Search(beam_size=2, min_new_tokens=limit)
        batch = await client.translate(
            [TEXTS[1]],
            max_new_tokens=limit,
            search=search,
            num_hypotheses=2,
            return_alignments="hard",
            **names,
        )
        for hypothesis in batch.translations[0].sentences[0].hypotheses:
            assert len(hypothesis.tokens) == made.longest(limit)
            assert hypothesis.alignment is not None
            assert len(hypothesis.alignment.links) == sum(
                token.piece != ours.id_to_piece(ours.eos_id) for token in hypothesis.tokens
            )
    [info] = await client.list_models()
    most = info.limits.max_target_tokens
    assert most == made.bundle.max_target_positions - len(made.directions.start_ids(target))
    assert info.limits.max_source_tokens == made.bundle.max_source_positions - 1
    await client.translate([TEXTS[0]], max_new_tokens=most, **names)
    with pytest.raises(TranslationError, match=f"between 1 and {most}, not {most + 1}"):
        await client.translate([TEXTS[0]], max_new_tokens=most + 1, **names)
    prefix = "Two men"
    batch = await client.translate(
        [TEXTS[0]], search=Search(target_prefix=prefix), return_tokens=True, **names
    )
    [best] = batch.translations[0].sentences[0].hypotheses
    forced = [ours.id_to_piece(i) for i in ours.target.encode(prefix)]
    assert [token.piece for token in best.tokens[: len(forced)]] == forced
    assert {token.log_probability for token in best.tokens[: len(forced)]} == {0.0}


async def test_languages(made: Multilingual, server: Running) -> None:
    """Listed languages, and the answers to requests with other codes."""
    client = server.client
    directions = made.directions
    [info] = await client.list_models()
    assert set(info.language_pairs) == set(directions)
    assert (info.source_languages, info.target_languages) == (
        directions.sources,
        directions.targets,
    )
    [group] = await client.list_languages()
    assert (group.source_languages, group.target_languages) == (
        directions.sources,
        directions.targets,
    )
    assert group.models == (made.bundle.name,)
    labels = {"source": "multiple" if len(directions.sources) > 1 else "en", "target": "multiple"}
    model = {"model": made.bundle.name, "version": "1", "precision": "fp32", "device": "cpu"}
    assert server.metric("dragoman_model_info", **model, **labels) == 1
    [expected] = (await client.translate([TEXTS[0]], source="en", target="fr")).translations
    [found] = (await client.translate([TEXTS[0]], source="en-GB", target="FR-ca")).translations
    assert found == expected
    for source, target, code in (
        ("en", "", "INVALID_ARGUMENT"),
        ("en", "en", "NOT_FOUND"),
        ("en", "ja", "NOT_FOUND"),
        ("ja", "de", "NOT_FOUND"),
    ):
        await refused(client.translate([TEXTS[0]], source=source, target=target), code)


@pytest.mark.long
async def test_all_directions_of_nllb(tmp_path: Path) -> None:
    made = make(tmp_path, "nllb", None)
    directions = made.directions
    assert directions.count == 202 * 201
    assert (made.bundle.path / "bundle.json").stat().st_size < 30_000
    draw = random.Random(0)
    pairs = draw.sample([("en", target) for target in directions.targets if target != "en"], 5)
    pairs += [(source, "zh-Hant") for source in ("de", "eu", "uz", "zu", "pt")]
    async with running_bundle(made.bundle.path) as server:
        await check_translations(made, server.client, 1, pairs)
        error = await error_of(
            server.client.translate(["A dog."], source="en", target="zh"), "any of zh-Hans, zh-Hant"
        )
        assert error.field == "target_language_code"
        [info] = await server.client.list_models()
        assert not info.language_pairs
        assert len(info.source_languages) == len(info.target_languages) == 202


def test_an_older_server_has_one_of_the_directions(made: Multilingual) -> None:
    """It does not know the field: the others say what they say of a bundle with one direction."""
    manifest = {**made.bundle.manifest}
    del manifest["directions"]
    old = replace(made.bundle, manifest=manifest)
    source, target = made.directions.first
    assert old.directions == Directions.one(source, target)
    here, there = old.tokenizer(), made.direction(source, target)
    assert here.encode("A dog.") == there.encode("A dog.")
    assert here.target.start_ids == there.target.start_ids
