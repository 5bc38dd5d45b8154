"""Imported models translate in the same way as `transformers`: token ids, texts, the search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from dragoman.client import Search
from export.bundle_writer import ExportOptions
from export.huggingface.writer import write_huggingface
from export.importer import Imported, import_directory
from model.bundle.bundle import Bundle
from model.bundle.piece_tokenizer import PieceTokenizer
from model.network.checkpoint import save_checkpoint
from service.domain.requests import (
    FinishReason,
    GenerationResult,
    SearchOptions,
)
from service.runtime.cpu.runner import OnnxRunner
from tests import foreign_models
from tests.engine_searches import search_all
from tests.factories import random_model, tiny_config, tiny_tokenizer
from tests.integration.servers import running_bundle, streamed

MAX_NEW_TOKENS = 25


FAMILIES = {
    "marian": "MarianMT",
    "m2m": "M2M-100 or NLLB",
    "nllb": "M2M-100 or NLLB",
    "mbart": "mBART",
    "bart": "BART",
}


@dataclass(frozen=True)
class Case:
    """A model of `transformers`, and the bundle imported from its directory."""

    family: str
    model: Any
    tokenizer: Any
    bundle: Bundle
    ours: PieceTokenizer
    imported: Imported
    texts: list[str]

    def generate(self, source: Sequence[int], **chosen: Any) -> list[int]:
        """The library's tokens, without its start token; `chosen` changes the configuration."""
        start = self.ours.target.start_ids
        with torch.inference_mode():
            found = self.model.generate(
                torch.tensor([source]), forced_bos_token_id=start[0] if start else None, **chosen
            )
        return list(found[0].tolist()[1:])


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family, path = str(request.param), tmp_path_factory.mktemp("import")
    model: Any
    if family in ("marian", "bart"):
        model, languages = getattr(foreign_models, family)(path / "model"), None
    else:
        model, languages = foreign_models.multilingual(path / "model", family), ("en", "de")
    options = ExportOptions("fp32")
    imported = import_directory(path / "model", path / "bundle", options, languages, threads=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path / "model")
    bundle = Bundle.load(path / "bundle")
    ours = bundle.tokenizer()
    assert isinstance(ours, PieceTokenizer)
    texts = [
        text.strip() for text in foreign_models.lines(40 if family == "marian" else 15, seed=1)
    ]
    return Case(family, model, tokenizer, bundle, ours, imported, texts)


async def search(
    case: Case, sources: Sequence[Sequence[int]], beam_size: int
) -> list[GenerationResult]:
    options = SearchOptions(
        beam_size=beam_size,
        max_new_tokens=MAX_NEW_TOKENS,
        prefix_ids=case.ours.target.start_ids,
    )
    return await run(case, sources, options)


async def run(
    case: Case, sources: Sequence[Sequence[int]], options: SearchOptions
) -> list[GenerationResult]:
    runner = OnnxRunner(case.bundle, max_rows=32, intra_op_threads=1)
    return await search_all(case.bundle, runner, [tuple(source) for source in sources], options)


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_translations_have_the_tokens_of_transformers(case: Case, beam_size: int) -> None:
    sources = [[*ids, case.ours.eos_id] for ids in case.ours.encode_batch(case.texts)]
    results = await search(case, sources, beam_size)
    num_ended = 0
    for source, result in zip(sources, results, strict=True):
        expected = case.generate(
            source,
            num_beams=beam_size,
            early_stopping=False,
            max_length=None,
            max_new_tokens=MAX_NEW_TOKENS,
            forced_eos_token_id=None,
        )
        ended = case.ours.eos_id in expected
        assert [*result.token_ids, *([case.ours.eos_id] if ended else [])] == expected
        num_ended += ended
    assert len({tuple(result.token_ids) for result in results}) > len(results) / 3
    assert num_ended > 0


