"""8-bit caches: steps that fit, bundles that say so, and the same translations any way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.bundle_writer import ExportOptions
from export.calibration import caches_in_int8, calibrated_steps
from export.exporter import export_checkpoint
from export.parity import SENTENCES
from export.rounding import rounding_differences
from export.torch_outputs import ForcedTranslation
from model.bundle.bundle import Bundle
from model.bundle.manifest import BundleCorruptError, edited_manifest
from model.bundle.sessions import SessionSettings, open_session
from model.evaluation.evaluation import translate_ids
from model.network.checkpoint import save_checkpoint
from model.network.transformer import Transformer
from service.domain.plan import ScoreItem
from service.runtime.cpu.runner import OnnxRunner
from service.runtime.scoring import OnnxScorer
from tests.factories import random_model, random_sources, tiny_bundle, tiny_config, tiny_tokenizer
from tests.runner_loops import greedy_steps


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tiny_bundle(tmp_path_factory.mktemp("int8") / "bundle", precision="int8 caches")


def test_the_largest_number_of_each_channel_has_a_margin(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    tokenizer = tiny_tokenizer(tmp_path)
    steps = calibrated_steps(model, tokenizer, SENTENCES)
    blocks = [f"decoder.layers.{layer}" for layer in range(model.config.num_decoder_layers)]
    both = ("cross_attention", "self_attention")
    assert sorted(steps) == [f"{block}.{kind}" for block in blocks for kind in both]
    longest = model.config.num_source_positions - 1
    sources = [[*tokenizer.encode(text)[:longest], model.config.eos_id] for text in SENTENCES]
    targets = translate_ids(model, sources)
    for block, layer in zip(blocks, model.decoder.each_layer(), strict=True):
        seen: dict[str, list[torch.Tensor]] = {kind: [] for kind in both}
        found: dict[str, list[torch.Tensor]] = {kind: [] for kind in both}
        hook = layer.self_attention.register_forward_pre_hook(
            lambda module, given, to=seen["self_attention"]: to.append(given[0][0])
        )
        with torch.inference_mode():
            for source, target in zip(sources, targets, strict=True):
                memory = model.encode(torch.tensor([source]))
                seen["cross_attention"].append(memory[0])
                model.decode_hidden(torch.tensor([[model.config.bos_id, *target]]), memory)
            for kind in both:
                attention = getattr(layer, kind)
                states = torch.cat(seen[kind])  # [all positions, D]
                found[kind] = [attention.key(states), attention.value(states)]
        hook.remove()
        for kind in both:
            for numbers, step in zip(found[kind], steps[f"{block}.{kind}"], strict=True):
                reach = numbers.abs().amax(0).numpy() / step
                assert np.abs(reach - 127 / 1.4).max() < 0.5


def test_a_channel_that_is_always_zero_has_a_step(tmp_path: Path) -> None:
    model = random_model(tiny_config())
    with torch.no_grad():
        for layer in model.decoder.each_layer():
            layer.self_attention.key.weight[3] = 0.0
            layer.self_attention.key.bias[3] = 0.0
    steps = calibrated_steps(model, tiny_tokenizer(tmp_path), SENTENCES[:2])
    assert steps["decoder.layers.0.self_attention"][0][3] == 1.0


def test_what_the_encoder_stores_is_what_the_step_reads(bundle: Bundle) -> None:
    """The step writes the last source position once more: no bit of the cache may change."""
    runner = OnnxRunner(bundle, max_rows=8, intra_op_threads=1)
    greedy_steps(runner, random_sources(bundle.config, 8), 1)
    before = [array.copy() for array in runner.cache.cross_attention]
    assert all(array.dtype == np.int8 and array.any() for array in before)
    runner.follow_up()
    for array, copied in zip(runner.cache.cross_attention, before, strict=True):
        assert (array == copied).all()
    fresh = OnnxRunner(bundle, max_rows=8, intra_op_threads=1)
    encoded = fresh.encode(random_sources(bundle.config, 8))
    for row, source in enumerate(random_sources(bundle.config, 8)):
        fresh.cache.write_source([row], encoded.sources[row], len(source))
    for array, stored in zip(before, fresh.cache.cross_attention, strict=True):
        assert (array == stored).all()


def test_rounding_caches_is_part_of_what_rounding_changes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Transformer(tiny_config()).eval()
    batch = [
        ForcedTranslation(index, source, [5, 6, 7, model.config.eos_id])
        for index, source in enumerate(random_sources(model.config, 4))
    ]
    steps = calibrated_steps(model, tiny_tokenizer(tmp_path), SENTENCES)
    coarse = {block: (key * 16, value * 16) for block, (key, value) in steps.items()}
    plain, fine, rough = (
        rounding_differences(model, [batch], 4, used).mean for used in ({}, steps, coarse)
    )
    assert fine < (plain + rough) / 2 < rough


def test_scores_are_those_of_the_steps(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Transformer(tiny_config()).eval()  # as training begins: well conditioned
    bundle = tiny_bundle(tmp_path / "bundle", model=model, precision="int8 caches")
    source = random_sources(bundle.config, 3, seed=4)[2]
    runner = OnnxRunner(bundle, max_rows=1, intra_op_threads=1)
    outputs = greedy_steps(runner, [source], 6)
    target = tuple(int(output.top_ids[0, 0]) for output in outputs)
    wanted = [float(output.top_logits[0, 0] - output.log_sum_exp[0]) for output in outputs]
    scorer = OnnxScorer(bundle, SessionSettings(intra_op_threads=1), None)
    scorer.prepare()
    [score] = scorer.score([ScoreItem(source, target)])
    assert np.abs(score.log_probabilities - wanted).max() < 0.1


@pytest.mark.parametrize(
    ("traits", "options", "expected"),
    [
        ({"d_model": 512, "num_heads": 8}, ExportOptions("int8"), True),
        ({"d_model": 384, "num_heads": 6}, ExportOptions("int8"), False),
        ({"d_model": 512, "num_heads": 8}, ExportOptions("fp32"), False),
        ({"d_model": 512, "num_heads": 8}, ExportOptions("int8", resident=True), False),
        ({"d_model": 512, "num_heads": 8, "decoder": "ssru"}, ExportOptions("int8"), False),
        (
            {"d_model": 512, "num_heads": 8, "cross_attention": "linformer", "attention_rank": 8},
            ExportOptions("int8"),
            False,
        ),
    ],
    ids=["wide", "narrow", "fp32", "gpu", "recurrent", "low rank"],
)
def test_bundles_get_them_where_they_pay(
    traits: dict[str, Any], options: ExportOptions, expected: bool
) -> None:
    config = tiny_config(**traits)
    assert caches_in_int8(config, options, in_language=True) is expected
    assert not caches_in_int8(config, options, in_language=False)


@pytest.mark.parametrize(
    ("source", "sentences", "dtype"),
    [("en", None, "int8"), ("de", None, "float32"), ("de", SENTENCES[:3], "int8")],
    ids=["english", "german", "german, measured"],
)
def test_an_export_measures_them(
    tmp_path: Path, source: str, sentences: Sequence[str] | None, dtype: str
) -> None:
    torch.manual_seed(0)
    model = Transformer(
        tiny_config(d_model=512, num_heads=8, num_encoder_layers=1, num_decoder_layers=1)
    ).eval()
    languages = {"source": source, "target": "fr"}
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer", model.config.vocab_size)
    save_checkpoint(tmp_path / "checkpoint", model, tokenizer, languages=languages, provenance={})
    options = ExportOptions("int8")
    for name in ("first", "second"):
        export_checkpoint(tmp_path / "checkpoint", tmp_path / name, options, sentences, threads=1)
    bundle = Bundle.load(tmp_path / "first")
    assert bundle.cache_dtype == dtype
    assert bundle.manifest_sha256 == Bundle.load(tmp_path / "second").manifest_sha256


def test_a_manifest_that_contradicts_the_graphs_is_refused(tmp_path: Path) -> None:
    settings = SessionSettings(intra_op_threads=1)
    damaged = tiny_bundle(tmp_path / "without", precision="int8 caches").path
    with edited_manifest(damaged) as fields:
        del fields["caches"]
    bundle = Bundle.load(damaged)
    with pytest.raises(BundleCorruptError, match=r"caches is missing, but cross_key_0 of encoder"):
        open_session(bundle, bundle.encoder_path, settings)
    damaged = tiny_bundle(tmp_path / "with", precision="int8").path
    with edited_manifest(damaged) as fields:
        fields["caches"] = {"dtype": "int8"}
    bundle = Bundle.load(damaged)
    with pytest.raises(BundleCorruptError, match=r"caches.dtype is int8, but past_key_0"):
        open_session(bundle, bundle.decoder_step_path, settings)
    with edited_manifest(damaged) as fields:
        fields["caches"] = {"dtype": "int4"}
    with pytest.raises(BundleCorruptError, match=r"caches.dtype is int8 in bundles of precision"):
        Bundle.load(damaged)
