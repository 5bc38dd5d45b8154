"""Scores of the model that ships, in half precision on the device, against PyTorch in float32."""

from __future__ import annotations

import numpy as np
import torch

from model.bundle.sessions import SessionSettings
from service.domain.plan import ScoreItem
from service.runtime.scoring import OnnxScorer

from .conftest import Case, device


def test_scores_are_pytorchs(case: Case) -> None:
    sources = case.sources[:32]
    # Each with the next one's as its translation: most are improbable, which strains halves most.
    items = [ScoreItem(*pair) for pair in zip(sources, [*sources[1:], sources[0]], strict=True)]
    scorer = OnnxScorer(case.bundle, SessionSettings(device()), None)
    scorer.prepare()
    model = case.model.float()
    where = next(model.parameters()).device
    layer, head = case.bundle.alignment_layer, case.bundle.alignment_head
    assert layer is not None
    for item, score in zip(items, scorer.score(items), strict=True):
        source = torch.tensor([item.source_ids], device=where)
        fed = torch.tensor([[model.config.bos_id, *item.target_ids[:-1]]], device=where)
        with torch.inference_mode():
            everything = model(source, fed)[0].double().log_softmax(-1)
            every = model.attention_weights(source, fed).decoder_cross[layer][0]
        weights = every.mean(0) if head is None else every[head]
        expected = everything[range(len(item.target_ids)), list(item.target_ids)].cpu().numpy()
        assert np.abs(score.log_probabilities - expected).max() < 0.1
        assert np.abs(score.attention - weights.cpu().numpy()).max() < 0.05
        assert np.abs(score.attention.sum(axis=1) - 1.0).max() < 1e-3
