"""Imported students translate as fxtranslate does, an independent engine that reads their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch

from bench.random_student import random_student
from dragoman import VerbatimKinds
from dragoman.client import TranslationError
from export.bundle_writer import ExportOptions
from export.errors import ExportError
from export.importer import import_directory
from export.students.network import their_name
from export.students.reader import read_student
from export.students.writer import observed_alphas
from model.bundle.bundle import Bundle
from model.evaluation.search import greedy_search
from service.runtime.cpu.runner import OnnxRunner
from tests.foreign_models import TEXTS
from tests.integration.servers import running_bundle
from tests.marian_files import converted
from tests.marian_network import MarianNetwork
from tests.runner_loops import greedy_steps, same_row
from tests.students import (
    VOCAB_SIZE,
    arrays_of,
    lexicon,
    options_of,
    student_config,
    vocabulary,
    write_student,
)

SMALL: dict[str, Any] = {"d_model": 64, "ffn_dim": 96, "num_encoder_layers": 2}
SIZES: list[tuple[str, dict[str, Any]]] = [  # those that are published
    ("student-tiny", {}),
    ("student-base-memory", {}),
    ("student-base", {}),
    ("student-base-memory", {"embedding_tying": "target"}),
    ("student-base", {"embedding_tying": "target"}),
]
NUM_SENTENCES = 10
NUM_TOKENS = 3


def known_words() -> sentencepiece.SentencePieceProcessor:
    known = sentencepiece.SentencePieceProcessor()
    known.LoadFromSerializedProto(vocabulary())
    return known


def sentences(count: int) -> list[str]:
    """Words that the vocabulary knows: fxtranslate cuts unknown characters otherwise."""
    draw = np.random.default_rng(0)
    known = known_words()
    words = [word for text in TEXTS for word in text.split()]
    words = [word for word in words if 1 not in known.encode(word)]
    return [" ".join(draw.choice(words, draw.integers(1, 9)).tolist()) for _ in range(count)]


def write(path: Path, size: str, fields: dict[str, Any]) -> None:
    """A random student, whose scales fit what it is to translate."""
    known = known_words()
    sources = [[*known.encode(text), 0] for text in sentences(NUM_SENTENCES)]
    write_student(path, random_student(student_config(size, **fields)), sources)


@pytest.mark.parametrize(("size", "fields"), SIZES, ids=lambda x: str(x))
def test_translations_are_those_of_fxtranslate(
    tmp_path: Path, size: str, fields: dict[str, Any]
) -> None:
    pytest.importorskip("fxtranslate", reason="needs fxtranslate: pip install fxtranslate")
    write(tmp_path / "ende", size, fields)
    found = read_student(tmp_path / "ende", None)
    assert found.comparison is not None
    assert found.comparison.is_possible()
    agreement = found.comparison.compare(sentences(NUM_SENTENCES), None)
    assert agreement.num_sentences == NUM_SENTENCES
    assert agreement.num_identical + agreement.num_ties == NUM_SENTENCES
    assert agreement.num_identical >= 2  # random weights make many tokens nearly equal


@pytest.mark.parametrize("tying", ["all", "target"])
def test_the_bundle_is_an_independent_network_of_the_file(tmp_path: Path, tying: str) -> None:
    """Without proof, and without any code that writes or reads files of ours."""
    config = student_config("student-tiny", embedding_tying=tying, num_encoder_layers=2)
    model, known = random_student(config), known_words()
    sources = [[*known.encode(text), 0] for text in sentences(NUM_SENTENCES)]
    alphas = {
        their_name(f"{name}.weight"): alpha
        for name, alpha in observed_alphas(model, sources).items()
    }
    alphas["Wemb" if tying == "all" else "decoder_Wemb"] = alphas.pop("output_projection.weight")
    model.output_projection.bias.data[:2] = -100.0  # never </s> or <unk>
    content = converted(arrays_of(model), alphas, options_of(config))
    write_student(tmp_path / "ende", random_student(config), sources[:1])
    (tmp_path / "ende" / "model.ende.intgemm.alphas.bin").write_bytes(content)
    import_directory(
        tmp_path / "ende", tmp_path / "bundle", ExportOptions("int8"), num_sentences=0, threads=1
    )
    bundle, network, num_same = Bundle.load(tmp_path / "bundle"), MarianNetwork(content), 0
    runner = OnnxRunner(bundle, max_rows=1, intra_op_threads=1)
    for source in sources:
        steps = greedy_steps(runner, [tuple(source)], NUM_TOKENS, bundle.config.bos_id)
        found = [int(step.top_ids[0, 0]) for step in steps]
        num_same += found == network.translate(source, NUM_TOKENS)
    assert (
        num_same >= 0.8 * NUM_SENTENCES
    )  # a rounding that differs can change random weights' text


@pytest.mark.parametrize("tying", ["all", "target"])
def test_shortlists_are_those_of_fxtranslate(tmp_path: Path, tying: str) -> None:
    pytest.importorskip("fxtranslate", reason="needs fxtranslate: pip install fxtranslate")
    model = random_student(student_config("student-tiny", **SMALL, embedding_tying=tying))
    model.output_projection.bias.data[0] = -1.0  # few texts end at once
    known, some = known_words(), sentences(4)
    write_student(tmp_path / "ende", model, [[*known.encode(text), 0] for text in some])
    draw = np.random.default_rng(5)
    lists = [draw.integers(0, VOCAB_SIZE, 6).tolist() for _ in range(VOCAB_SIZE)]
    content = lexicon([sorted({*one}) for one in lists], first_num=2)
    (tmp_path / "ende" / "lex.50.50.ende.s2t.bin").write_bytes(content)
    found = read_student(tmp_path / "ende", None).comparison
    assert found is not None
    agreement = found.compare(some, None)
    assert agreement.num_identical + agreement.num_ties == len(some)


def test_a_wrong_network_is_found(tmp_path: Path) -> None:
    pytest.importorskip("fxtranslate", reason="needs fxtranslate: pip install fxtranslate")
    write(tmp_path / "ende", "student-tiny", {})
    found = read_student(tmp_path / "ende", None)
    assert found.comparison is not None
    unit = next(found.model.decoder.each_layer()).recurrence
    unit.candidate.weight.data.mul_(3.0)
    with pytest.raises(ExportError, match="the imported network differs from fxtranslate, for '"):
        found.comparison.compare(sentences(NUM_SENTENCES), None)


def test_spaces_alone_are_an_empty_translation(tmp_path: Path) -> None:
    """fxtranslate leaves out the last spaces of a text."""
    pytest.importorskip("fxtranslate", reason="needs fxtranslate: pip install fxtranslate")
    model = random_student(student_config(d_model=64, ffn_dim=96, num_encoder_layers=2))
    known = sentencepiece.SentencePieceProcessor()
    known.LoadFromSerializedProto(vocabulary())
    model.output_projection.bias.data[known.piece_to_id("\u2581")] = 1000.0
    write_student(tmp_path / "ende", model)
    found = read_student(tmp_path / "ende", None).comparison
    assert found is not None
    assert found.compare(sentences(3), None).num_identical == 3


def test_a_panic_of_the_engine_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rust's panics are no exceptions to Python; the engine reads some fields late."""

    class PanicException(BaseException):
        pass

    class Engine:
        def translate(self, _: str) -> str:
            raise PanicException("missing encoder_l1_self_Wq\n at ...")

    write_student(tmp_path / "ende", random_student(student_config(d_model=64, ffn_dim=96)))
    found = read_student(tmp_path / "ende", None).comparison
    assert found is not None
    monkeypatch.setattr(type(found), "_translator", lambda _: Engine())
    with pytest.raises(ExportError, match=r"cannot read .*alphas.bin: missing encoder_l1_self_Wq$"):
        found.compare(["A dog."], None)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_imported_whole(tmp_path: Path, precision: str) -> None:
    """The bundle is proven against the network, and a row of it doesn't depend on others."""
    write(tmp_path / "ende", "student-tiny", SMALL)
    options = ExportOptions(precision)
    made = import_directory(
        tmp_path / "ende",
        tmp_path / "bundle",
        options,
        sentences=sentences(6),
        num_sentences=6,
        threads=1,
    )
    bundle = Bundle.load(tmp_path / "bundle")
    assert bundle.name == "en-de"
    assert bundle.config.decoder == "ssru"
    assert (bundle.alignment_layer, bundle.alignment_head) == (1, 0)
    # In int8, of the network with the file's integers and alphas: few roundings differ.
    assert made.proof is not None
    assert made.proof.mean_difference < (1e-4 if precision == "fp32" else 5e-3)
    assert bundle.manifest["provenance"]["imported_from"]["architecture"].startswith(
        "Marian student"
    )
    runner = OnnxRunner(bundle, max_rows=8, intra_op_threads=1)
    sources = [(5, 6, 0), (7, 30, 31, 90, 0), (0,), (44, 45, 0)]
    start = bundle.config.bos_id
    together = greedy_steps(runner, sources, 8, start)
    for row, source in enumerate(sources):
        alone = greedy_steps(runner, [source], 8, start)
        assert same_row(together, row, alone, 0)


