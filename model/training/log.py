"""The output of a training run: progress bar, log lines, TensorBoard and report.json."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from datetime import timedelta
from pathlib import Path
from textwrap import indent
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from torch.utils.tensorboard import SummaryWriter

from model.data.recipe import Recipe
from model.evaluation.validation import Scores
from model.network.transformer import Transformer
from model.training.run_state import Progress as RunProgress

logger = logging.getLogger(__name__)

REPORT_FILE = "report.json"
TENSORBOARD = "tensorboard"
_LINE_EVERY_SECONDS = 30.0
_SMOOTHING = 0.95


class TrainingLog:
    """Everything that a run reports. Does nothing unless `enabled` (in the first process)."""

    def __init__(self, output: Path, recipe: Recipe, *, enabled: bool, bar: bool) -> None:
        self._output = output
        self._recipe = recipe
        self._enabled = enabled
        self._writer: SummaryWriter | None = None
        self._bar: Progress | None = None
        if enabled and bar and sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                TaskProgressColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
            )
        self._task: TaskID | None = None
        self._tokens_per_second = 0.0
        self._last_seconds = 0.0
        self._last_line = -math.inf  # the first update has a line
        self._first_update = 0
        self._started = 0.0

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()
        if self._writer:
            self._writer.close()

    def started(self, progress: RunProgress, model: Transformer, num_pairs: int) -> None:
        """Report that the run begins or resumes."""
        if not self._enabled:
            return
        self._last_seconds = progress.train_seconds
        self._first_update = progress.update
        self._started = time.monotonic()
        if self._bar:
            self._task = self._bar.add_task(
                "training",
                total=self._recipe.optimization.max_updates,
                completed=progress.update,
                left="",
            )
        # Lines that an earlier start logged after the resumed state are void.
        self._writer = SummaryWriter(
            str(self._output / TENSORBOARD), purge_step=progress.update + 1
        )
        logger.info(
            "%s %s: %.1f million parameters, %d sentence pairs, precision %s, from update %d",
            "going on with" if progress.update else "training",
            self._recipe.name,
            model.num_parameters() / 1e6,
            num_pairs,
            progress.precision,
            progress.update,
        )
        options = self._recipe.optimization
        if options.warmup_updates >= options.max_updates:
            logger.warning(
                "optimization.warmup_updates (%d) is not less than optimization.max_updates (%d): "
                "the learning rate never reaches its peak",
                options.warmup_updates,
                options.max_updates,
            )

    def updated(
        self, progress: RunProgress, loss: float, rate: float, norm: float, num_tokens: int
    ) -> None:
        """Report an update."""
        if not self._enabled or self._writer is None:
            return
        seconds = max(progress.train_seconds - self._last_seconds, 1e-9)
        self._last_seconds = progress.train_seconds
        now = num_tokens / seconds
        old = self._tokens_per_second
        self._tokens_per_second = _SMOOTHING * old + (1 - _SMOOTHING) * now if old else now
        self._writer.add_scalar("train/loss", loss, progress.update)
        self._writer.add_scalar("train/learning_rate", rate, progress.update)
        self._writer.add_scalar("train/gradient_norm", norm, progress.update)
        self._writer.add_scalar("train/tokens_per_second", now, progress.update)
        self._writer.add_scalar("train/cpu_seconds", progress.cpu_seconds, progress.update)
        if self._bar and self._task is not None:
            self._bar.update(
                self._task,
                completed=progress.update,
                description=f"epoch {progress.epoch + 1}, loss {loss:.3f}, "
                f"{self._tokens_per_second:,.0f} tokens/s",
                left=self._time_left(progress),
            )
        elif time.monotonic() - self._last_line > _LINE_EVERY_SECONDS:
            self._last_line = time.monotonic()
            total = self._recipe.optimization.max_updates
            logger.info(
                "update %d of %d (%.0f %%), epoch %d, loss %.3f, %.0f tokens/s, %s",
                progress.update,
                total,
                100 * progress.update / total,
                progress.epoch + 1,
                loss,
                self._tokens_per_second,
                self._time_left(progress),
            )

    def paused(self, seconds: float) -> None:
        """Take a pause of the run out of the computation of its speed."""
        self._started += seconds

    def _time_left(self, progress: RunProgress) -> str:
        """The remaining time, estimated from this start alone, validations included."""
        done = progress.update - self._first_update
        left = self._recipe.optimization.max_updates - progress.update
        seconds = (time.monotonic() - self._started) / done * left
        return f"{timedelta(seconds=round(seconds))} left"

    def validated(self, progress: RunProgress, scores: Scores, better: bool) -> None:
        """Report a validation."""
        logger.info(
            "update %d: %s%s", progress.update, scores.summary(), " (best)" if better else ""
        )
        samples = "\n\n".join(map(str, scores.samples))
        if samples:
            logger.info("samples of the validation text\n%s", indent(samples, "  "))
        if self._writer:
            # Four spaces make it preformatted text.
            self._writer.add_text("valid/samples", indent(samples, "    "), progress.update)
            self._writer.add_scalar("valid/loss", scores.loss, progress.update)
            for name, score in scores.corpora.items():
                self._writer.add_scalar(f"valid/bleu/{name}", score.bleu, progress.update)
                self._writer.add_scalar(f"valid/chrf/{name}", score.chrf, progress.update)
            self._writer.flush()
        report = {"recipe": self._recipe.name, "validations": progress.history}
        (self._output / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n")

    def averaged(self, count: int, scores: Scores, best_score: float, mean_is_better: bool) -> None:
        """Report the validation of the last checkpoints' mean, and which model is the final one."""
        logger.info(
            "mean of the last %d checkpoints: %s; the best single one had %.2f. "
            "The final model is %s",
            count,
            scores.summary(),
            best_score,
            "the mean" if mean_is_better else "the best single one",
        )