@pytest.mark.parametrize(
    ("beam_size", "early_stopping", "length_penalty", "ngram_size"),
    [
        (1, False, 1.0, 0),
        (4, False, 1.0, 0),
        (4, True, 2.0, 0),
        (3, "never", 0.6, 2),
        (3, False, -1.0, 0),
    ],
)
async def test_eos_is_forced_at_the_limit(
    case: Case, beam_size: int, early_stopping: bool | str, length_penalty: float, ngram_size: int
) -> None:
    """EOS has no cost and counts in the length; the tokens are those of a cut translation."""
    length, eos_id = 12, case.ours.eos_id
    sources = [[*ids, eos_id] for ids in case.ours.encode_batch(case.texts[:4])]
    options = SearchOptions(
        beam_size=beam_size,
        early_stopping={False: "heuristic", True: "first", "never": "never"}[early_stopping],  # type: ignore[arg-type]
        length_penalty=length_penalty,
        no_repeat_ngram_size=ngram_size,
        max_new_tokens=length - 1,
        prefix_ids=case.ours.target.start_ids,
        forced_eos=True,
    )
    num_cut = 0
    for source, result in zip(sources, await run(case, sources, options), strict=True):
        expected = case.generate(
            source,
            num_beams=beam_size,
            early_stopping=early_stopping,
            length_penalty=length_penalty,
            no_repeat_ngram_size=ngram_size,
            max_length=length,
            forced_eos_token_id=eos_id,
        )
        assert [*result.token_ids, eos_id] == expected
        is_cut = result.finish_reason is FinishReason.LENGTH
        assert is_cut == (len(expected) == length - 1)
        num_cut += is_cut
    assert num_cut > 0


def test_an_import_tells_what_was_proved(case: Case) -> None:
    provenance = case.bundle.manifest["provenance"]
    assert provenance["imported_from"]["architecture"] == FAMILIES[case.family]
    assert provenance["agreement"]["transformers"] == transformers.__version__
    proof = case.imported.proof
    assert proof is not None
    assert provenance["proof"]["num_sentences"] == proof.num_sentences
    # Without its language's token, a random model of several languages may end at once.
    assert proof.num_tokens > 3 * proof.num_sentences
    search = case.bundle.search
    if case.family == "marian":
        assert search.pop("max_new_tokens") == 127
        assert (search["beam_size"], search["early_stopping"]) == (4, "heuristic")
        assert search["forced_eos"]
    SearchOptions(**search)  # all of it is understood
    assert (case.bundle.source_language, case.bundle.target_language) == ("en", "de")


async def test_a_served_text_is_that_of_transformers(case: Case) -> None:
    text = "A dog is running."
    source = [*case.ours.encode(text), case.ours.eos_id]
    decode = case.ours.target.decode
    shown, greedy = decode(case.generate(source)), decode(case.generate(source, num_beams=1))
    # Of these random models, some write no word: where that was their end, the server returns the
    # text instead.
    streamable = {greedy} if any(map(str.isalnum, greedy)) else {greedy, text}
    async with running_bundle(case.bundle.path, in_process=True) as real:
        # Two sentences: what opens a translation opens each of them.
        [found] = (await real.client.translate([f"{text} {text}"], return_tokens=True)).translations
        assert [s.hypotheses[0].text for s in found.sentences] == [shown, shown]
        streamed_text, _ = await streamed(real.client, text)
        assert streamed_text in streamable
        [one] = (await real.client.translate([text], search=Search(beam_size=1))).translations
        assert one.text == streamed_text
        [described] = await real.client.list_models()
        search = case.bundle.search
        assert described.default_search.beam_size == search["beam_size"]
        stopping = described.default_search.early_stopping or "heuristic"
        assert stopping == search.get("early_stopping", "heuristic")
        [score] = (await real.client.score([(text, shown)], return_tokens=True)).scores
        # The token of the language is not among them.
        assert len(score.tokens) == len(case.ours.target.encode(shown)) + 1


