"""Random models in the files of Firefox's translation models (Bergamot students)."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece
import torch
import yaml
from torch import nn

from model.bundle.config import ModelConfig, preset
from model.network.transformer import Transformer
from tests.foreign_models import TEXTS

Array = npt.NDArray[Any]
FLOAT32, INT8, INTGEMM8, INTGEMM16 = 0x0404, 0x0101, 0x4101, 0x4102
VOCAB_SIZE = 180
_BLOCK = 256

_PARTS = {
    "self_attention": "self",
    "cross_attention": "context",
}
_PROJECTIONS = {"query": "q", "key": "k", "value": "v", "output": "o"}


def vocabulary(texts: Sequence[str] = TEXTS, size: int = VOCAB_SIZE) -> bytes:
    """A SentencePiece model of so many pieces, with the special ones of students."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=size,
        model_type="unigram",  # as Mozilla's; fxtranslate cuts texts in no other way
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=-1,
        character_coverage=0.98,
        minloglevel=2,
    )
    return model.getvalue()


def student_config(size: str = "student-tiny", **changes: Any) -> ModelConfig:
    """A student as the reader makes one of a vocabulary of `VOCAB_SIZE`."""
    ids = dict(pad_id=VOCAB_SIZE, bos_id=VOCAB_SIZE, eos_id=0, unk_id=1)
    return preset(size, VOCAB_SIZE + 1, **{**ids, "dropout": 0.0, **changes})


def random_student(config: ModelConfig, seed: int = 0) -> Transformer:
    """Weights that make varied translations which end now and then."""
    torch.manual_seed(seed)
    model = Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            unit = parameter.size(-1) ** -0.5
            if name.endswith("norm.weight"):
                parameter.uniform_(0.7, 1.3)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.1)
            elif "query" in name or "key" in name:
                parameter.normal_(0.0, 3.0 * unit)
            else:
                parameter.normal_(0.0, 0.5 * unit)
        # The last network turns each state, or a translation would be one token again and again.
        last, width = list(model.decoder.each_layer())[-1].feed_forward, config.d_model
        turn = torch.linalg.qr(torch.randn(width, width))[0]
        last.inner.weight.normal_(0.0, width**-0.5)
        last.inner.bias.zero_()
        last.outer.weight.copy_(12 * width / config.ffn_dim * turn @ last.inner.weight.T)
        model.output_projection.bias[0] = 1.0
    return model


def arrays_of(model: Transformer) -> dict[str, Array]:
    """Marian's arrays by name, matrices [in, out]."""
    config, found = model.config, dict[str, Array]()
    size = config.bos_id

    def norm(name: str, module: Any) -> None:
        found[f"{name}_scale"] = module.weight.detach().numpy()[None]
        found[f"{name}_bias"] = module.bias.detach().numpy()[None]

    def linear(weight: str, bias: str | None, module: nn.Linear) -> None:
        found[weight] = module.weight.detach().numpy().T
        if bias is not None:
            found[bias] = module.bias.detach().numpy()[None]

    stacks: dict[str, Any] = {"encoder": model.encoder.layers, "decoder": model.decoder.layers}
    for stack, layers in stacks.items():
        for number, layer in enumerate(layers, start=1):
            prefix = f"{stack}_l{number}"
            for ours, theirs in _PARTS.items():
                if (attention := getattr(layer, ours, None)) is None:
                    continue
                for projection, letter in _PROJECTIONS.items():
                    name = f"{prefix}_{theirs}_"
                    linear(f"{name}W{letter}", f"{name}b{letter}", getattr(attention, projection))
                norm(f"{prefix}_{theirs}_Wo_ln", getattr(layer, f"{ours}_norm"))
            if stack == "decoder":
                linear(f"{prefix}_rnn_W", None, layer.recurrence.candidate)
                linear(f"{prefix}_rnn_Wf", f"{prefix}_rnn_bf", layer.recurrence.forget)
                norm(f"{prefix}_rnn_ffn_ln", layer.recurrence_norm)
            linear(f"{prefix}_ffn_W1", f"{prefix}_ffn_b1", layer.feed_forward.inner)
            linear(f"{prefix}_ffn_W2", f"{prefix}_ffn_b2", layer.feed_forward.outer)
            norm(f"{prefix}_ffn_ffn_ln", layer.feed_forward_norm)
    target = model.target_embedding.weight.detach().numpy()[:size]
    if config.embedding_tying == "all":
        found["Wemb"] = target
    else:
        found["encoder_Wemb"] = model.source_embedding.weight.detach().numpy()[:size]
        found["decoder_Wemb"] = target
    found["decoder_ff_logit_out_b"] = model.output_projection.bias.detach().numpy()[None, :size]
    return found


