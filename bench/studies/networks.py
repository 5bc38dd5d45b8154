"""Cost of training, serving and downloading a network, for several networks side by side.

    python -m bench.studies.networks [--network 384x6+2@16000]...

A network is named WIDTHxENCODER+DECODER@VOCABULARY; its feed-forward layers are four times, its
heads a sixty-fourth of its width. Weights are random. Everything runs on one thread, the networks
take turns, and times are CPU time of the process, so that other load on the machine affects all of
them alike: compare the figures of one run. Translation quality has to be measured by training.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

# onnxruntime reports usage to its makers unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import typer

if TYPE_CHECKING:
    from model.bundle.config import ModelConfig
    from service.runtime.cpu.runner import OnnxRunner

NETWORKS = ("256x6+2@8000", "256x6+2@16000", "384x6+2@16000", "512x6+2@16000", "384x6+6@16000")
HEAD_DIM = 64
SOURCE_TOKENS = 24
TRAIN_PAIRS = 64
ROWS = 32
_NAME = re.compile(r"(\d+)x(\d+)\+(\d+)@(\d+)")


@dataclass(frozen=True)
class NetworkCost:
    """Costs of one network.

    Attributes:
        parameters: how many there are.
        bundle_bytes: size of the int8 bundle.
        train_seconds: CPU seconds of an update of `TRAIN_PAIRS` pairs, in bfloat16.
        encode_seconds: CPU seconds of the encode of one source of `SOURCE_TOKENS` tokens, int8.
        step_seconds: CPU seconds of a decoder step by the number of rows, int8.
    """

    parameters: int
    bundle_bytes: int
    train_seconds: float
    encode_seconds: float
    step_seconds: Mapping[int, float]


def parse_network(name: str) -> ModelConfig:
    """The configuration that a name stands for.

    Raises:
        typer.BadParameter: it is no name of a network.
    """
    from model.bundle.config import ConfigError, preset

    match = _NAME.fullmatch(name)
    if match is None:
        raise typer.BadParameter(f"a network is WIDTHxENCODER+DECODER@VOCABULARY, not {name!r}")
    width, encoder, decoder, vocabulary = map(int, match.groups())
    if width % HEAD_DIM:
        raise typer.BadParameter(f"{name}: the width must be a multiple of {HEAD_DIM}")
    try:
        return preset(
            "small", vocabulary, d_model=width, ffn_dim=4 * width, num_heads=width // HEAD_DIM,
            num_encoder_layers=encoder, num_decoder_layers=decoder, norm="pre",
        )  # fmt: skip
    except ConfigError as exc:
        raise typer.BadParameter(f"{name}: {exc}") from exc


def training_update(config: ModelConfig) -> Callable[[], None]:
    """A function that makes one update of a new network, as `dragoman train` does on a CPU."""
    import torch

    from model.data.corpus import Batch
    from model.data.recipe_sections import Optimization
    from model.network.transformer import Transformer
    from model.training.gradients import Gradients
    from model.training.optimization import SmoothedLoss, make_optimizer
    from model.training.processes import Processes

    device = torch.device("cpu")
    network = Transformer(config).train()
    optimization = Optimization(max_updates=1, learning_rate=1e-4)
    optimizer = make_optimizer(network, optimization, device)
    gradients = Gradients(SmoothedLoss(network, 0.1), device, Processes())
    gradients.precision = "bf16"
    ids = np.random.default_rng(0).integers(4, config.vocab_size, (TRAIN_PAIRS, SOURCE_TOKENS))
    batch = Batch(ids, ids)

    def update() -> None:
        gradients.add([batch], batch.num_target_tokens(config.pad_id))
        optimizer.step()
        optimizer.zero_grad()

    return update


def int8_runner(config: ModelConfig, directory: Path) -> tuple[OnnxRunner, int]:
    """A new network's int8 bundle on one thread, and its size in bytes."""
    from bench.speed_model import write_tokenizer
    from export.bundle_writer import ExportOptions, ExportSource, write_bundle
    from model.bundle.bundle import Bundle
    from model.bundle.tokenizer import TOKENIZER_FILE
    from model.network.transformer import Transformer
    from service.runtime.cpu.runner import OnnxRunner

    (directory / "bundle").mkdir(parents=True)
    write_tokenizer(config, directory / TOKENIZER_FILE)
    arrays = {name: tensor.numpy() for name, tensor in Transformer(config).state_dict().items()}
    source = ExportSource(config, arrays, directory / TOKENIZER_FILE, "en", "de")
    write_bundle(source, ExportOptions("int8"), directory / "bundle")
    size = sum(file.stat().st_size for file in (directory / "bundle").iterdir())
    bundle = Bundle.load(directory / "bundle")
    return OnnxRunner(bundle, max_rows=ROWS, intra_op_threads=1), size