async def test_served(tmp_path: Path) -> None:
    """Translations are the network's, and decoder self-attention is refused by name."""
    model = random_student(student_config("student-tiny", **SMALL))
    model.output_projection.bias.data[0] = -1.0  # few texts end at once
    write_student(tmp_path / "ende", model)
    import_directory(tmp_path / "ende", tmp_path / "bundle", ExportOptions("fp32"), num_sentences=0)
    network = read_student(tmp_path / "ende", None)
    texts, tokenizer = (
        [text for text in sentences(200) if text.isascii() and " " in text][:8],
        network.tokenizer,
    )
    expected = []
    for text in texts:
        source = torch.tensor([[*tokenizer.encode(text), 0]])
        mask = torch.ones_like(source, dtype=torch.bool)
        network.model.output_projection.bias.data[1] = -1e9  # <unk>, which is never chosen
        (found,) = greedy_search(network.model, source, mask, 20)
        expected.append(tokenizer.target.decode(found.token_ids))
    async with running_bundle(tmp_path / "bundle", in_process=True) as real:
        batch = await real.client.translate(
            texts,
            max_new_tokens=20,
            split_sentences=False,
            verbatim=VerbatimKinds.none(),
            adapt_letter_case=False,
        )
        with pytest.raises(TranslationError, match=r"DECODER_SELF has no matrix of weights"):
            await real.client.attention(texts[0], kinds=["decoder_self"])
        view = await real.client.attention(texts[0], max_new_tokens=9)
    assert [translation.text for translation in batch.translations] == expected
    assert len({*expected}) > len(texts) / 2
    assert view.maps
