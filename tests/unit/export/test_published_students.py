"""Students as they are published: our files have their layout and sizes, and theirs are read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bench.random_student import random_student
from export.errors import ExportError
from export.marian.binary import INTGEMM8
from export.marian.binary_writer import WrittenItem, binary, int8_items
from export.students.network import StudentNetwork, their_name
from export.students.options import student_options
from export.students.writer import observed_alphas, student_arrays, with_alphas
from model.network.transformer import Transformer
from tests.marian_files import converted
from tests.students import arrays_of, student_config

# Options of the base-memory models with one vocabulary, and what other models have in their place.
PUBLISHED = json.loads((Path(__file__).parents[2] / "published_students.json").read_text())
SMALL: dict[str, Any] = dict(d_model=64, ffn_dim=96, num_encoder_layers=2, num_decoder_layers=2)


def options_of(group: dict[str, Any]) -> dict[str, Any]:
    options = {**PUBLISHED["options"], **group["options"]}
    return {name: value for name, value in options.items() if name not in group["without"]}


def shape_of(group: dict[str, Any]) -> tuple[str, int, str]:
    """The preset of a group's models, their vocabulary's size, and how they tie embeddings."""
    options = options_of(group)
    (kind,) = {name.partition("/")[0] for name in group["models"].split()}
    tying = "all" if options["tied-embeddings-all"] else "target"
    return f"student-{kind}", options["dim-vocabs"][0], tying


def test_the_files_that_are_written_have_the_published_sizes() -> None:
    """Sizes of all 137 models in bytes and in parameters, for weights of zeros."""
    num_models = 0
    for shape, groups in groupby(sorted(PUBLISHED["groups"], key=shape_of), key=shape_of):
        name, size, tying = shape
        items = int8_items(zeros(name, size, tying))
        for group in groups:
            assert len(binary(items, options_of(group))) == group["byteSize"], group
            assert sum(math.prod(item.shape) for item in items.values()) == group["parameters"]
            assert decoder_bytes(items) == group["decoderBytes"]
            num_models += len(group["models"].split())
    assert num_models == 137


def decoder_bytes(items: Mapping[str, WrittenItem]) -> int:
    """Bytes of the decoder's numbers as they are published: they say what has 8 bits."""
    return sum(
        math.prod(item.shape) * (1 if item.kind == INTGEMM8 else 4)
        for name, item in items.items()
        if name.startswith("decoder_")
    )


def zeros(name: str, size: int, tying: str) -> dict[str, Any]:
    """Arrays of a student, all zeros, and its alphas."""
    with torch.device("meta"):
        model = Transformer(student_config(name, size, embedding_tying=tying))
    states = {n: torch.zeros(()).expand(tensor.shape) for n, tensor in model.state_dict().items()}
    model.load_state_dict(states, assign=True)
    alphas = {n: 16.0 for n, module in model.named_modules() if isinstance(module, nn.Linear)}
    return with_alphas(student_arrays(model, range(size)), alphas)


def test_the_options_that_are_written_are_the_published_ones() -> None:
    written = student_options(student_config("student-base-memory", 32_000), 32_000)
    assert written == {**PUBLISHED["options"], "version": "v1.12.14"}
    assert "v1.12.14" in PUBLISHED["options"]["version"]


@pytest.fixture(scope="module", params=["all", "target"])
def network(request: pytest.FixtureRequest) -> Transformer:
    return random_student(student_config(**SMALL, embedding_tying=request.param))


def marian_alphas(model: Transformer) -> dict[str, float]:
    """Alphas by the names of Marian's matrices."""
    output = "Wemb" if model.config.embedding_tying == "all" else "decoder_Wemb"
    return {
        output if name == "output_projection" else their_name(f"{name}.weight"): alpha
        for name, alpha in observed_alphas(model, [(5, 6, 0)]).items()
    }


def own_options(model: Transformer) -> dict[str, Any]:
    return student_options(model.config, model.config.bos_id)


def test_our_files_are_marian_s_byte_for_byte(network: Transformer) -> None:
    items = int8_items(with_alphas(arrays_of(network), observed_alphas(network, [(5, 6, 0)])))
    options = own_options(network)
    expected = converted(arrays_of(network), marian_alphas(network), options)
    assert binary(items, options) == expected


def test_files_are_read_with_the_options_of_each_published_model(
    network: Transformer, tmp_path: Path
) -> None:
    is_shared, num_read = network.config.embedding_tying == "all", 0
    alphas, sizes = marian_alphas(network), own_options(network)
    for options in map(options_of, PUBLISHED["groups"]):
        if options["tied-embeddings-all"] is not is_shared:
            continue
        small = {k: sizes[k] for k in options if k in sizes and ("dim" in k or "depth" in k)}
        file = tmp_path / f"model{num_read}.bin"
        file.write_bytes(converted(arrays_of(network), alphas, options | small))
        found = StudentNetwork.read(file)
        given = (network.config.bos_id,) * 2
        assert found.config(given, 0, 1).embedding_tying == network.config.embedding_tying
        assert found.precision == "intgemm8 with alphas"
        output = alphas["Wemb" if is_shared else "decoder_Wemb"]
        assert found.alphas["output_projection"] == pytest.approx(output, rel=1e-6)
        assert len(found.alphas) == len(alphas)
        num_read += 1
    assert num_read == (18 if is_shared else 2)


OUTPUT_ALPHAS = {"none_QuantMultA", "Wemb_QuantMultA", "decoder_Wemb_QuantMultA"}


@pytest.mark.parametrize(
    "kept", [{"none_QuantMultA"}, {"Wemb_QuantMultA"}, {"decoder_Wemb_QuantMultA"}, set()]
)
def test_any_alpha_of_the_output_is_enough(
    network: Transformer, tmp_path: Path, kept: set[str]
) -> None:
    """With two vocabularies, a script of some years ago called it that of one vocabulary."""
    arrays = with_alphas(arrays_of(network), observed_alphas(network, [(5, 6, 0)]))
    arrays = {name: array for name, array in arrays.items() if name not in OUTPUT_ALPHAS}
    arrays |= dict.fromkeys(kept, np.full((1, 1), 15.875, np.float32))
    file = tmp_path / "model.bin"
    file.write_bytes(binary(int8_items(arrays), own_options(network)))
    if kept:
        assert StudentNetwork.read(file).alphas["output_projection"] == 15.875
    else:
        with pytest.raises(ExportError, match=f"{file}: there is none of none_QuantMultA, Wemb_"):
            StudentNetwork.read(file)
