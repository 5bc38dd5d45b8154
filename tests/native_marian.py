"""A random model in Marian's own format, and Marian's forward pass in NumPy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from tests.foreign_models import EOS_BIAS, write_marian_vocabulary

Floats = npt.NDArray[np.float64]

WIDTH, HEADS, INNER = 32, 4, 48


def write_native_marian(
    directory: Path, codes: tuple[str, ...] = (), *, norm: str = "post", **changes: Any
) -> dict[str, Any]:
    """Write a model to `directory`; returns its arrays by name.

    Args:
        directory: directory to create.
        codes: codes of target languages in the vocabulary, such as ">>deu<<".
        norm: "post" or "pre".
        changes: changes of the options.
    """
    directory.mkdir(parents=True)
    num_tokens = write_marian_vocabulary(directory, codes) - 1  # Marian has no <pad>
    ids = json.loads((directory / "vocab.json").read_bytes())
    del ids["<pad>"]
    lines = [f"{json.dumps(piece, ensure_ascii=False)}: {i}" for piece, i in ids.items()]
    (directory / "opus.vocab.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in ("vocab.json", "tokenizer_config.json"):
        (directory / name).unlink()
    decoder = {
        "relative-paths": True,
        "models": ["opus.npz"],
        "vocabs": ["opus.vocab.yml", "opus.vocab.yml"],
        "beam-size": 6,
        "normalize": 1,
        "word-penalty": 0,
    }
    (directory / "decoder.yml").write_text(yaml.safe_dump(decoder))
    preprocess, postprocess, top = ("", "dan", "") if norm == "post" else ("n", "da", "n")
    options = {
        "type": "transformer",
        "dim-emb": WIDTH,
        "enc-depth": 2,
        "dec-depth": 3,
        "transformer-heads": HEADS,
        "transformer-dim-ffn": INNER,
        "transformer-ffn-activation": "swish",
        "transformer-preprocess": preprocess,
        "transformer-postprocess": postprocess,
        "transformer-postprocess-top": top,
        "tied-embeddings-all": True,
        "transformer-decoder-autoreg": "self-attention",
        "dim-vocabs": [num_tokens, num_tokens],
        **changes,
    }
    arrays = _arrays(options, num_tokens, norm)
    save_npz(directory / "opus.npz", options, arrays)
    return {**options, **arrays}


def save_npz(file: Path, options: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Save arrays in Marian's format: the options are bytes that end with NUL."""
    text = yaml.safe_dump(dict(options)).encode() + b"\0"
    special = {"special:model.yml": np.frombuffer(text, np.int8)}
    np.savez(file, **{**arrays, **special})


def _arrays(options: Mapping[str, Any], num_tokens: int, norm: str) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    arrays: dict[str, Any] = {}

    def matrix(name: str, rows: int, columns: int, scale: float) -> None:
        arrays[name] = draw.normal(0, scale, (rows, columns)).astype(np.float32)

    def layer_norm(name: str, suffix: str) -> None:
        arrays[f"{name}_scale{suffix}"] = draw.uniform(0.5, 1.5, (1, WIDTH)).astype(np.float32)
        matrix(f"{name}_bias{suffix}", 1, WIDTH, 0.1)

    suffix = "_pre" if norm == "pre" else ""
    unit = WIDTH**-0.5
    for stack, depth, blocks in (
        ("encoder", options["enc-depth"], ("self",)),
        ("decoder", options["dec-depth"], ("self", "context")),
    ):
        for layer in range(1, depth + 1):
            for block in blocks:
                name = f"{stack}_l{layer}_{block}"
                for letter in "qkvo":
                    matrix(f"{name}_W{letter}", WIDTH, WIDTH, unit * (2 if letter in "qk" else 1.5))
                    matrix(f"{name}_b{letter}", 1, WIDTH, 0.1)
                layer_norm(f"{name}_Wo_ln", suffix)
            name = f"{stack}_l{layer}_ffn"
            matrix(f"{name}_W1", WIDTH, INNER, 1.5 * unit)
            matrix(f"{name}_b1", 1, INNER, 0.1)
            matrix(f"{name}_W2", INNER, WIDTH, 1.5 * unit)
            matrix(f"{name}_b2", 1, WIDTH, 0.1)
            layer_norm(f"{name}_ffn_ln", suffix)
        if norm == "pre":
            layer_norm(f"{stack}_top_ln", "")
    tied = options.get("tied-embeddings-all")
    for name in ("Wemb",) if tied else ("encoder_Wemb", "decoder_Wemb"):
        matrix(name, num_tokens, WIDTH, unit)
        arrays[name][0] *= 2.0
    if not tied and not options.get("tied-embeddings"):
        matrix("decoder_ff_logit_out_W", WIDTH, num_tokens, 2 * unit)
    matrix("decoder_ff_logit_out_b", 1, num_tokens, 0.2)
    arrays["decoder_ff_logit_out_b"][0, 0] += EOS_BIAS
    if options.get("transformer-train-positions"):
        matrix("Wpos", 100, WIDTH, 1.0)
    return arrays


