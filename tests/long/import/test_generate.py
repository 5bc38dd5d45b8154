"""Served translations of imported models have the tokens of `transformers`' `generate`.

Whole servers, and the library with the model's own generation configuration. Of each model 500
sentences: greedily, with a beam of four, and as the configuration says. Where the two differ,
rounding must be the cause. The numbers are printed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from dragoman.client import AsyncClient, Search
from export.bundle_writer import ExportOptions
from export.exporter import export_checkpoint
from export.huggingface.writer import write_huggingface
from export.importer import import_directory
from model.bundle.bundle import Bundle
from model.bundle.piece_tokenizer import PieceTokenizer
from model.evaluation.scoring import score_translations
from model.evaluation.search import BeamOptions, ReferenceBeam
from service.translation.blank_retries import has_word
from tests import foreign_models, library_search, near_ties
from tests.integration.servers import running_bundle
from tests.library_search import num_distinct, num_ended

# Trained models, each with the share of sentences that may differ in int8 (see export/PROOF.md).
CHECKPOINTS = {
    "version 4": (Path("model/checkpoints/en-de-4"), 0.05),
    "the post-norm model": (Path("tests/checkpoints/en-de-post-norm"), 0.13),
}
# Real OPUS-MT vocabularies, a directory each, as they are published; not part of the project.
VOCABULARIES = "DRAGOMAN_VOCABULARIES"
NUM_SENTENCES = 500
NEAR = 1e-3  # of logits, and of totals of many tokens: what the proof of an import allows
# A limit that some texts of random weights reach.
RANDOM: dict[str, Any] = {"max_length": 40}
# Of the texts of random weights, those that end before the limit or occur once, and without a word.
LEAST_ENDED, LEAST_DISTINCT, MOST_AGAIN = 0.1, 0.5, 0.2
MOST_BLEU_LOST = 0.5
# Of a vocabulary of tens of thousands, EOS is rarely the likeliest token: added to its logit.
ENDING = 3.0


@dataclass
class Case:
    """A model of the library and the server's bundle of it.

    Attributes:
        name: name of the model, for output.
        model: the library's model.
        bundle: the bundle in fp32.
        texts: what to translate.
        expected: translations of the library, by beam size and early stopping.
    """

    name: str
    model: Any
    bundle: Bundle
    texts: Sequence[str]
    expected: dict[tuple[int, Any], list[list[int]]] = field(default_factory=dict)

    @functools.cached_property
    def tokenizer(self) -> PieceTokenizer:
        tokenizer = self.bundle.tokenizer()
        assert isinstance(tokenizer, PieceTokenizer)
        return tokenizer

    @functools.cached_property
    def sources(self) -> list[list[int]]:
        eos_id = self.tokenizer.eos_id
        return [[*ids, eos_id] for ids in self.tokenizer.encode_batch(list(self.texts))]

    @property
    def own(self) -> tuple[int, Any]:
        """Beam size and early stopping of its own configuration."""
        generation = self.model.generation_config
        beam_size = generation.num_beams or 1
        return beam_size, beam_size > 1 and bool(generation.early_stopping)

    def generate(self, beam_size: int, early_stopping: Any) -> list[list[int]]:
        """The library's tokens, without start, language and what follows EOS."""
        key = (beam_size, early_stopping)
        if key not in self.expected:
            chosen = {} if key == self.own else dict(num_beams=key[0], early_stopping=key[1])
            rows = library_search.generate(
                self.model, self.sources, self.tokenizer.target.start_ids, **chosen
            )
            filler = len(self.tokenizer.target.vocabulary.pieces)  # see `serve`
            self.expected[key] = [[min(token, filler) for token in row] for row in rows]
        return self.expected[key]


def made(path: Path, name: str, model: Any) -> Case:
    """The bundle of the model in `path`/model."""
    options = ExportOptions("fp32", name=name)
    import_directory(path / "model", path / "bundle", options, ("en", "de"))
    return Case(name, model, Bundle.load(path / "bundle"), texts())