def runner_times(runner: OnnxRunner, config: ModelConfig) -> dict[str, Callable[[], object]]:
    """Functions that encode one source, and that step one row and `ROWS` rows half-way."""
    from service.domain.plan import EncodeItem, StepPlan

    draw = np.random.default_rng(0)
    tokens = draw.integers(300, config.vocab_size, (ROWS, SOURCE_TOKENS))
    sources = [EncodeItem((row,), (*ids[:-1].tolist(), 3)) for row, ids in enumerate(tokens)]
    none, nowhere = np.empty(0, np.int64), np.empty(0, np.int32)
    for position in range(SOURCE_TOKENS):  # fills the caches
        encodes = sources if position == 0 else ()
        runner.execute(StepPlan((), encodes, tokens[:, 0], np.full(ROWS, position, np.int32)))
    half = np.full(ROWS, SOURCE_TOKENS // 2, np.int32)

    plans = {"encode": StepPlan((), sources[:1], none, nowhere)}
    for rows in (1, ROWS):
        plans[str(rows)] = StepPlan((), (), tokens[:rows, 0], half[:rows])
    return {what: functools.partial(runner.execute, plan) for what, plan in plans.items()}


def compare_networks(names: Sequence[str], turns: int) -> dict[str, NetworkCost]:
    """The costs of several networks, measured by turns."""
    import torch

    torch.set_num_threads(1)
    runs: dict[str, dict[str, Callable[[], object]]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for index, name in enumerate(names):
            config = parse_network(name)
            runner, size = int8_runner(config, Path(folder) / str(index))
            runs[name] = {"train": training_update(config), **runner_times(runner, config)}
            sizes[name] = (num_parameters(config), size)
        times: dict[tuple[str, str], list[float]] = {}
        for turn in range(turns + 1):
            for name in names:
                for what, run in runs[name].items():
                    seconds = cpu_seconds(run, 1 if what == "train" else 10)
                    if turn:  # the first one binds and compiles
                        times.setdefault((name, what), []).append(seconds)
    found = {key: float(np.median(seconds)) for key, seconds in times.items()}
    return {
        name: NetworkCost(
            *sizes[name],
            found[name, "train"],
            found[name, "encode"],
            {rows: found[name, str(rows)] for rows in (1, ROWS)},
        )
        for name in names
    }


def cpu_seconds(run: Callable[[], object], repeats: int) -> float:
    """CPU seconds of this process for one run."""
    began = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - began) / repeats


def num_parameters(config: ModelConfig) -> int:
    """The parameters of a network, shared matrices once."""
    from model.network.transformer import Transformer

    return sum(parameter.numel() for parameter in Transformer(config).parameters())


def networks_table(costs: Mapping[str, NetworkCost]) -> list[str]:
    """Markdown lines; all but the sizes in relation to the first network."""
    first = next(iter(costs.values()))

    def against(pick: Callable[[NetworkCost], Any], cost: NetworkCost) -> str:
        return f"{pick(cost) / pick(first):.2f}"

    columns: list[Callable[[NetworkCost], Any]] = [
        lambda cost: cost.train_seconds,
        lambda cost: cost.encode_seconds,
        lambda cost: cost.step_seconds[1],
        lambda cost: cost.step_seconds[ROWS],
        lambda cost: cost.encode_seconds + SOURCE_TOKENS * cost.step_seconds[1],
    ]
    lines = [
        "| network | parameters | int8 bundle | training | encode | step, 1 row "
        f"| step, {ROWS} rows | a sentence |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, cost in costs.items():
        ratios = " | ".join(against(pick, cost) for pick in columns)
        size = f"{cost.bundle_bytes / 1e6:.0f} MB"
        lines.append(f"| {name} | {cost.parameters / 1e6:.1f} million | {size} | {ratios} |")
    tokens = TRAIN_PAIRS * (SOURCE_TOKENS - 1) / first.train_seconds
    return [
        *lines,
        "",
        f"{next(iter(costs))}: {tokens:,.0f} target tokens of training in a CPU second, "
        f"{first.encode_seconds * 1e3:.2f} ms an encode, {first.step_seconds[1] * 1e3:.2f} and "
        f"{first.step_seconds[ROWS] * 1e3:.2f} ms a step.",
    ]


def main(
    network: Annotated[
        list[str] | None, typer.Option(help="WIDTHxENCODER+DECODER@VOCABULARY; may be repeated.")
    ] = None,
    turns: Annotated[int, typer.Option(help="Measurements of each, of which the median.")] = 5,
) -> None:
    """Print what networks cost to train, to serve and to download, as a Markdown table."""
    for line in networks_table(compare_networks(network or NETWORKS, turns)):
        typer.echo(line)


if __name__ == "__main__":
    typer.run(main)
