"""Served translations of imported models have the tokens of `transformers`' `generate`.

Whole servers, and the library with the model's own generation configuration. Of each model 500
sentences: greedily, with a beam of four, and as the configuration says. Where the two differ, the
case must be a near tie: the library's network, in double precision, gives both translations the
same score. The numbers are printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman.client import AsyncClient, Search
from export.bundle_writer import ExportOptions
from export.importer import import_directory
from model.bundle import Bundle
from model.piece_tokenizer import PieceTokenizer
from tests import foreign_models
from tests.integration.servers import running_bundle

CHECKPOINT = Path("model/checkpoints/en-de")
# Real OPUS-MT vocabularies, a directory each, as they are published; not part of the project.
VOCABULARIES = "DRAGOMAN_VOCABULARIES"
# PREFIX.en and PREFIX.de, English sentences and their translations; not part of the project.
TEST_SET = "DRAGOMAN_TEST_SET"
NUM_SENTENCES = 500
NEAR_TIE = 1e-5
BATCH = 25


@dataclass
class Case:
    """A model of the library and the server's bundle of it.

    Attributes:
        beam_size: of the model's own configuration.
        length_penalty: likewise.
        texts: what to translate.
    """

    name: str
    model: Any
    path: Path
    bundle: Bundle
    texts: Sequence[str]

    @property
    def tokenizer(self) -> PieceTokenizer:
        tokenizer = self.bundle.tokenizer()
        assert isinstance(tokenizer, PieceTokenizer)
        return tokenizer


def made(path: Path, name: str, model: Any, texts: Sequence[str], *languages: str) -> Case:
    directory, output = path / "model", path / "bundle"
    pair = (languages[0], languages[1]) if languages else None
    import_directory(directory, output, ExportOptions("fp32", name=name), pair, texts[:10])
    return Case(name, model, directory, Bundle.load(output), texts)


def opus(path: Path, name: str, real: str, **sizes: Any) -> Case:
    """An OPUS-MT model with random weights; with a real vocabulary, if there is one."""
    root = os.environ.get(VOCABULARIES)
    if root is None:
        model = foreign_models.marian(path / "model", **sizes, max_position_embeddings=512)
    else:
        model = foreign_models.marian_of(Path(root) / real, path / "model", **sizes)
        name = f"{name}, vocabulary of {real}"
    return made(path, name, model, texts(), "en", "de")


def multilingual(path: Path, name: str, family: str, **sizes: Any) -> Case:
    model = foreign_models.multilingual(path / "model", family, **sizes)
    return made(path, name, model, texts(), "en", "de")


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


CASES: dict[str, Callable[[Path], Case]] = {
    "opus-mt": lambda path: opus(
        path,
        "OPUS-MT",
        "opus-mt-en-mg",
        **foreign_models.sizes(width=256, layers=6, heads=8),
    ),
    "tc-big": lambda path: opus(
        path,
        "tc-big",
        "opus-mt-tc-big-fr-en",
        activation_function="relu",
        **foreign_models.sizes(width=256, layers=6, heads=16),
    ),
    "m2m-100": lambda path: multilingual(
        path, "M2M-100", "m2m", **foreign_models.sizes(width=256, layers=3, heads=16)
    ),
    "nllb": lambda path: multilingual(
        path, "NLLB", "nllb", **foreign_models.sizes(width=256, layers=3, heads=16)
    ),
    "mbart-50": lambda path: multilingual(
        path,
        "mBART-50",
        "mbart",
        activation_function="gelu",
        **foreign_models.sizes(width=256, layers=3, heads=16),
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return CASES[request.param](tmp_path_factory.mktemp(request.param))


@torch.inference_mode()
def generate(case: Case, sources: Sequence[Sequence[int]], **chosen: Any) -> list[list[int]]:
    """The library's tokens, without the start token and what follows EOS."""
    start, eos_id = case.tokenizer.target.start_ids, case.tokenizer.eos_id
    found: dict[int, list[int]] = {}
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for first in range(0, len(order), BATCH):
        batch = order[first : first + BATCH]
        longest = max(len(sources[i]) for i in batch)
        pad_id = case.bundle.config.pad_id
        ids = torch.tensor([[*sources[i], *[pad_id] * (longest - len(sources[i]))] for i in batch])
        mask = torch.tensor(
            [[1] * len(sources[i]) + [0] * (longest - len(sources[i])) for i in batch]
        )
        rows = case.model.generate(
            ids,
            attention_mask=mask,
            forced_bos_token_id=start[0] if start else None,
            **chosen,
        ).tolist()
        for index, row in zip(batch, rows, strict=True):
            tokens = row[1:]
            end = tokens.index(eos_id) + 1 if eos_id in tokens else len(tokens)
            found[index] = tokens[:end]
    return [found[index] for index in range(len(sources))]