def options_of(config: ModelConfig, **changes: Any) -> dict[str, Any]:
    """`special:model.yml`, with what `mozilla/translations` trains students with."""
    shared = config.embedding_tying == "all"
    return {
        "type": "transformer",
        "dim-emb": config.d_model,
        "dim-vocabs": [config.bos_id, config.bos_id],
        "enc-depth": config.num_encoder_layers,
        "dec-depth": config.num_decoder_layers,
        "dec-cell": "ssru",
        "transformer-decoder-autoreg": "rnn",
        "transformer-heads": config.num_heads,
        "transformer-dim-ffn": config.ffn_dim,
        "transformer-decoder-dim-ffn": 0,
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": "relu",
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "",
        "transformer-rnn-projection": False,
        "transformer-guided-alignment-layer": "last",
        "transformer-train-positions": False,
        "tied-embeddings": not shared,
        "tied-embeddings-all": shared,
        "tied-embeddings-src": False,
        "version": "v1.9.56",
        **changes,
    }


def alphas_of(model: Transformer, sources: Sequence[Sequence[int]]) -> dict[str, float]:
    """Multipliers of activations, by our names of the matrices: 127 over the largest seen."""
    largest: dict[str, float] = {}
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):

            def record(_: nn.Module, given: tuple[torch.Tensor], name: str = name) -> None:
                largest[name] = max(largest.get(name, 0.0), given[0].abs().max().item())

            hooks.append(module.register_forward_pre_hook(record))
    with torch.inference_mode():
        for source in sources:
            ids = torch.tensor([source])
            model(ids, torch.cat((torch.tensor([[model.config.bos_id]]), ids), dim=1))
    for hook in hooks:
        hook.remove()
    return {name: 127.0 / value for name, value in largest.items()}


def int8_items(
    model: Transformer, alphas: Mapping[str, float]
) -> dict[str, tuple[int, Any, bytes]]:
    """Items of an intgemm8 file with alphas: type, shape and data by name."""
    items: dict[str, tuple[int, Any, bytes]] = {}
    by_matrix = {
        name: array.T for name, array in arrays_of(model).items() if name.split("_")[-1][0] == "W"
    }
    named = {id_of(parameter): name for name, parameter in model.named_parameters()}
    for name, array in arrays_of(model).items():
        if name.endswith("Wemb"):
            items[name] = (INTGEMM8, array.shape, quantized(array))
        elif name in by_matrix:
            items[name] = (INTGEMM8, array.shape, quantized(array.T))
            ours = named[array.ctypes.data].removesuffix(".weight")
            alpha = np.float32(alphas[ours])
            items[f"{name}_QuantMultA"] = (FLOAT32, (1, 1), alpha.tobytes())
        else:
            items[name] = (FLOAT32, array.shape, array.astype("<f4").tobytes())
    out = np.float32(alphas["output_projection"])
    items["none_QuantMultA"] = (FLOAT32, (1, 1), out.tobytes())
    return items


def id_of(parameter: torch.Tensor) -> int:
    """The address of its numbers, which its NumPy views share."""
    return parameter.data_ptr()


def quantized(matrix: Array, dtype: str = "<i1", levels: int = 127) -> bytes:
    """Integers and their multiplier."""
    multiplier = np.float32(levels / np.abs(matrix).max())
    values = np.clip(np.rint(matrix * multiplier), -levels, levels).astype(dtype)
    data: bytes = values.tobytes() + multiplier.astype("<f4").tobytes()
    return data


def float_items(arrays: Mapping[str, Array]) -> dict[str, tuple[int, Any, bytes]]:
    """Items of a float32 file."""
    return {n: (FLOAT32, a.shape, a.astype("<f4").tobytes()) for n, a in arrays.items()}


def binary(
    items: Mapping[str, tuple[int, Any, bytes]], options: Mapping[str, Any] | None = None
) -> bytes:
    """A file in Marian's binary format."""
    every = dict(items)
    if options is not None:
        text = yaml.safe_dump(dict(options)).encode() + b"\0"
        every["special:model.yml"] = (INT8, (len(text),), text)
    padded = {n: data + bytes(-len(data) % _BLOCK) for n, (_, _, data) in every.items()}
    head = struct.pack("<QQ", 1, len(every))
    for name, (kind, shape, _) in every.items():
        head += struct.pack("<4Q", len(name.encode()) + 1, kind, len(shape), len(padded[name]))
    head += b"".join(name.encode() + b"\0" for name in every)
    head += b"".join(struct.pack(f"<{len(s)}i", *s) for _, s, _ in every.values())
    offset = -(len(head) + 8) % _BLOCK
    return head + struct.pack("<Q", offset) + bytes(offset) + b"".join(padded.values())


def write_student(
    directory: Path,
    model: Transformer,
    sources: Sequence[Sequence[int]] = ((5, 6, 7, 0), (40, 170, 20, 99, 123, 0)),
    **changes: Any,
) -> None:
    """An int8 student for en-de with one vocabulary, as it is published."""
    directory.mkdir(parents=True, exist_ok=True)
    items = int8_items(model, alphas_of(model, sources))
    content = binary(items, options_of(model.config, **changes))
    (directory / "model.ende.intgemm.alphas.bin").write_bytes(content)
    if model.config.embedding_tying == "all":
        (directory / "vocab.ende.spm").write_bytes(vocabulary())
    else:
        (directory / "srcvocab.ende.spm").write_bytes(vocabulary())
        upper = [text.upper() for text in TEXTS]
        (directory / "trgvocab.ende.spm").write_bytes(vocabulary(upper))
