"""The network of a student in NumPy, from the bytes of its file. Shares no code with the project.

8-bit products are exact: integers are summed in float64. Kim et al., 2019, "From Research to
Production and Back", section 3, and Marian's `transformer.h`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

Array = npt.NDArray[Any]
EOS, UNK = 0, 1


class MarianNetwork:
    """Translates greedily with the weights of an intgemm8 file."""

    def __init__(self, content: bytes) -> None:
        self.numbers: dict[str, Array] = {}
        self.multipliers: dict[str, float] = {}
        (count,) = struct.unpack_from("<8xQ", content)
        heads = [struct.unpack_from("<4Q", content, 16 + 32 * i) for i in range(count)]
        at, names, shapes = 16 + 32 * count, [], []
        for length, *_ in heads:
            names.append(content[at : at + length - 1].decode())
            at += length
        for _, _, dimensions, _ in heads:
            shapes.append(struct.unpack_from(f"<{dimensions}i", content, at))
            at += 4 * dimensions
        at += 8 + struct.unpack_from("<Q", content, at)[0]
        for name, shape, (_, kind, _, size) in zip(names, shapes, heads, strict=True):
            if kind == 0x4101:
                integers = np.frombuffer(content, "i1", int(np.prod(shape)), at).astype(float)
                (self.multipliers[name],) = struct.unpack_from("<f", content, at + integers.size)
                is_table = "Wemb" in name
                self.numbers[name] = integers.reshape(shape if is_table else shape[::-1])
            elif kind == 0x0404:
                self.numbers[name] = np.frombuffer(content, "<f4", int(np.prod(shape)), at)
            else:
                options = yaml.safe_load(content[at : at + size].rstrip(b"\0"))
            at += size
        self.heads, self.depth = options["transformer-heads"], options["dec-depth"]
        self.encoder_depth = options["enc-depth"]
        self.target = "Wemb" if "Wemb" in self.numbers else "decoder_Wemb"
        output = f"{self.target}_QuantMultA"
        self.output_alpha = float(self.numbers[output].item()) / self.multipliers[output]

    def translate(self, source: Sequence[int], most: int) -> list[int]:
        """Token ids of a translation without EOS, of at most `most` tokens.

        `lead` is the smallest lead of its tokens over the second best, in nats.
        """
        x = self.embedded("Wemb" if self.target == "Wemb" else "encoder_Wemb", source, 0)
        for layer in (f"encoder_l{i + 1}" for i in range(self.encoder_depth)):
            x = self.normed(x + self.attended(f"{layer}_self", x, x), f"{layer}_self_Wo_ln")
            x = self.normed(x + self.fed(layer, x), f"{layer}_ffn_ffn_ln")
        memory, found, self.lead = x, list[int](), np.inf
        states = [np.zeros(memory.shape[1]) for _ in range(self.depth)]
        while len(found) < most:
            y = self.embedded(self.target, found[-1:], len(found))
            for i, layer in enumerate(f"decoder_l{n + 1}" for n in range(self.depth)):
                gate = 1 / (1 + np.exp(-self.product(y, f"{layer}_rnn_Wf", f"{layer}_rnn_bf")))
                states[i] = gate * states[i] + (1 - gate) * self.product(y, f"{layer}_rnn_W")
                y = self.normed(y + np.maximum(states[i], 0), f"{layer}_rnn_ffn_ln")
                context = self.attended(f"{layer}_context", y, memory)
                y = self.normed(y + context, f"{layer}_context_Wo_ln")
                y = self.normed(y + self.fed(layer, y), f"{layer}_ffn_ffn_ln")
            inputs = np.rint(y * self.output_alpha).clip(-127, 127)
            scale = self.output_alpha * self.multipliers[self.target]
            logits = inputs @ self.numbers[self.target].T / scale
            logits = (logits + self.numbers["decoder_ff_logit_out_b"])[0]
            logits[UNK] = -np.inf
            second, first = np.partition(logits, -2)[-2:]
            self.lead = min(self.lead, float(first - second))
            if (best := int(logits.argmax())) == EOS:
                break
            found.append(best)
        return found

    def embedded(self, table: str, ids: Sequence[int], start: int) -> Array:
        """Embeddings [T, D] with positions; zeros in the place of a token if there is none."""
        rows = self.numbers[table]
        width = rows.shape[1]
        x = rows[list(ids)] / self.multipliers[table] * width**0.5
        x = x if len(x) else np.zeros((1, width))
        rates = 10000.0 ** -(np.arange(width // 2) / (width // 2 - 1))
        angles = np.arange(start, start + len(x))[:, None] * rates
        return np.concatenate(
            (x[:, : width // 2] + np.sin(angles), x[:, width // 2 :] + np.cos(angles)), 1
        )

    def product(self, x: Array, name: str, bias: str = "") -> Array:
        """A linear map of rows, whose inputs are rounded to 8 bits."""
        alpha = float(self.numbers[f"{name}_QuantMultA"].item())
        y = np.rint(x * alpha).clip(-127, 127) @ self.numbers[name].T
        return y / (alpha * self.multipliers[name]) + (self.numbers[bias] if bias else 0)

    def attended(self, name: str, x: Array, memory: Array) -> Array:
        """Attention of x [T, D] to the memory [S, D]."""
        q, k, v = (
            self.product(y, f"{name}_W{c}", f"{name}_b{c}").reshape(len(y), self.heads, -1)
            for c, y in zip("qkv", (x, memory, memory), strict=True)
        )
        scores = np.einsum("thd,shd->hts", q, k) / q.shape[-1] ** 0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hts,shd->thd", weights / weights.sum(-1, keepdims=True), v)
        return self.product(mixed.reshape(len(x), -1), f"{name}_Wo", f"{name}_bo")

    def fed(self, layer: str, x: Array) -> Array:
        """The feed-forward sublayer."""
        inner = np.maximum(self.product(x, f"{layer}_ffn_W1", f"{layer}_ffn_b1"), 0)
        return self.product(inner, f"{layer}_ffn_W2", f"{layer}_ffn_b2")

    def normed(self, x: Array, name: str) -> Array:
        """Layer normalisation."""
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * self.numbers[f"{name}_scale"] + self.numbers[f"{name}_bias"]