def opus(path: Path, name: str, real: str, **sizes: Any) -> Case:
    """An OPUS-MT model with random weights; with a real vocabulary, if there is one."""
    root = os.environ.get(VOCABULARIES)
    if root is None:
        model = foreign_models.marian(path / "model", **RANDOM, **sizes)
        return varied(path, name, model)
    model = foreign_models.marian_of(Path(root) / real, path / "model", **RANDOM, **sizes)
    return varied(path, f"{name}, vocabulary of {real}", model, ENDING)


def multilingual(path: Path, name: str, family: str, **sizes: Any) -> Case:
    model = foreign_models.multilingual(path / "model", family, **RANDOM, **sizes)
    return varied(path, name, model)


def varied(path: Path, name: str, model: Any, ending: float = 0.0) -> Case:
    foreign_models.vary(model, ending)
    model.save_pretrained(path / "model")
    return made(path, name, model)


def texts() -> list[str]:
    """Texts in many scripts, each of which goes to the model as it is."""
    found = []
    for text in foreign_models.lines(10 * NUM_SENTENCES, seed=2):
        words = text.split()
        # Others are copied, or have markers of a line.
        if words[0].isalpha() and sum(word.isascii() and word.isalpha() for word in words) > 2:
            found.append(" ".join(words))
    assert len(found) >= NUM_SENTENCES
    return found[:NUM_SENTENCES]


def sizes(layers: int, heads: int, **others: Any) -> dict[str, Any]:
    return {**foreign_models.sizes(width=128, layers=layers, heads=heads), **others}


