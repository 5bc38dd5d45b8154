"""A Transformer of realistic size whose outputs have prescribed lengths.

Speed depends on sizes and lengths, not on what the weights mean, so they are random. But a random
model ends its sentences anywhere, and options that force lengths (a minimum, a callback for each
token) exist in one system and not in the other, or cost time. So the weights themselves are made to
end in time: a source with the length word of 27 gets a translation of 27 tokens, from any engine
that computes the model, greedily or with a beam, in float32 and in int8, with nothing forced. All
words are spelt in letters, since the server copies texts that consist of codes such as `w27`.

Nearly all weights are random, but what they write into the residual stream is so small that its
content stays.

- Every target token t has a random embedding, and the logits' row of its successor points along
  it: after t, the successor wins by a margin that the noise can't reach. The tokens count down:
  27, 26, ... 1, end of sentence.
- Only these write to some columns of the stream (the code): the embeddings of the length
  words, and the first cross-attention, which finds the length word by a column that marks it, and
  copies its code. The logits' row of number 27 has the code of 27's length word in it. BOS has no
  successor, so after it the code decides; later the countdown is stronger.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model.bundle.config import ModelConfig, preset

Array = npt.NDArray[np.float32]

MAX_LENGTH = 128
"""The longest translation in tokens, the end-of-sentence token not counted."""

NUM_BYTES = 256
FIRST_LENGTH_WORD = 4 + NUM_BYTES
"""The id of the length word of 1 among the pieces, and of number 1 among the target tokens."""

_SYLLABLES = [consonant + vowel for vowel in "aeiou" for consonant in "bdfgklmnprst"]

_FAINT = 0.12
_CODE_STRENGTH = 2.0
_MARK = 4.0
_SHARP = 6.0
# A beam compares scores per token: where the first token were a little unsure, a wrong long count
# would win over a right short one.
CERTAINTY = 4.0
"""Factor on the logits: as large as a beam needs."""


def speed_config(name: str = "base", vocab_size: int = 32_000, **overrides: Any) -> ModelConfig:
    """The preset's sizes, with what this construction needs.

    Nothing is tied, since the embedding of a token and its row of the logits differ; the
    arithmetic is the same.
    """
    fields = {"positions": "learned", "embedding_tying": "none", "max_positions": 256, **overrides}
    return preset(name, vocab_size, **fields)


def length_word(length: int) -> str:
    """The word that asks for `length` tokens, the end-of-sentence token not counted."""
    return "leng" + _spelt(length, 2)


def word(number: int) -> str:
    """The ordinary word with a number from 0, which is a token of its own."""
    return _spelt(number, 3)


def _spelt(number: int, num_syllables: int) -> str:
    """A number in letters, as syllables that are unlike each other, since "la la la" is copied."""
    ends = "nst"[:num_syllables]
    digits = [number // len(_SYLLABLES) ** place for place in reversed(range(num_syllables))]
    return "".join(
        _SYLLABLES[digit % len(_SYLLABLES)] + end for digit, end in zip(digits, ends, strict=True)
    )


def num_words(config: ModelConfig) -> int:
    """The number of ordinary words."""
    return config.vocab_size - FIRST_LENGTH_WORD - MAX_LENGTH


def write_tokenizer(config: ModelConfig, file: Path) -> None:
    """A SentencePiece model in which every word above is one token."""
    from sentencepiece import sentencepiece_model_pb2

    pb: Any = sentencepiece_model_pb2  # its stubs leave the nested messages out
    kinds = pb.ModelProto.SentencePiece
    special = [
        ("<pad>", kinds.CONTROL), ("<unk>", kinds.UNKNOWN),
        ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL),
    ]  # fmt: skip
    raw = [(f"<0x{byte:02X}>", kinds.BYTE) for byte in range(NUM_BYTES)]
    lengths = [length_word(length) for length in range(1, MAX_LENGTH + 1)]
    words = lengths + [word(number) for number in range(num_words(config))]
    model = pb.ModelProto()
    for piece, kind in [*special, *raw]:
        model.pieces.add(piece=piece, score=0.0, type=kind)
    for text in words:
        model.pieces.add(piece=f"\u2581{text}", score=-1.0, type=kinds.NORMAL)
    model.trainer_spec.model_type = pb.TrainerSpec.UNIGRAM
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = config.vocab_size
    model.trainer_spec.pad_id, model.trainer_spec.unk_id = 0, 1
    model.trainer_spec.bos_id, model.trainer_spec.eos_id = 2, 3
    model.normalizer_spec.name = "identity"
    file.write_bytes(model.SerializeToString())


@dataclass(frozen=True)
class _Columns:
    """The columns of the residual stream that each part writes.

    Attributes:
        num_code: number of the first columns, which hold the code.
        mark: the column that marks length words.
    """

    num_code: int
    mark: int

    @property
    def num_reserved(self) -> int:
        return self.mark + 1


def speed_weights(
    config: ModelConfig, seed: int = 0, certainty: float = CERTAINTY
) -> dict[str, Array]:
    """The state dict of `model.network.transformer.Transformer`, as described above.

    Args:
        certainty: factor on the logits.
    """
    wanted = ("post", "none", "learned", True)
    fields = (config.norm, config.embedding_tying, config.positions, config.scale_embeddings)
    assert fields == wanted, "see speed_config"
    assert config.d_model >= 256, "a narrower stream has no room for codes that differ enough"
    draw = np.random.default_rng(seed)
    heads = max(1, config.num_heads // 4)
    columns = _Columns(heads * config.head_dim, heads * config.head_dim)
    arrays: dict[str, Array] = {}
    for stack, count in (
        ("encoder", config.num_encoder_layers),
        ("decoder", config.num_decoder_layers),
    ):
        for index in range(count):
            _fill_layer(arrays, f"{stack}.layers.{index}", stack, config, columns, draw)
    _fill_first_cross_attention(arrays, config, columns)
    _fill_embeddings(arrays, config, columns, draw)
    arrays["output_projection.weight"] *= np.float32(certainty)
    return arrays


def _normal(draw: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Array:
    return (draw.standard_normal(shape, np.float32) * np.float32(deviation)).astype(np.float32)


def _fill_layer(
    arrays: dict[str, Array],
    name: str,
    stack: str,
    config: ModelConfig,
    columns: _Columns,
    draw: np.random.Generator,
) -> None:
    width, inner = config.d_model, config.ffn_dim
    attentions = ["self_attention"] + ["cross_attention"] * (stack == "decoder")
    for attention in attentions:
        for part in ("query", "key", "value", "output"):
            weight = _normal(draw, (width, width), width**-0.5)
            arrays[f"{name}.{attention}.{part}.weight"] = weight
            arrays[f"{name}.{attention}.{part}.bias"] = _normal(draw, (width,), 0.02)
    arrays[f"{name}.feed_forward.inner.weight"] = _normal(draw, (inner, width), width**-0.5)
    arrays[f"{name}.feed_forward.inner.bias"] = _normal(draw, (inner,), 0.02)
    arrays[f"{name}.feed_forward.outer.weight"] = _normal(draw, (width, inner), inner**-0.5)
    arrays[f"{name}.feed_forward.outer.bias"] = _normal(draw, (width,), 0.02)
    for sublayer in [*(f"{attention}.output" for attention in attentions), "feed_forward.outer"]:
        for part in ("weight", "bias"):
            written = arrays[f"{name}.{sublayer}.{part}"]
            written *= _FAINT
            written[: columns.num_reserved] = 0.0
    for norm in [*(f"{attention}_norm" for attention in attentions), "feed_forward_norm"]:
        arrays[f"{name}.{norm}.weight"] = np.ones(width, np.float32)
        arrays[f"{name}.{norm}.bias"] = np.zeros(width, np.float32)


def _fill_first_cross_attention(
    arrays: dict[str, Array], config: ModelConfig, columns: _Columns
) -> None:
    """Find the marked position, copy its code: in the heads whose values hold it."""
    name = "decoder.layers.0.cross_attention"
    size, num_code = config.head_dim, columns.num_code
    for head in range(num_code // size):
        rows = slice(head * size, (head + 1) * size)
        # The score of a position is query . key / sqrt(size) = _SHARP * its mark.
        arrays[f"{name}.query.weight"][rows] = 0.0
        arrays[f"{name}.query.bias"][rows] = 0.0
        arrays[f"{name}.query.bias"][head * size] = _SHARP
        arrays[f"{name}.key.weight"][rows] = 0.0
        arrays[f"{name}.key.bias"][rows] = 0.0
        arrays[f"{name}.key.weight"][head * size, columns.mark] = size**0.5
    arrays[f"{name}.value.weight"][:num_code] = np.eye(num_code, config.d_model, dtype=np.float32)
    arrays[f"{name}.value.bias"][:num_code] = 0.0
    output = arrays[f"{name}.output.weight"]
    output[:, :num_code] = np.eye(config.d_model, num_code, dtype=np.float32)
    output[:num_code, num_code:] = 0.0


def _fill_embeddings(
    arrays: dict[str, Array], config: ModelConfig, columns: _Columns, draw: np.random.Generator
) -> None:
    width, vocab, num_code = config.d_model, config.vocab_size, columns.num_code
    first = FIRST_LENGTH_WORD
    free = slice(columns.num_reserved, width)
    unit = width**-0.5  # embeddings are scaled by sqrt(width): the stream's entries are near 1

    source = np.zeros((vocab, width), np.float32)
    source[:, free] = _normal(draw, (vocab, width - columns.num_reserved), unit)
    codes = draw.choice(np.array([-1.0, 1.0], np.float32), (MAX_LENGTH, num_code)) * unit
    source[first : first + MAX_LENGTH, :num_code] = codes
    source[first : first + MAX_LENGTH, columns.mark] = _MARK * unit

    target = np.zeros((vocab, width), np.float32)
    target[:, free] = _normal(draw, (vocab, width - columns.num_reserved), unit)

    # Number n is followed by number n - 1, and 1 is what the end of the sentence follows.
    logits = _normal(draw, (vocab, width), 0.2 * unit)
    logits[first : first + MAX_LENGTH - 1] = target[first + 1 : first + MAX_LENGTH]
    logits[config.eos_id] = target[first]
    logits[first : first + MAX_LENGTH, :num_code] += _CODE_STRENGTH * codes

    for side in ("source", "target"):
        positions = np.zeros((config.max_positions, width), np.float32)
        positions[:, free] = _normal(draw, positions[:, free].shape, 0.1)
        arrays[f"{side}_positions.weight"] = positions
    arrays["source_embedding.weight"] = source
    arrays["target_embedding.weight"] = target
    arrays["output_projection.weight"] = logits
