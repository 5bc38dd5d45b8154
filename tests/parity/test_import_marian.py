"""Native Marian models translate by Marian's own formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dragoman import Search, VerbatimKinds
from export.bundle_writer import ExportOptions
from export.huggingface.architectures import read_config
from export.huggingface.vocabularies import read_vocabularies
from export.huggingface.weights import read_model
from export.importer import import_directory
from export.marian.directory import MarianDirectory
from model.bundle.bundle import Bundle
from service.domain.requests import SearchOptions
from tests.integration.servers import running_bundle
from tests.native_marian import MarianForward, write_native_marian

CASES: dict[str, dict[str, Any]] = {
    "post": {},
    "pre": {"norm": "pre", "transformer-ffn-activation": "relu"},
    "learned positions": {"transformer-train-positions": True},
    "output tied": {"tied-embeddings-all": False, "tied-embeddings": True},
    "nothing tied": {"tied-embeddings-all": False, "tied-embeddings": False},
}


@pytest.mark.parametrize("name", CASES)
def test_networks_agree(tmp_path: Path, name: str) -> None:
    arrays = write_native_marian(tmp_path / "model", **CASES[name])
    directory = MarianDirectory.read(tmp_path / "model")
    vocabularies = read_vocabularies(directory, "en", "de")
    config = read_config(directory, vocabularies.num_pieces, vocabularies.unk_id)
    model = read_model(directory, config)
    draw, num_tokens = np.random.default_rng(0), vocabularies.num_pieces
    for _ in range(5):
        source = [*draw.integers(1, num_tokens, draw.integers(1, 9)).tolist(), 0]
        target = [*draw.integers(1, num_tokens, draw.integers(1, 9)).tolist(), 0]
        expected = MarianForward(arrays).log_probabilities(source, target)
        with torch.inference_mode():
            ids, fed = torch.tensor([source]), torch.tensor([[config.bos_id, *target[:-1]]])
            mask = torch.ones_like(ids, dtype=torch.bool)
            logits = model.decode(fed, model.encode(ids, mask), mask)[0].double()
        found = logits.log_softmax(dim=-1).numpy()
        np.testing.assert_allclose(found[:, :num_tokens], expected, rtol=0, atol=1e-4)
        assert np.exp(found[:, num_tokens:]).sum() == 0.0


async def test_a_served_model_translates_as_marian(tmp_path: Path) -> None:
    arrays = write_native_marian(tmp_path / "model", **CASES["nothing tied"])
    imported = import_directory(
        tmp_path / "model", tmp_path / "bundle", ExportOptions("fp32"), ("en", "de"), threads=1
    )
    assert imported.agreement is None
    bundle = Bundle.load(tmp_path / "bundle")
    assert bundle.manifest["provenance"]["imported_from"]["architecture"] == "Marian"
    assert bundle.search["beam_size"] == 6
    SearchOptions(**bundle.search)
    tokenizer = bundle.tokenizer()
    texts = ["A dog is running.", "Two men are playing.", "It goes on and on in 1969."]
    sources = [[*tokenizer.encode(text), 0] for text in texts]
    async with running_bundle(bundle.path, in_process=True) as real:
        batch = await real.client.translate(
            texts, max_new_tokens=20, search=Search(beam_size=1), verbatim=VerbatimKinds.none()
        )
    found = [translation.text for translation in batch.translations]
    forward = MarianForward(arrays)
    assert found == [tokenizer.target.decode(forward.translate(s, 20)) for s in sources]
    assert len({*found}) == len(texts)