async def serve(case: Case, bundle: Bundle, search: Search) -> list[list[int]]:
    """The server's tokens; where EOS was forced, it is not among them."""
    target = case.tokenizer.target
    found = []
    async with (
        running_bundle(bundle.path, max_rows=64, max_queue_seconds=600.0) as real,
        AsyncClient(real.address, timeout=600) as client,
    ):
        for first in range(0, len(case.texts), BATCH):
            batch = await client.translate(
                case.texts[first : first + BATCH],
                search=search,
                split_sentences=False,
                return_tokens=True,
            )
            for translation in batch.translations:
                [sentence] = translation.sentences
                tokens = sentence.hypotheses[0].tokens
                found.append([target.piece_to_id(token.piece) for token in tokens])
    return found


@torch.inference_mode()
def score(case: Case, source: Sequence[int], tokens: Sequence[int], power: float) -> float:
    """The library's score of a translation, in double precision."""
    double = case.model.double()
    try:
        fed = torch.tensor([[case.bundle.config.bos_id, *tokens[:-1]]])
        logits = double(input_ids=torch.tensor([source]), decoder_input_ids=fed).logits[0]
        chosen = logits.log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)]
        free = chosen[len(case.tokenizer.target.start_ids) :]
        divisor: float = len(tokens) ** power
        return float(free.sum()) / divisor
    finally:
        case.model.float()


def without_eos(case: Case, tokens: Sequence[int]) -> list[int]:
    return [token for token in tokens if token != case.tokenizer.eos_id]


SEARCHES: dict[str, tuple[Search, dict[str, Any]]] = {
    "greedy": (Search(beam_size=1), {"num_beams": 1, "early_stopping": False}),
    "beam 4": (
        Search(beam_size=4, early_stopping="heuristic"),
        {"num_beams": 4, "early_stopping": False},
    ),
    "own": (Search(), {}),
}


@pytest.mark.parametrize("kind", SEARCHES)
async def test_served_tokens_are_those_of_generate(case: Case, kind: str) -> None:
    search, chosen = SEARCHES[kind]
    tokenizer = case.tokenizer
    sources = [[*ids, tokenizer.eos_id] for ids in tokenizer.encode_batch(list(case.texts))]
    expected = generate(case, sources, **chosen)
    found = await serve(case, case.bundle, search)
    different = [
        index
        for index in range(len(sources))
        if without_eos(case, found[index]) != without_eos(case, expected[index])
    ]
    lengths = [len(tokens) for tokens in expected]
    ended = sum(tokens[-1] == tokenizer.eos_id for tokens in expected)
    print(
        f"{case.name}, {kind}: {len(sources) - len(different)} of {len(sources)} identical; "
        f"{sum(lengths) / len(lengths):.1f} tokens, {ended} end with EOS, "
        f"{len({tuple(tokens) for tokens in expected})} different"
    )
    assert len({tuple(tokens) for tokens in expected}) > len(expected) / 2
    for index in different:
        power = 0.0 if kind == "greedy" else 1.0
        ours, theirs = (
            score(case, sources[index], tokens[index], power) for tokens in (found, expected)
        )
        print(f"  near tie: {case.texts[index]!r}: {ours:.7f} here, {theirs:.7f} there")
        assert ours == pytest.approx(theirs, abs=NEAR_TIE)
