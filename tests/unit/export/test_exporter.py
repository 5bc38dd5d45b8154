"""Export as a whole: reproducible, proven, all or nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx.external_data_helper import uses_external_data

from export.bundle_writer import ExportOptions, write_bundle
from export.errors import ExportError
from export.exporter import export_checkpoint
from export.parity import SENTENCES, TOLERANCES, Tolerance, check_parity
from model.bundle.bundle import Bundle
from model.bundle.config import AlignmentHead
from model.bundle.manifest import RESIDENT_GRAPHS
from model.network.checkpoint import CheckpointError, save_checkpoint
from model.network.transformer import Transformer
from tests.factories import (
    VOCAB_SIZE,
    export_source,
    random_model,
    tiny_bundle,
    tiny_config,
    tiny_tokenizer,
)


def save(directory: Path, model: Transformer) -> Path:
    tokenizer = tiny_tokenizer(directory.parent / "tokenizer", model.config.vocab_size)
    languages = {"source": "en", "target": "de"}
    save_checkpoint(directory, model, tokenizer, languages=languages, provenance={"hours": 0.5})
    return directory


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As training begins: small weights, which 8 bits hold well."""
    torch.manual_seed(0)
    model = Transformer(tiny_config()).eval()
    return save(tmp_path_factory.mktemp("export") / "checkpoint", model)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_the_bundle_is_proven_and_reproducible(
    checkpoint: Path, tmp_path: Path, precision: str
) -> None:
    card = tmp_path / "card.md"
    card.write_text("# A model\n")
    options = ExportOptions(precision, "mine", "7", top_k=4, model_card=card)
    proof = export_checkpoint(checkpoint, tmp_path / "first", options)
    assert proof.num_identical == proof.num_sentences == len(SENTENCES)
    assert proof.mean_difference <= TOLERANCES[precision].mean / 3
    assert proof.num_tokens >= proof.num_sentences
    export_checkpoint(checkpoint, tmp_path / "second", options)
    names = sorted(file.name for file in (tmp_path / "first").iterdir())
    for_gpus = {f"{name}.onnx" for name in RESIDENT_GRAPHS}
    assert set(names) == {
        "MODEL_CARD.md",
        "bundle.json",
        "decoder_step.onnx",
        "encoder.onnx",
        "attention.onnx",
        "scoring.onnx",
        "tokenizer.model",
        "weights.bin",
    } | (for_gpus if precision == "fp16" else set())
    for name in names:
        first, second = (tmp_path / which / name for which in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
    bundle = Bundle.load(tmp_path / "first")
    assert (bundle.name, bundle.version, bundle.top_k) == ("mine", "7", 4)
    assert bundle.manifest["provenance"] == {"hours": 0.5}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_what_several_graphs_read_is_stored_once(tmp_path: Path, precision: str) -> None:
    """Scoring and attention cost next to nothing: their weights are those that translate."""
    bundle = tiny_bundle(tmp_path / "bundle", precision=precision, d_model=128, ffn_dim=512)
    assert bundle.scoring_path is not None
    assert bundle.attention_path is not None
    translating = (bundle.encoder_path, bundle.decoder_step_path)
    graphs = (*translating, bundle.scoring_path, bundle.attention_path)
    placed: dict[str, set[tuple[int, int]]] = {}
    for path in graphs:
        model = onnx.load(path, load_external_data=False)
        constants = [uses_external_data(t) for t in model.graph.initializer]
        assert any(constants)
        places = placed[path.name] = set()
        for tensor in filter(uses_external_data, model.graph.initializer):
            info = {entry.key: entry.value for entry in tensor.external_data}
            assert info["location"] == "weights.bin"
            assert int(info["offset"]) % 64 == 0
            places.add((int(info["offset"]), int(info["length"])))
    size = (bundle.path / "weights.bin").stat().st_size
    stored = sum(length for _, length in set.union(*placed.values()))
    assert stored <= size < stored + 64 * len(set.union(*placed.values()))
    assert placed["scoring.onnx"] <= placed["decoder_step.onnx"]
    assert placed["attention.onnx"] <= placed["encoder.onnx"] | placed["decoder_step.onnx"]
    assert placed["encoder.onnx"] & placed["decoder_step.onnx"]  # the tied embedding
    assert sum(path.stat().st_size for path in graphs) < 0.25 * size


def test_the_layer_of_the_alignment_can_be_chosen(tmp_path: Path) -> None:
    def layer_of(name: str, chosen: int | None, num_layers: int) -> int | None:
        source = export_source(
            random_model(tiny_config(num_decoder_layers=num_layers)), tmp_path / "source"
        )
        (tmp_path / name).mkdir()
        write_bundle(source, ExportOptions(alignment_layer=chosen), tmp_path / name)
        return Bundle.load(tmp_path / name).alignment_layer

    assert layer_of("one", None, 1) == 0
    assert layer_of("two", None, 2) == 1
    assert layer_of("six", None, 6) == 4  # the penultimate, as in the paper
    assert layer_of("chosen", 0, 2) == 0
    with pytest.raises(ExportError, match=r"alignment_layer must be between 0 and 1, .* not 2"):
        layer_of("too-high", 2, 2)


def test_the_bundle_takes_what_the_checkpoint_was_trained_for(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    plain = export_source(model, tmp_path / "source")

    def written(name: str, options: ExportOptions, **traits: Any) -> Bundle:
        (tmp_path / name).mkdir()
        write_bundle(dataclasses.replace(plain, **traits), options, tmp_path / name)
        return Bundle.load(tmp_path / name)

    untrained = written("plain", ExportOptions())
    assert (untrained.alignment_layer, untrained.alignment_head) == (1, None)
    assert untrained.max_source_positions == 64
    traits = {"alignment_head": AlignmentHead(0, 1), "trained_length": 20}
    trained = written("trained", ExportOptions(), **traits)
    assert (trained.alignment_layer, trained.alignment_head) == (0, 1)
    assert (trained.max_source_positions, trained.max_target_positions) == (20, 64)
    assert check_parity(trained, model).num_identical > 0
    chosen = written("chosen", ExportOptions(alignment_layer=1), **traits)
    assert (chosen.alignment_layer, chosen.alignment_head) == (1, None)


@pytest.mark.parametrize("damage", ["weights", "layer", "head"])
def test_the_check_notices_a_wrong_scoring_graph(tmp_path: Path, damage: str) -> None:
    """The other graphs are right."""
    model, other = random_model(tiny_config()), random_model(tiny_config(), seed=1)
    bundle = tiny_bundle(tmp_path / "bundle", model=model)
    assert check_parity(bundle, model).num_identical > 0
    for name, made in (("right", model), ("wrong", other)):
        (tmp_path / name).mkdir()
        source = export_source(made, tmp_path / "bundle.source")
        layer = 0 if damage == "layer" else None
        head = AlignmentHead(1, 0) if damage == "head" else None
        source = dataclasses.replace(source, alignment_head=head)
        write_bundle(source, ExportOptions(alignment_layer=layer), tmp_path / name)
    wrong = tmp_path / ("wrong" if damage == "weights" else "right")
    graph = onnx.load(wrong / "scoring.onnx")  # with its weights
    assert bundle.scoring_path is not None
    bundle.scoring_path.write_bytes(graph.SerializeToString())
    with pytest.raises(ExportError, match="scoring graph differs from the checkpoint"):
        check_parity(bundle, model)


def test_an_older_bundle_is_replaced_whole(checkpoint: Path, tmp_path: Path) -> None:
    output = tmp_path / "bundle"
    export_checkpoint(checkpoint, output, ExportOptions("fp32"))
    (output / "MODEL_CARD.md").write_text("not listed, but a bundle's")
    export_checkpoint(checkpoint, output, ExportOptions("int8"))
    assert Bundle.load(output).precision == "int8"
    assert not (output / "MODEL_CARD.md").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


@pytest.mark.parametrize("name", ["notes.txt", ".git", "folder"])
def test_a_bundle_among_other_files_is_not_replaced(
    checkpoint: Path, tmp_path: Path, name: str
) -> None:
    bundle = tiny_bundle(tmp_path / "bundle")
    (bundle.path / name).mkdir()
    with pytest.raises(ExportError, match=f"{name} .* not part of the bundle"):
        export_checkpoint(checkpoint, bundle.path, ExportOptions("fp32"))
    assert (bundle.path / name).is_dir()
    assert Bundle.load(bundle.path).manifest == bundle.manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "bundle.source"]


def test_anything_else_is_not_overwritten(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for name in ("thesis", "file"):
        with pytest.raises(ExportError, match="is in the way"):
            export_checkpoint(checkpoint, tmp_path / name, ExportOptions("fp32"))
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "precious"


def test_a_failed_check_leaves_nothing_and_keeps_the_old(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    with torch.no_grad():  # a few huge weights in every row leave no bits for the others
        model.decoder.get_parameter("layers.0.feed_forward.outer.weight")[:, ::16] *= 3_000.0
        model.decoder.get_parameter("layers.1.feed_forward.inner.weight")[:, ::16] *= 3_000.0
    checkpoint = save(tmp_path / "checkpoint", model)
    output = tmp_path / "bundles" / "bundle"
    with pytest.raises(ExportError, match="the int8 bundle"):
        export_checkpoint(checkpoint, output, ExportOptions("int8"))
    assert list(output.parent.iterdir()) == []
    old = tiny_bundle(output)
    with pytest.raises(ExportError):
        export_checkpoint(checkpoint, output, ExportOptions("int8"))
    assert Bundle.load(output).manifest == old.manifest


def test_the_check_notices_one_wrong_weight_matrix(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    bundle = tiny_bundle(tmp_path / "bundle", model=model)
    assert check_parity(bundle, model).num_identical > 0
    with torch.no_grad():
        model.decoder.get_parameter("layers.1.cross_attention.value.weight")[0] += 0.05
    with pytest.raises(ExportError, match="report a defect if this is fp32"):
        check_parity(bundle, model)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_the_check_notices_a_little_noise_on_the_weights(tmp_path: Path, precision: str) -> None:
    def begin() -> Transformer:
        torch.manual_seed(0)
        return Transformer(tiny_config()).eval()

    damaged = begin()
    with torch.no_grad():
        for parameter in damaged.parameters():
            if parameter.dim() == 2:
                parameter.add_(torch.randn_like(parameter), alpha=0.03 * float(parameter.std()))
    bundle = tiny_bundle(tmp_path / "bundle", model=damaged, precision=precision)
    assert check_parity(bundle, damaged).num_identical == len(SENTENCES)
    with pytest.raises(ExportError, match=f"the {precision} bundle"):
        check_parity(bundle, begin())


def test_the_check_wants_sentences_that_are_identical(tmp_path: Path) -> None:
    """Differences that each pass as a tie do not pass when they are everywhere."""
    loose = Tolerance(largest=99.0, mean=99.0, tie=99.0, identical=0.5)
    model = random_model(tiny_config())
    bundle = tiny_bundle(tmp_path / "bundle", model=model, precision="int8")
    with pytest.raises(ExportError, match=r"translates only [0-5] of 12 .* required are 6"):
        check_parity(bundle, model, tolerance=loose)


def test_a_head_of_the_wrong_width_is_refused(tmp_path: Path) -> None:
    config = tiny_config(d_model=36, num_heads=3)
    checkpoint = save(tmp_path / "checkpoint", Transformer(config).eval())
    with pytest.raises(ExportError, match=r"d_model / num_heads is 12, .*multiple of 8"):
        export_checkpoint(checkpoint, tmp_path / "bundle", ExportOptions("fp32"))


def test_bad_options_are_named(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="precision must be one of fp32, fp16, int8, not 'int4'"):
        export_checkpoint(checkpoint, tmp_path / "bundle", ExportOptions("int4"))
    with pytest.raises(ExportError, match="top_k must be between"):
        export_checkpoint(
            checkpoint, tmp_path / "bundle", ExportOptions("fp32", top_k=VOCAB_SIZE + 1)
        )
    with pytest.raises(CheckpointError, match="nowhere"):
        export_checkpoint(tmp_path / "nowhere", tmp_path / "bundle", ExportOptions("fp32"))
    assert not list(tmp_path.iterdir())


def test_a_weight_too_large_for_half_precision_is_refused(tmp_path: Path) -> None:
    model = Transformer(tiny_config()).eval()
    with torch.no_grad():
        model.encoder.get_parameter("layers.0.feed_forward.inner.weight")[0, 0] = 1e5
    with pytest.raises(ExportError, match="too large for float16"):
        export_checkpoint(
            save(tmp_path / "checkpoint", model), tmp_path / "bundle", ExportOptions("fp16")
        )
