"""The device that a training run uses, and the precision that is fastest there."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from model.bundle.timing import time_choices
from model.training.gradients import Gradients
from model.training.processes import Processes
from model.training.run_state import TrainingError

logger = logging.getLogger(__name__)


def training_device(name: str, rank: int) -> torch.device:
    """The device called `name`: "auto", "cpu" or "cuda", of which process `rank` gets its own.

    Raises:
        TrainingError: there is no such device.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise TrainingError(f"the device must be auto, cpu or cuda, not {name!r}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        if not torch.cuda.is_available():
            raise TrainingError("no CUDA device is available; use --device cpu")
        torch.cuda.set_device(rank % torch.cuda.device_count())
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """The device's name in a model card."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def fastest_precision(gradients: Gradients, step: Callable[[], None], processes: Processes) -> str:
    """The precision, fp32 or bf16, that makes a step faster, as the first process measures it."""
    seconds = time_choices(
        step,
        ("fp32", "bf16"),
        lambda precision: setattr(gradients, "precision", precision),
        drop_slow=processes.count == 1,
    )
    chosen = str(processes.from_first([min(seconds, key=lambda p: seconds[p])])[0])
    logger.info(
        "precision: %s, measured (%.2g s a batch in fp32, %.2g s in bf16)",
        chosen,
        seconds["fp32"],
        seconds["bf16"],
    )
    return chosen