class MarianForward:
    """The forward pass of Marian's `src/models/transformer.h`, one sentence at a time.

    Args:
        model: options and arrays by name.
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._model = model
        self._pre = model["transformer-preprocess"] == "n"

    def log_probabilities(self, source: Sequence[int], target: Sequence[int]) -> Floats:
        """[T, V] log-probabilities of each token of the target given the tokens before it."""
        source_table = self._table("encoder")
        states = self._embed(source_table[list(source)])
        for layer in range(1, self._model["enc-depth"] + 1):
            name = f"encoder_l{layer}"
            states = self._attend(f"{name}_self", states, None)
            states = self._feed_forward(f"{name}_ffn", states)
        memory = self._top("encoder", states)
        table = self._table("decoder")
        # Marian begins with zeros, other programs with an embedded start token.
        shifted = np.concatenate((np.zeros((1, WIDTH)), table[list(target[:-1])]))
        states = self._embed(shifted)
        for layer in range(1, self._model["dec-depth"] + 1):
            name = f"decoder_l{layer}"
            states = self._attend(f"{name}_self", states, None, causal=True)
            states = self._attend(f"{name}_context", states, memory)
            states = self._feed_forward(f"{name}_ffn", states)
        states = self._top("decoder", states)
        if "decoder_ff_logit_out_W" in self._model:
            logits = states @ self._get("decoder_ff_logit_out_W")
        else:
            logits = states @ table.T
        logits += self._get("decoder_ff_logit_out_b")
        logits -= logits.max(axis=1, keepdims=True)
        found: Floats = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return found

    def translate(self, source: Sequence[int], most: int) -> list[int]:
        """The greedy translation, its `</s>` (token 0) included."""
        target: list[int] = []
        while len(target) < most and 0 not in target:
            target.append(int(self.log_probabilities(source, [*target, 0])[-1].argmax()))
        return target

    def _get(self, name: str) -> Floats:
        return np.asarray(self._model[name], np.float64)

    def _table(self, stack: str) -> Floats:
        return self._get("Wemb" if "Wemb" in self._model else f"{stack}_Wemb")

    def _embed(self, rows: Floats) -> Floats:
        if self._model.get("transformer-train-positions"):
            return rows + self._get("Wpos")[: len(rows)]
        # inits::sinusoidalPositionEmbeddings
        scales = WIDTH / 2
        increment = math.log(10000) / (scales - 1)
        signal = np.zeros_like(rows)
        for position in range(len(rows)):
            for i in range(int(scales)):
                value = position * math.exp(i * -increment)
                signal[position, i] = math.sin(value)
                signal[position, int(scales) + i] = math.cos(value)
        return math.sqrt(WIDTH) * rows + signal

    def _attend(
        self, name: str, states: Floats, memory: Floats | None, *, causal: bool = False
    ) -> Floats:
        given = self._before(f"{name}_Wo", states)
        seen = given if memory is None else memory
        query = given @ self._get(f"{name}_Wq") + self._get(f"{name}_bq")
        key = seen @ self._get(f"{name}_Wk") + self._get(f"{name}_bk")
        value = seen @ self._get(f"{name}_Wv") + self._get(f"{name}_bv")
        mixed = []
        for head in range(HEADS):
            part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
            scores = query[:, part] @ key[:, part].T / math.sqrt(WIDTH / HEADS)
            if causal:
                scores[np.triu_indices(len(scores), 1)] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed.append(weights / weights.sum(axis=1, keepdims=True) @ value[:, part])
        output = np.concatenate(mixed, axis=1) @ self._get(f"{name}_Wo") + self._get(f"{name}_bo")
        return self._after(f"{name}_Wo", output, states)

    def _feed_forward(self, name: str, states: Floats) -> Floats:
        given = self._before(f"{name}_ffn", states)
        inner = given @ self._get(f"{name}_W1") + self._get(f"{name}_b1")
        relu = self._model["transformer-ffn-activation"] == "relu"
        inner = np.maximum(inner, 0) if relu else inner / (1 + np.exp(-inner))
        output = inner @ self._get(f"{name}_W2") + self._get(f"{name}_b2")
        return self._after(f"{name}_ffn", output, states)

    def _before(self, name: str, states: Floats) -> Floats:
        return self._normalize(name, "_pre", states) if self._pre else states

    def _after(self, name: str, output: Floats, states: Floats) -> Floats:
        total = output + states
        return total if self._pre else self._normalize(name, "", total)

    def _top(self, stack: str, states: Floats) -> Floats:
        return self._normalize(f"{stack}_top", "", states) if self._pre else states

    def _normalize(self, name: str, suffix: str, states: Floats) -> Floats:
        centred = states - states.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)
        scale, bias = self._get(f"{name}_ln_scale{suffix}"), self._get(f"{name}_ln_bias{suffix}")
        normalized: Floats = centred / deviation * scale + bias
        return normalized
