"""The way back: our checkpoints as Marian students, which other engines translate with alike."""

from __future__ import annotations

import importlib.util
import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.peers import student_backend
from bench.random_student import random_student
from export.bundle_writer import ExportOptions
from export.errors import ExportError
from export.importer import import_directory
from export.layers import NEVER
from export.shortlists import shortlist_from_text
from export.students.lexicon import lexicon_bytes
from export.students.reader import read_student
from export.students.writer import piece_order, write_student
from model.bundle.bundle import Bundle
from model.bundle.config import ModelConfig, preset
from model.bundle.manifest import MANIFEST_FILE
from model.bundle.shortlist import Shortlist
from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer, train_tokenizer
from model.network.checkpoint import save_checkpoint
from model.network.transformer import Transformer
from service.domain.plan import EncodeItem, StepPlan
from service.runtime.cpu.runner import OnnxRunner
from tests.foreign_models import TEXTS

VOCAB_SIZE = 450
SMALL: dict[str, Any] = dict(num_encoder_layers=3, dropout=0.0)


def sentences(count: int = 12) -> list[str]:
    draw = np.random.default_rng(0)
    words = [word for text in TEXTS for word in text.split()]
    return [" ".join(draw.choice(words, draw.integers(1, 9)).tolist()) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / TOKENIZER_FILE
    return train_tokenizer(iter(TEXTS), path, vocab_size=VOCAB_SIZE, sentinels=2)


def checkpoint(path: Path, tokenizer: Tokenizer, **changes: Any) -> Transformer:
    """Write a random checkpoint, and return its network."""
    config = preset("student-tiny", VOCAB_SIZE, **{**SMALL, **changes})
    model = random_student(config)
    save(path, model, config, tokenizer)
    return model


def save(path: Path, model: Transformer, config: ModelConfig, tokenizer: Tokenizer) -> None:
    save_checkpoint(path, model, tokenizer, languages={"source": "en", "target": "de"})


@pytest.mark.parametrize("tying", ["all", "target"])
def test_the_files_are_the_network(tmp_path: Path, tokenizer: Tokenizer, tying: str) -> None:
    model = checkpoint(tmp_path / "ours", tokenizer, embedding_tying=tying)
    write_student(tmp_path / "ours", tmp_path / "student", "fp32", [])
    found, order = read_student(tmp_path / "student", None), piece_order(tokenizer)
    assert len(order) == VOCAB_SIZE - 2
    for text in [*sentences(5), "\ue001 zzz é."]:
        ours = tokenizer.encode(text)
        assert [order[i] for i in found.tokenizer.encode(text)] == ours
    ids = torch.tensor([[order.index(i) for i in ours] + [0]])
    source = torch.tensor([[*ours, tokenizer.eos_id]])
    with torch.inference_mode():
        expected = logits(model, source, tokenizer.bos_id)[..., order]
        given = logits(found.model, ids, found.config.bos_id)[..., : len(order)]
    assert (given - expected).abs().max() < 1e-4


def logits(model: Transformer, source: torch.Tensor, start: int) -> torch.Tensor:
    target = torch.cat((torch.tensor([[start]]), source[:, :-1]), dim=1)
    result: torch.Tensor = model(source, target, torch.ones_like(source, dtype=torch.bool))
    return result


@pytest.mark.parametrize(
    ("precision", "tying"), [("fp32", "all"), ("int8", "all"), ("int8", "target")]
)
def test_fxtranslate_translates_with_them(
    tmp_path: Path, tokenizer: Tokenizer, precision: str, tying: str
) -> None:
    pytest.importorskip("fxtranslate", reason="needs fxtranslate: pip install fxtranslate")
    checkpoint(tmp_path / "ours", tokenizer, embedding_tying=tying)
    agreement = write_student(tmp_path / "ours", tmp_path / "student", precision, sentences())
    assert agreement is not None
    assert agreement.num_identical + agreement.num_ties == agreement.num_sentences > 6
    assert agreement.num_identical > agreement.num_sentences / 4


def test_slimt_translates_with_them_as_if_each_token_were_the_first(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """slimt 0.1.0 gives every step of the decoder position 0, so its texts repeat themselves."""
    if importlib.util.find_spec("slimt") is None:
        pytest.skip("needs slimt: pip install --no-deps slimt")
    checkpoint(tmp_path / "ours", tokenizer)
    for file in (texts := (tmp_path / "texts.en", tmp_path / "texts.de")):
        file.write_text("\n".join(sentences(40)))
    write_student(tmp_path / "ours", files := tmp_path / "files", "int8", sentences(), texts)
    import_directory(files, tmp_path / "bundle", ExportOptions("int8"), num_sentences=0, threads=1)
    bundle = Bundle.load(tmp_path / "bundle")
    given = [re.sub(r"[^\w ]", "", text) for text in sentences(5)]  # each one sentence
    found = student_backend.slimt(files, bundle)(given)
    runner = OnnxRunner(bundle, max_rows=1)
    # Limits of length differ.
    as_first, as_usual = (
        sum(
            num_alike(greedy_text(runner, bundle, text, counts), its)
            for text, its in zip(given, found, strict=True)
        )
        for counts in (False, True)
    )
    assert as_first > 2 * as_usual


def num_alike(left: str, right: str) -> int:
    """The number of characters with which both begin."""
    same = (one == other for one, other in zip(left, right, strict=False))
    return len(list(itertools.takewhile(bool, same)))


def greedy_text(runner: OnnxRunner, bundle: Bundle, text: str, counts: bool) -> str:
    """A translation by a decoder that counts positions, or that has position 0 in each step."""
    tokenizer = bundle.tokenizer()
    source = (*tokenizer.encode(text), bundle.config.eos_id)
    start = np.array([bundle.config.bos_id])
    plan = StepPlan((), [EncodeItem((0,), source)], start, np.zeros(1, np.int32))
    token_ids: list[int] = []
    while len(token_ids) < 2 * len(source):
        output = runner.execute(plan)
        if (token := int(output.top_ids[0, 0])) == bundle.config.eos_id:
            break
        token_ids.append(token)
        plan = plan.followed_by(output)
        if not counts:
            plan = replace(plan, positions=np.zeros(1, np.int32))
    return tokenizer.target.decode(token_ids)


def test_sentences_longer_than_the_network_reads_are_cut(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    checkpoint(tmp_path / "ours", tokenizer, max_source_positions=8)
    text = "\U0001f642 " * 50  # in bytes, which fxtranslate is not asked about
    write_student(tmp_path / "ours", tmp_path / "student", "int8", [text])
    assert (tmp_path / "student" / "model.ende.intgemm.alphas.bin").is_file()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "pre"}, "norm = 'post', not 'pre': train"),
        ({"positions": "sinusoidal"}, "positions = 'marian'"),
        ({"norm": "pre", "embed_start": True}, "embed_start = False, not True; norm = 'post'"),
        ({"decoder": "self_attention"}, "decoder = 'ssru'"),
    ],
)
def test_other_networks_are_refused(
    tmp_path: Path, tokenizer: Tokenizer, changes: dict[str, Any], message: str
) -> None:
    config = preset("student-tiny", VOCAB_SIZE, **{**SMALL, **changes})
    save(tmp_path / "ours", Transformer(config), config, tokenizer)
    with pytest.raises(ExportError, match=message):
        write_student(tmp_path / "ours", tmp_path / "student")
    assert not (tmp_path / "student").exists()