CASES: dict[str, Callable[[Path], Case]] = {
    "m2m-100": lambda path: multilingual(path, "M2M-100", "m2m", **sizes(2, 16)),
    "nllb": lambda path: multilingual(path, "NLLB-200", "nllb", **sizes(2, 16)),
    "mbart-50": lambda path: multilingual(
        path, "mBART-50", "mbart", **sizes(2, 16, activation_function="gelu")
    ),
    "opus-mt": lambda path: opus(path, "OPUS-MT", "opus-mt-en-mg", **sizes(2, 8)),
    "tc-big": lambda path: opus(
        path, "tc-big", "opus-mt-tc-big-fr-en", **sizes(2, 16, activation_function="relu")
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return CASES[request.param](tmp_path_factory.mktemp(request.param))


async def serve(case: Case, bundle: Bundle, search: Search) -> list[list[int]]:
    """The server's tokens; where EOS was forced, it is not among them."""
    target = case.tokenizer.target
    # The first of the ids that only fill up the vocabulary stands for all of them.
    numbers = reversed(range(case.bundle.config.vocab_size))
    ids = {target.id_to_piece(number): number for number in numbers}
    found = []
    async with (
        running_bundle(bundle.path, max_rows=64, max_queue_seconds=600.0) as real,
        AsyncClient(real.address, timeout=600) as client,
    ):
        for first in range(0, len(case.texts), library_search.BATCH):
            batch = await client.translate(
                case.texts[first : first + library_search.BATCH],
                search=search,
                split_sentences=False,
                return_tokens=True,
            )
            for translation in batch.translations:
                [sentence] = translation.sentences
                tokens = sentence.hypotheses[0].tokens
                found.append([ids[token.piece] for token in tokens])
    return found


def without_eos(case: Case, tokens: Sequence[int]) -> tuple[int, ...]:
    return tuple(token for token in tokens if token != case.tokenizer.eos_id)


def compare(case: Case, found: Sequence[Sequence[int]], beam_size: int, stopping: Any) -> list[int]:
    """The sentences that differ from the library's; prints how many don't.

    A server translates a sentence again whose translation has no word, so those may be others.
    """
    expected = case.generate(beam_size, stopping)
    others = [
        index
        for index, tokens in enumerate(expected)
        if without_eos(case, found[index]) != without_eos(case, tokens)
    ]
    decode = case.tokenizer.target.decode
    different = [index for index in others if has_word(decode(expected[index]))]
    again = set(others) - set(different)
    assert len(again) <= MOST_AGAIN * len(expected)
    # Only a better translation takes the place of the first.
    assert all(has_word(decode(found[index])) for index in again)
    lengths = [len(tokens) for tokens in expected]
    print(
        f"{case.name}, beam {beam_size}: {len(expected) - len(others)} of {len(expected)} "
        f"identical, {len(again)} translated again; {sum(lengths) / len(lengths):.1f} tokens, "
        f"{num_ended(expected)} ended before the limit, {num_distinct(expected)} different ones"
    )
    return different


@torch.inference_mode()
def logits(case: Case, index: int, tokens: Sequence[int]) -> torch.Tensor:
    """The library's logits of the token after `tokens`, of a translation of this source."""
    fed = [case.bundle.config.bos_id, *case.tokenizer.target.start_ids, *tokens]
    source = torch.tensor([case.sources[index]])
    found: torch.Tensor = case.model(
        input_ids=source, decoder_input_ids=torch.tensor([fed])
    ).logits[0, -1]
    found[case.bundle.config.pad_id] = -torch.inf
    return found.double()


def margin(
    case: Case, index: int, found: Sequence[int], expected: Sequence[int]
) -> tuple[float, float]:
    """Of the first tokens in which two greedy translations differ, in double precision.

    By how much their logits are less than the largest one, and by how much single precision
    changes the logits of this step.
    """
    both = zip(found, expected, strict=False)  # the shorter one ends with EOS
    step = next(step for step, (ours, theirs) in enumerate(both) if ours != theirs)
    single = logits(case, index, expected[:step])
    case.model.double()
    double = logits(case, index, expected[:step])
    case.model.float()
    less = double.max() - double[[found[step], expected[step]]].min()
    return float(less), float((single - double).nan_to_num().abs().max())


def check_near_ties(
    case: Case, found: Sequence[Sequence[int]], different: Sequence[int], key: tuple[int, Any]
) -> None:
    """Of the sentences that differ, rounding is the cause.

    Of greedy ones, the first tokens that differ have one logit but for rounding. Of a beam's, both
    translations are what the search finds in double precision if near ties within it may go
    either way: such a tie can end in translations whose scores differ by much more.
    """
    for index in different:
        ours, theirs = found[index], case.generate(*key)[index]
        if key[0] == 1:
            apart, rounding = margin(case, index, ours, theirs)
            print(f"  near tie: {case.texts[index]!r}: logits {apart:.1e} apart, {rounding=:.1e}")
            assert apart < 2 * rounding < NEAR
            continue
        rounding = max(rounding_of_totals(case, index, one) for one in (ours, theirs))
        assert 2 * rounding < NEAR
        scores = possible(case, index, *key, slack=2 * rounding)
        here, there = (scores.get(without_eos(case, tokens)) for tokens in (ours, theirs))
        print(
            f"  near ties: {case.texts[index]!r}: {here} here, {there} there, of {len(scores)}; "
            f"{rounding=:.1e}"
        )
        assert here is not None
        assert there is not None


@torch.inference_mode()
def rounding_of_totals(case: Case, index: int, tokens: Sequence[int]) -> float:
    """By how much single precision changes the total of a translation's first tokens, at most."""
    labels = [*case.tokenizer.target.start_ids, *tokens]
    fed = torch.tensor([[case.bundle.config.bos_id, *labels[:-1]]])
    source = torch.tensor([case.sources[index]])

    def totals() -> torch.Tensor:
        logits = case.model(input_ids=source, decoder_input_ids=fed).logits[0]
        log_probabilities = logits.log_softmax(-1)[torch.arange(len(labels)), labels]
        found: torch.Tensor = log_probabilities.double().cumsum(0)
        return found

    single = totals()
    case.model.double()
    double = totals()
    case.model.float()
    return float((single - double).abs().max())


@torch.inference_mode()
def possible(
    case: Case, index: int, beam_size: int, stopping: Any, slack: float
) -> dict[tuple[int, ...], float]:
    """Possible results of the search, with scores, by the library's network in double precision."""
    start, eos_id = case.tokenizer.target.start_ids, case.tokenizer.eos_id
    generation, model = case.model.generation_config, case.model
    limit = generation.max_length - 1  # it counts the decoder's start
    power = generation.length_penalty
    options = BeamOptions(
        beam_size,
        length_penalty=1.0 if power is None else power,
        early_stopping="first" if stopping else "heuristic",
    )

    def log_probabilities(prefixes: Sequence[tuple[int, ...]]) -> torch.Tensor:
        length = len(prefixes[0])
        fed = torch.tensor([[case.bundle.config.bos_id, *prefix] for prefix in prefixes])
        logits = model(
            encoder_outputs=(encoded.expand(len(prefixes), -1, -1),), decoder_input_ids=fed
        ).logits[:, -1]
        found: torch.Tensor = logits.log_softmax(-1)
        forced = start[length] if length < len(start) else None
        if generation.forced_eos_token_id is not None and length == limit - 1:
            forced = eos_id
        if forced is not None:
            found = torch.full_like(found, -torch.inf)
            found[:, forced] = 0.0
        elif case.bundle.config.forbidden_id is not None:
            found[:, case.bundle.config.forbidden_id] = -torch.inf
        return found

    model.double()
    encoded = model.get_encoder()(torch.tensor([case.sources[index]]))[0]
    scores = near_ties.outcomes(ReferenceBeam(options, limit, eos_id), log_probabilities, slack)
    model.float()
    filler = len(case.tokenizer.target.vocabulary.pieces)  # see `serve`
    return {
        tuple(min(token, filler) for token in tokens[len(start) :]): score
        for tokens, score in scores.items()
    }


@pytest.mark.parametrize("kind", ["greedy", "beam 4", "own"])
async def test_served_tokens_are_those_of_generate(case: Case, kind: str) -> None:
    chosen: dict[str, tuple[Search, tuple[int, Any]]] = {
        "greedy": (Search(beam_size=1), (1, False)),
        "beam 4": (Search(beam_size=4, early_stopping="heuristic"), (4, False)),
        "own": (Search(), case.own),
    }
    search, key = chosen[kind]
    found = await serve(case, case.bundle, search)
    different = compare(case, found, *key)
    expected = case.generate(*key)
    assert num_distinct(expected) >= LEAST_DISTINCT * len(expected)
    assert num_ended(expected) >= LEAST_ENDED * len(expected)
    check_near_ties(case, found, different, key)


@pytest.fixture(scope="module", params=CHECKPOINTS)
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Case, Sequence[str]]:
    """A trained model, by the way back to the library; references of its sentences."""
    path = tmp_path_factory.mktemp("trained")
    write_huggingface(CHECKPOINTS[request.param][0], path / "model")
    theirs: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(path / "model").eval()
    case = made(path, request.param, theirs)
    prefix = os.environ.get(library_search.TEST_SET)
    files = [f"{prefix}.en", f"{prefix}.de"] if prefix else ["tests/parity/sentences.en"]
    case.texts, *references = (
        Path(file).read_text(encoding="utf-8").splitlines()[:NUM_SENTENCES] for file in files
    )
    return case, references[0] if references else ()


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("way", ["imported fp32", "exported fp32", "exported int8"])
async def test_trained_models(
    trained: tuple[Case, Sequence[str]], tmp_path: Path, beam_size: int, way: str
) -> None:
    """fp32 token by token; int8, with its other weights, in most sentences and with its BLEU."""
    case, references = trained
    checkpoint, most_different = CHECKPOINTS[case.name]
    bundle, precision = case.bundle, way.split()[1]
    if way.startswith("exported"):
        export_checkpoint(checkpoint, tmp_path / way, ExportOptions(precision, name=precision))
        bundle = Bundle.load(tmp_path / way)
    found = await serve(case, bundle, Search(beam_size=beam_size))
    print(way, end=": ")
    different = compare(case, found, beam_size, False)
    decode = case.tokenizer.target.decode
    if references:
        here, there = (
            score_translations([decode(without_eos(case, one)) for one in tokens], references).bleu
            for tokens in (found, case.generate(beam_size, False))
        )
        print(f"  BLEU here: {here.score:.2f}, there: {there.score:.2f}")
        assert there.score > 20, "the weights are trained"
        assert there.score - here.score < MOST_BLEU_LOST
    if precision == "fp32":
        check_near_ties(case, found, different, (beam_size, False))
    else:  # of the 50 sentences without references, chance takes more
        assert len(different) <= most_different * len(found) + (not references) * 5
