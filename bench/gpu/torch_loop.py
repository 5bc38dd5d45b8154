"""PyTorch on the same GPU: a greedy loop with a static key-value cache.

What a good PyTorch program for translation does: half precision, all memory allocated once, fused
scaled dot-product attention; then one CUDA graph for a step, then that of a compiled step. The
batch is static: every text of it steps to the longest's end. All texts here are equally long, so
that none of its rows ever steps in vain, which flatters it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.gpu.models import MeasuredModel
from bench.gpu.plan import GpuPlan
from bench.gpu.results import PointLog
from model.transformer import Transformer


class StaticDecoder:
    """A decoder of B rows and T positions, whose every step has the same shapes and addresses.

    Args:
        model: in evaluation mode, on the device, in the precision to compute in.
        memory: [B, S, D], the encoder's output.
        source_mask: [B, S], True at tokens.
        length: T.
    """

    def __init__(
        self, model: Transformer, memory: Tensor, source_mask: Tensor, length: int
    ) -> None:
        config = model.config
        self.model = model
        shape = (memory.size(0), config.num_heads, length, config.head_dim)
        self.layers: list[Any] = list(model.decoder.each_layer())
        self.keys = [memory.new_zeros(shape) for _ in self.layers]
        self.values = [memory.new_zeros(shape) for _ in self.layers]
        self.cross = [layer.cross_attention.keys_values(memory) for layer in self.layers]
        self.source_mask = source_mask[:, None, None, :]
        self.places = torch.arange(length, device=memory.device)

    def step(self, token_ids: Tensor, position: Tensor) -> Tensor:
        """The best next tokens [B] after `token_ids` [B] at `position` [1]."""
        model = self.model
        states = model.target_embedding(token_ids)[:, None]
        if model.config.scale_embeddings:
            states = states * model.config.d_model**0.5
        if model.target_positions is not None:
            states = states + model.target_positions(position)
        elif model.config.positions == "sinusoidal":
            states = states + model.sinusoid[position].to(states.dtype)  # type: ignore[index]
        seen = (self.places <= position)[None, None, None]
        for number, layer in enumerate(self.layers):

            def attend(x: Tensor, layer: Any = layer, number: int = number) -> Tensor:
                attention = layer.self_attention
                key, value = attention.keys_values(x)
                self.keys[number].index_copy_(2, position, key)
                self.values[number].index_copy_(2, position, value)
                cached = (self.keys[number], self.values[number])
                return attention(x, cached, seen)  # type: ignore[no-any-return]

            def look(x: Tensor, layer: Any = layer, number: int = number) -> Tensor:
                attention = layer.cross_attention
                return attention(x, self.cross[number], self.source_mask)  # type: ignore[no-any-return]

            states = layer.residual(states, layer.self_attention_norm, attend)
            states = layer.residual(states, layer.cross_attention_norm, look)
            states = layer.residual(states, layer.feed_forward_norm, layer.feed_forward)
        return model.project(model.decoder.finish(states))[:, 0].argmax(-1)


VARIANTS = ("eager", "graph", "compiled")
"""Eager; one CUDA graph of the eager step; one of the step as `torch.compile` makes it."""


class Loop:
    """Steps of a `StaticDecoder` that feed each other.

    Attributes:
        token_ids: [B], what the next step is fed.
        position: [1].
    """

    def __init__(self, decoder: StaticDecoder, bos_id: int, variant: str, on_gpu: bool) -> None:
        rows = decoder.source_mask.size(0)
        device = decoder.source_mask.device
        self.token_ids = torch.full((rows,), bos_id, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self._bos_id = bos_id
        self._function = decoder.step
        if variant == "compiled":
            self._function = torch.compile(decoder.step, dynamic=False)
        self.step: Callable[[], None] = self._step
        if variant != "eager" and on_gpu:
            self.step = self._capture()

    def restart(self) -> None:
        """Begin again with BOS."""
        self.token_ids.fill_(self._bos_id)
        self.position.zero_()

    def _step(self) -> None:
        self.token_ids.copy_(self._function(self.token_ids, self.position))
        self.position.add_(1)

    def _capture(self) -> Callable[[], None]:
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        self.restart()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        self.restart()
        return graph.replay


def measure(model: MeasuredModel, device: str, plan: GpuPlan, results: PointLog) -> None:
    """Every variant at every batch size."""
    network: Transformer | None = None
    for variant in VARIANTS:
        sizes = plan.rows
        if variant == "compiled":
            sizes = plan.compiled_rows if model.name in plan.compiled_models else ()
        for rows in sizes:
            if not results.wants(model=model.name, rows=rows, variant=variant):
                continue
            network = network or load(model, device)
            try:
                found: dict[str, Any] = _measure(network, model, device, plan, rows, variant)
            except Exception as exc:  # a compiler that is missing, say: that is a result, too
                found = {"error": f"{type(exc).__name__}: {str(exc)[:300]}"}
            results.add(model=model.name, rows=rows, variant=variant, **found)


def load(model: MeasuredModel, device: str) -> Transformer:
    """The network in half precision (on a CPU, in single)."""
    network = Transformer(model.config).eval()
    arrays = {name: torch.from_numpy(array) for name, array in model.arrays().items()}
    network.load_state_dict(arrays, strict=False)
    network.tie_weights()
    return network.to(device, torch.float16 if device != "cpu" else torch.float32)


@torch.no_grad()
def _measure(
    network: Transformer, model: MeasuredModel, device: str, plan: GpuPlan, rows: int, variant: str
) -> dict[str, float]:
    on_gpu = device != "cpu"
    source_ids, mask = batch(model, rows, device)
    length = min(plan.length, network.config.num_target_positions)

    def synchronize() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    def timed(function: Callable[[], object], repeats: int) -> float:
        synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            function()
        synchronize()
        return (time.perf_counter() - start) / repeats

    start = time.perf_counter()
    decoder = StaticDecoder(network, network.encode(source_ids, mask), mask, length)
    loop = Loop(decoder, network.config.bos_id, variant, on_gpu)

    def run() -> None:
        loop.restart()
        for _ in range(length):
            loop.step()

    run()
    synchronize()
    prepared = time.perf_counter() - start
    repeats = max(1, plan.step_repeats // length)
    per_step = timed(run, repeats) / length
    encode = timed(lambda: network.encode(source_ids, mask), repeats)
    return {
        "step_us": 1e6 * per_step,
        "encode_us": 1e6 * encode,
        "tokens_per_second": rows * length / (length * per_step + encode),
        "prepare_seconds": prepared,
    }


def batch(model: MeasuredModel, rows: int, device: str) -> tuple[Tensor, Tensor]:
    """Source ids [B, S] and their mask."""
    sources = model.sources()
    some = [sources[row % len(sources)] for row in range(rows)]
    source_ids = torch.full((rows, max(map(len, some))), model.config.pad_id)
    for row, source in enumerate(some):
        source_ids[row, : len(source)] = torch.tensor(source)
    source_ids = source_ids.to(device)
    return source_ids, source_ids != model.config.pad_id