def test_the_number_of_pieces_is_a_multiple_of_eight(tmp_path: Path) -> None:
    """Firefox's engine and slimt write beyond the end of their memory otherwise."""
    path = tmp_path / TOKENIZER_FILE
    tokenizer = train_tokenizer(iter(TEXTS), path, vocab_size=VOCAB_SIZE + 3)
    model = random_student(preset("student-tiny", VOCAB_SIZE + 3, **SMALL))
    save(tmp_path / "ours", model, model.config, tokenizer)
    write_student(tmp_path / "ours", tmp_path / "student", "fp32", [])
    found, order = read_student(tmp_path / "student", None), piece_order(tokenizer)
    assert len(order) == len(found.tokenizer.vocabulary.pieces) == VOCAB_SIZE + 6
    assert (found.model.output_projection.bias[VOCAB_SIZE + 1 :] == NEVER).all()
    for text in sentences(5):
        assert [order[i] for i in found.tokenizer.encode(text)] == tokenizer.encode(text)


def test_a_shortlist_goes_along(tmp_path: Path, tokenizer: Tokenizer) -> None:
    checkpoint(tmp_path / "ours", tokenizer)
    texts = tmp_path / "texts.en", tmp_path / "texts.de"
    for file in texts:
        file.write_text("\n".join(sentences()))
    write_student(tmp_path / "ours", tmp_path / "student", "int8", sentences(2), texts)
    found, order = read_student(tmp_path / "student", None).shortlist, piece_order(tokenizer)
    assert found is not None
    config = preset("student-tiny", VOCAB_SIZE)
    expected = shortlist_from_text(texts, tokenizer, config)
    for text in sentences():
        ids = tokenizer.encode(text)
        wanted = {order.index(i) for i in expected.target_ids([*ids, tokenizer.eos_id])}
        given = found.target_ids([*(order.index(i) for i in ids), 0]).tolist()
        assert wanted <= {*given}
        assert {order.index(i) for i in ids} <= wanted


def test_the_checksum_of_a_shortlist_is_marian_s() -> None:
    """Computed by the code whose files slimt 0.1.0 read."""
    content = lexicon_bytes(Shortlist.of(0, [[0], [1, 2], []]), [0, 1, 2])
    assert int.from_bytes(content[8:16], "little") == 0xDFA9EC02C56BF35B


def test_what_is_there_stays(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Even a bundle, which an export of another format would replace."""
    checkpoint(tmp_path / "ours", tokenizer)
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / MANIFEST_FILE).write_text("{}")
    with pytest.raises(ExportError, match="bundle is in the way: name another directory"):
        write_student(tmp_path / "ours", bundle)
    assert [file.name for file in bundle.iterdir()] == [MANIFEST_FILE]
