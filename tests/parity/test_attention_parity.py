"""Attention weights equal PyTorch's, for any selection, and those of the alignment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from model.network.checkpoint import Checkpoint
from model.network.transformer import Transformer
from service.domain.attention import AttentionKind, AttentionSelection, AttentionShape
from service.domain.plan import Float32, ScoreItem, TargetScore
from service.runtime.scoring import OnnxScorer
from tests.factories import random_model, tiny_bundle, tiny_config

CROSS, ENCODER, DECODER = AttentionKind
MODELS: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "activation": "gelu", "positions": "learned", "num_decoder_layers": 3},
    {"d_model": 24, "num_heads": 3, "embedding_tying": "none", "output_bias": True},
    {"encoder_attention": "local", "attention_window": 3},
    {"encoder_attention": "strided", "attention_window": 3, "num_heads": 3, "d_model": 24},
    {"encoder_attention": "linformer", "attention_rank": 6},
    {"cross_attention": "linformer", "attention_rank": 6},
    {"decoder": "ssru", "embed_start": False, "positions": "marian"},
]
LENGTHS = ((1, 1), (2, 5), (5, 1), (17, 12), (40, 33))


def ids(fields: dict[str, Any]) -> str:
    return "-".join(map(str, fields.values()))


def scorer_for(bundle: Bundle) -> OnnxScorer:
    scorer = OnnxScorer(bundle, SessionSettings(intra_op_threads=1), None)
    scorer.prepare("attention")
    return scorer


def everything(bundle: Bundle, *kinds: AttentionKind, **averages: bool) -> AttentionSelection:
    shape = AttentionShape.of(bundle)
    assert shape is not None
    layers = {kind: tuple(range(shape.num_layers(kind))) for kind in kinds or AttentionKind}
    wanted = tuple((kind, numbers) for kind, numbers in layers.items() if numbers)
    return AttentionSelection(wanted, tuple(range(shape.num_heads)), **averages)


def item(
    source: int, target: int, selection: AttentionSelection | None, seed: int = 0
) -> ScoreItem:
    generator = np.random.default_rng(seed)
    sides = [(*generator.integers(4, 320, length - 1).tolist(), 3) for length in (source, target)]
    return ScoreItem(sides[0], sides[1], selection)


@torch.inference_mode()
def reference(model: Transformer, given: ScoreItem) -> dict[AttentionKind, list[Float32]]:
    """PyTorch's weights [heads, rows, columns] for each layer."""
    record = model.attention_weights(
        torch.tensor([given.source_ids]),
        torch.tensor([[model.config.bos_id, *given.target_ids[:-1]]]),
    )
    recorded = {CROSS: record.decoder_cross, ENCODER: record.encoder, DECODER: record.decoder_self}
    return {kind: [layer[0].numpy() for layer in layers] for kind, layers in recorded.items()}


def by_label(selection: AttentionSelection, score: TargetScore) -> dict[Any, Float32]:
    labels = [(label.kind, label.layer, label.head) for label in selection.labels()]
    return dict(zip(labels, score.weights, strict=True))


def check(
    model: Transformer, given: ScoreItem, score: TargetScore, tolerance: float = 1e-3
) -> None:
    """Compare weights, by default within the rounding errors of random weights' huge logits."""
    assert given.selection is not None
    expected = reference(model, given)
    for (kind, layer, head), weights in by_label(given.selection, score).items():
        assert np.abs(weights - expected[kind][layer][head]).max() < tolerance
        assert np.abs(weights.sum(axis=1) - 1.0).max() < 1e-5


@pytest.mark.parametrize("fields", MODELS, ids=ids)
def test_weights_are_pytorch_s(tmp_path: Path, fields: dict[str, Any]) -> None:
    model = random_model(tiny_config(**fields))
    bundle = tiny_bundle(tmp_path / "bundle", model=model)
    selection = everything(bundle)
    items = [item(*lengths, selection, seed) for seed, lengths in enumerate(LENGTHS)]
    for given, score in zip(items, scorer_for(bundle).score(items), strict=True):
        check(model, given, score)


def test_hashed_encoders_show_the_decoder_s(tmp_path: Path) -> None:
    model = random_model(tiny_config(encoder_attention="lsh", attention_window=5))
    bundle = tiny_bundle(tmp_path / "bundle", model=model)
    given = item(17, 12, everything(bundle, CROSS, DECODER))
    check(model, given, scorer_for(bundle).score([given])[0])


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_part_has_the_same_bits_as_everything(tmp_path: Path, precision: str) -> None:
    """Layers, heads and kinds in any order; means; neighbours have no effect."""
    bundle = tiny_bundle(tmp_path / "bundle", precision=precision, num_heads=4)
    scorer = scorer_for(bundle)
    scorer.prepare()
    whole = everything(bundle)
    score = scorer.score([item(17, 12, whole)])[0]
    found = by_label(whole, score)
    part = AttentionSelection(((DECODER, (1,)), (ENCODER, (1, 0))), (2, 0))
    others = [item(9, 9, None), item(17, 12, part), item(9, 9, whole)]
    for label, weights in by_label(part, scorer.score(others)[1]).items():
        assert weights.tobytes() == found[label].tobytes()
    for averages in ({"average_heads": True}, {"average_layers": True}):
        mean = everything(bundle, CROSS, **averages)
        for (kind, layer, head), weights in by_label(
            mean, scorer.score([item(17, 12, mean)])[0]
        ).items():
            among = [
                each
                for (k, *place), each in found.items()
                if k is kind
                and all(want in (None, has) for want, has in zip((layer, head), place, strict=True))
            ]
            np.testing.assert_allclose(weights, np.mean(among, axis=0), atol=1e-6)
    both = everything(bundle, average_heads=True, average_layers=True)
    assert len(scorer.score([item(17, 12, both)])[0].weights) == 3


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_of_the_model_that_ships(
    precision: str, shipped_checkpoint: Checkpoint, shipped_bundles: dict[str, Bundle]
) -> None:
    """In int8, the weights equal those of the translating graphs, including the alignment."""
    bundle = shipped_bundles[precision]
    tokenizer, selection = bundle.tokenizer(), everything(bundle)
    given = ScoreItem(
        (*tokenizer.encode("I don't think that we have met before."), tokenizer.eos_id),
        (*tokenizer.encode("Ich glaube nicht, dass wir uns kennen."), tokenizer.eos_id),
        selection,
    )
    scorer = scorer_for(bundle)
    scorer.prepare()
    shown = scorer.score([given])[0]
    scored = scorer.score([ScoreItem(given.source_ids, given.target_ids)])[0]
    found = by_label(selection, shown)
    if precision == "fp32":
        check(shipped_checkpoint.model, given, shown, 1e-4)
    head = bundle.alignment_head
    heads = range(bundle.config.num_heads) if head is None else [head]
    aligned = np.mean([found[CROSS, bundle.alignment_layer, h] for h in heads], axis=0)
    tolerance = 1e-5 if precision == "fp32" else 0.02
    assert np.abs(aligned - scored.attention).max() < tolerance
    assert np.abs(shown.log_probabilities - scored.log_probabilities).max() < 10 * tolerance