def check_tokenizer(
    theirs: Any, ours: PieceTokenizer, texts: Sequence[str], num_decoded: int
) -> None:
    white = ours.piece_to_id("\u2581")
    for text, ids in zip(texts, ours.encode_batch(texts), strict=True):
        expected = theirs(text)["input_ids"][:-1]
        if ids != expected and isinstance(theirs, transformers.PreTrainedTokenizerFast):
            # The library keeps white space at the end, which SentencePiece drops.
            assert expected.pop() == white
        assert ids == expected, text
        assert ids == ours.encode(text)
        assert len(ours.encoded_spans(text)) == len(ids)
    draw = np.random.default_rng(0)
    # M2M-100's languages are special only where a file of the model says so.
    languages = {*ours.vocabulary.special_ids} - {*theirs.all_special_ids}
    tokens = [i for i in range(len(ours.vocabulary.pieces)) if i not in languages]
    for _ in range(num_decoded):
        ids = draw.choice(tokens, draw.integers(0, 12)).tolist()
        text = ours.target.decode(ids)
        assert text.strip() == theirs.decode(ids, skip_special_tokens=True).strip()
        spans = ours.target.decoded_spans(ids)
        assert len(spans) == len(ids)
        assert all(0 <= span.start <= span.end <= len(text) for span in spans)


def test_token_ids_and_texts_are_those_of_transformers(case: Case) -> None:
    if case.ours.vocabulary.prefix_ids:
        case.tokenizer.src_lang = case.ours.id_to_piece(case.ours.vocabulary.prefix_ids[0]).strip(
            "_"
        )
    check_tokenizer(case.tokenizer, case.ours, foreign_models.lines(1000), 500)


def test_special_symbols_in_a_text_stay_text(case: Case) -> None:
    config, prefix = case.bundle.config, case.ours.vocabulary.prefix_ids
    special = {config.eos_id, config.pad_id, *case.ours.vocabulary.special_ids} - {config.unk_id}
    for text in ("</s>", "<pad>", "a </s> b <pad>", "<unk>", "__de__", "deu_Latn", "de_DE"):
        assert not special & set(case.ours.encode(text)[len(prefix) :])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_way_back(tmp_path: Path, norm: str) -> None:
    """Our checkpoint is converted to a directory of the library, and back to a bundle."""
    model = random_model(tiny_config(norm=norm, positions="sinusoidal", activation="gelu"))
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer")
    languages = {"source": "en", "target": "de"}
    save_checkpoint(tmp_path / "checkpoint", model, tokenizer, languages=languages)
    agreement = write_huggingface(tmp_path / "checkpoint", tmp_path / "library")
    assert agreement is not None
    assert agreement.largest_difference < 1e-4
    theirs: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "library")
    options = ExportOptions("fp32")
    import_directory(tmp_path / "library", tmp_path / "bundle", options, threads=1)
    bundle = Bundle.load(tmp_path / "bundle")
    assert bundle.config.norm == norm
    again = bundle.tokenizer()
    texts = [text.strip() for text in foreign_models.lines(200)]
    assert again.encode_batch(texts) == tokenizer.encode_batch(texts)
    for text in texts:
        ids = tokenizer.encode(text)
        assert again.target.decode(ids) == tokenizer.decode(ids)
        assert theirs.decode(ids, skip_special_tokens=True) == tokenizer.decode(ids).strip()


def test_padding_that_is_the_best_token_is_not_chosen(tmp_path: Path) -> None:
    """`bad_words_ids` forbids padding: the best other token is compared with the library."""
    theirs = foreign_models.marian(tmp_path / "model")
    theirs.final_logits_bias[0, theirs.config.pad_token_id] += 20.0
    theirs.save_pretrained(tmp_path / "model")
    options = ExportOptions("fp32")
    made = import_directory(tmp_path / "model", tmp_path / "bundle", options, ("en", "de"))
    assert made.agreement is not None


@pytest.mark.parametrize(
    ("languages", "num_sentences", "dtype"),
    [(("en", "de"), None, "int8"), (("en", "de"), 0, "float32"), (("de", "en"), None, "float32")],
    ids=["english", "no proof", "german"],
)
def test_a_wide_model_gets_8_bit_caches(
    tmp_path: Path, languages: tuple[str, str], num_sentences: int | None, dtype: str
) -> None:
    sizes: dict[str, Any] = foreign_models.sizes(width=512, layers=1, heads=8)
    foreign_models.marian(tmp_path / "model", **sizes)
    made = import_directory(
        tmp_path / "model",
        tmp_path / "bundle",
        ExportOptions("int8"),
        languages,
        num_sentences=num_sentences,
        threads=1,
    )
    assert (made.proof is None) == (num_sentences == 0)
    assert Bundle.load(tmp_path / "bundle").cache_dtype == dtype
