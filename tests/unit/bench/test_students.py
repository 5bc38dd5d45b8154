"""The benchmark of students: its ratios, and fxtranslate behind the batch engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from bench.peers.student_backend import StudentBackend
from bench.random_student import random_student
from bench.students import OURS, StudentFigure, main
from export.bundle_writer import ExportOptions
from export.importer import import_directory
from export.students.writer import write_student
from model.bundle.bundle import Bundle
from model.bundle.config import preset
from model.bundle.tokenizer import TOKENIZER_FILE, train_tokenizer
from model.network.checkpoint import save_checkpoint
from model.network.transformer import Transformer
from service.domain.requests import GenerationRequest
from tests.foreign_models import TEXTS


def test_ratios_are_to_the_best_of_the_others() -> None:
    figures = {OURS: 30.0, "slimt": 20.0, "fxtranslate": 60.0}
    assert StudentFigure("sentences/s", figures, 0.8, 1.3).ratio == 0.5
    assert StudentFigure("p50 in ms", figures, 0.8, 1.3, is_time=True).ratio == 1.5
    assert StudentFigure("sentences/s", {OURS: 30.0}, 0.8, 1.3).ratio is None
    assert str(StudentFigure("p50 in ms", figures, 1, 0.6, is_time=True)) == (
        "| p50 in ms | dragoman 30, slimt 20, fxtranslate 60 | 1.50 | 1 | 0.6 |"
    )


def test_a_network_that_no_peer_reads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match=r"config.json: No such file"):
        main(tmp_path, (tmp_path, tmp_path))
    config = preset("student-tiny", 450, norm="pre", output_bias=False)
    path, languages = tmp_path / "ours", {"source": "en", "target": "de"}
    tokenizer = train_tokenizer(iter(TEXTS), tmp_path / TOKENIZER_FILE, vocab_size=450)
    save_checkpoint(path, Transformer(config), tokenizer, languages=languages)
    with pytest.raises(typer.BadParameter, match=r"output_bias = True, not False; .*norm = 'post'"):
        main(path, (tmp_path, tmp_path))


async def test_fxtranslate_translates_batches(tmp_path: Path) -> None:
    engine = pytest.importorskip("fxtranslate", reason="needs fxtranslate: pip install fxtranslate")
    tokenizer = train_tokenizer(iter(TEXTS), tmp_path / TOKENIZER_FILE, vocab_size=450)
    config = preset("student-tiny", 450, d_model=64, ffn_dim=96, num_encoder_layers=2, dropout=0.0)
    languages = {"source": "en", "target": "de"}
    save_checkpoint(tmp_path / "ours", random_student(config), tokenizer, languages=languages)
    for file in (pair := (tmp_path / "text.en", tmp_path / "text.de")):
        file.write_text("\n".join(TEXTS))
    texts, files = ["A dog is running.", "A man."], tmp_path / "files"
    spelled = [f"{text} \U0001f642" for text in texts]  # in bytes: not compared with fxtranslate
    write_student(tmp_path / "ours", files, "int8", spelled, pair)
    import_directory(files, tmp_path / "bundle", ExportOptions("int8"), num_sentences=0, threads=1)
    bundle = Bundle.load(tmp_path / "bundle")
    backend, own = StudentBackend("fxtranslate", files, bundle, 2), bundle.tokenizer()
    await backend.start()
    requests = [GenerationRequest((*own.encode(t), bundle.config.eos_id)) for t in texts]
    outputs = await backend.translate(requests, [20, 20])
    await backend.stop()
    vocabulary = next(files.glob("vocab.*")).read_bytes()
    weights, lexicon = (next(files.glob(name)).read_bytes() for name in ("model.*", "lex.*"))
    alone = engine.Translator(weights, vocabulary, vocabulary, lexicon)
    expected = [own.target.encode(alone.translate(text)) for text in texts]
    assert [output.token_ids for output in outputs] == expected
