"""Training (Vaswani et al., 2017, section 5): the loop, and a state from which it can go on.

A run is a deterministic function of its recipe: batches follow from the seed and the epoch's
number, and everything random is part of the saved state. A run that was killed and started again
therefore ends with the weights of an unbroken one, bit for bit if it has as many threads.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from torch import nn

from model.bundle.config import AlignmentHead
from model.bundle.threads import choose_threads
from model.data.corpus import Batch
from model.data.lexicon import write_shortlist
from model.data.recipe import Recipe
from model.data.training_data import EpochBatches, TrainingData, load_training_data
from model.evaluation.validation import Scores, validate
from model.network.checkpoint import load_checkpoint, save_checkpoint
from model.network.transformer import Transformer
from model.training.averaging import average_checkpoints
from model.training.device import device_name, fastest_precision, training_device
from model.training.gradients import Gradients
from model.training.log import TrainingLog
from model.training.memory import release_free_memory, reuse_freed_memory
from model.training.optimization import SmoothedLoss, learning_rate, make_optimizer
from model.training.processes import Processes
from model.training.report import write_training_report
from model.training.run_state import (
    Progress,
    TrainingError,
    checkpoint_folder,
    forget_checkpoints_after,
    forget_old_checkpoints,
    random_state,
    recent_checkpoints,
    restore_state,
    save_state,
    set_random_state,
    take_weights,
)
from model.training.signals import on_stop_signal

logger = logging.getLogger(__name__)

PAUSE_FILE = "pause"
_PAUSE_SECONDS = 1.0


class Trainer:
    """One training run, on one process or one of several that torchrun started.

    Args:
        data: training data; by default, read from the recipe's files.
        device: "auto", "cpu" or "cuda".
        threads: CPU threads; 0 measures how many are fastest.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: TrainingData | None = None,
        *,
        device: str = "auto",
        threads: int = 0,
        show_progress: bool = True,
    ) -> None:
        self.recipe = recipe
        self._threads = threads
        self.output: Path = recipe.output
        self.processes = Processes()
        self.device = training_device(device, self.processes.rank)
        self.output.mkdir(parents=True, exist_ok=True)
        # The first process makes the vocabulary, the others read it.
        self.data = data or self.processes.first_alone(lambda: load_training_data(recipe))
        self._text_sha256 = self.data.fingerprint()
        torch.manual_seed(recipe.optimization.seed)
        config = recipe.model_config_for(self.data.tokenizer.vocab_size)
        self.model = Transformer(config).to(self.device)
        if recipe.optimization.init_from is not None:
            take_weights(self.model, recipe.optimization.init_from)
        self.optimizer = make_optimizer(self.model, recipe.optimization, self.device)
        # Not before: every process starts from the same weights, but drops out others of them.
        torch.manual_seed(recipe.optimization.seed + self.processes.rank)
        self.progress = self._restore()
        if self.processes.is_first:
            forget_checkpoints_after(self.output, self.progress.update)
        self.log = TrainingLog(
            self.output, recipe, enabled=self.processes.is_first, bar=show_progress
        )
        self._epoch: tuple[int, EpochBatches] | None = None
        self._stop_requested = False
        self._head = recipe.alignment_head(config)
        loss = SmoothedLoss(
            self.model,
            recipe.optimization.label_smoothing,
            self._head,
            recipe.alignment.weight,
        )
        self.gradients = Gradients(loss, self.device, self.processes)
        self.gradients.precision = self.progress.precision or "fp32"

    def run(self) -> Path:
        """Train to the end and give the folder of the final checkpoint.

        Interrupted by SIGINT or SIGTERM, it saves its state after the update under way and raises
        KeyboardInterrupt; the same call later resumes from there.
        """
        final = self.output / "final"
        reuse_freed_memory()
        with on_stop_signal(self._on_signal), self.log:
            if not self._finished():
                self._adapt_to_machine()
            self.log.started(self.progress, self.model, self.data.num_pairs)
            while not self._finished():
                self._run_epoch(self._batches())
            if self.processes.is_first:
                self._write_final(final)
            self.processes.wait_for_all()
        return final

    def request_stop(self) -> None:
        """End `run` after the update under way, as SIGTERM does; from any thread."""
        self._stop_requested = True

    def _restore(self) -> Progress:
        return restore_state(
            self.output,
            self.model,
            self.optimizer,
            self.device,
            rank=self.processes.rank,
            decisive=self._decisive(),
        )

    def _decisive(self) -> dict[str, Any]:
        """Settings that may not change between two starts of a run."""
        return {
            **self.recipe.decisive_fields(),
            "processes": self.processes.count,
            "training_pairs": self.data.num_pairs,
            "training_text": self._text_sha256,
        }

    def _batches(self) -> EpochBatches:
        """The current epoch's batches; made once, since encoding a large text takes a while."""
        if self._epoch is None or self._epoch[0] != self.progress.epoch:
            self._epoch = (self.progress.epoch, self.data.epoch(self.progress.epoch))
        return self._epoch[1]

    @property
    def _aligns(self) -> bool:
        """Whether the next update learns alignments."""
        return self._head is not None and self.progress.update >= self.recipe.alignment.from_update

    @property
    def _trained_head(self) -> AlignmentHead | None:
        """The head that the updates so far trained to align; None before the first of them."""
        return self._head if self.progress.update > self.recipe.alignment.from_update else None

    # --- the loop ---------------------------------------------------------------------------------

    def _finished(self) -> bool:
        patience = self.recipe.validation.patience
        return self.progress.update >= self.recipe.optimization.max_updates or (
            patience > 0 and self.progress.validations_without_best >= patience
        )

    def _run_epoch(self, batches: EpochBatches) -> None:
        group_size = self.recipe.optimization.accumulate * self.processes.count
        num_groups = len(batches) // group_size
        if num_groups == 0:
            raise TrainingError(
                f"an epoch has {len(batches)} batches, too few for one update of {group_size}; "
                "lower optimization.batch_tokens or optimization.accumulate, or use more text"
            )
        while self.progress.position < num_groups:
            first = self.progress.position * group_size + self.processes.rank
            last = min((self.progress.position + 1) * group_size, len(batches))
            self._wait_while_paused()
            batch_of = batches.with_links if self._aligns else batches.__getitem__
            self._update([batch_of(i) for i in range(first, last, self.processes.count)])
            self.progress.position += 1
            if self.progress.position == num_groups:
                self.progress.epoch += 1
                self.progress.position = 0
            self._after_update()
            if self._finished() or self.progress.position == 0:
                return

    def _wait_while_paused(self) -> None:
        """Stand still while the run's folder holds a file named `pause`, or until interrupted."""
        file, began = self.output / PAUSE_FILE, time.monotonic()
        if not (self.processes.is_first and file.exists()):
            return
        logger.info("paused at update %d; remove %s to go on", self.progress.update, file)
        while file.exists() and not self._stop_requested:
            time.sleep(_PAUSE_SECONDS)
        self.log.paused(time.monotonic() - began)

    def _update(self, batches: list[Batch]) -> None:
        started, started_cpu = time.monotonic(), time.process_time()
        pad_id = self.model.config.pad_id
        local_tokens = sum(batch.num_target_tokens(pad_id) for batch in batches)
        num_tokens = self.processes.sum(local_tokens, self.device)
        rate = learning_rate(self.progress.update + 1, self.recipe.optimization)
        self.optimizer.set_learning_rate(rate)
        self.model.train()
        total = self.gradients.add(batches, num_tokens)
        clip = self.recipe.optimization.clip_norm
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), clip or math.inf))
        mean_loss = self.processes.sum(total, self.device) / num_tokens
        if not (math.isfinite(mean_loss) and math.isfinite(norm)):
            raise TrainingError(  # before the step: saved weights stay sound
                f"the loss became {mean_loss} and the gradient's norm {norm} at update "
                f"{self.progress.update + 1}; lower optimization.learning_rate or lengthen "
                "optimization.warmup_updates"
            )
        with self.gradients.autocast():
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.update += 1
        self.progress.tokens += int(num_tokens)
        self.progress.train_seconds += time.monotonic() - started
        self.progress.cpu_seconds += time.process_time() - started_cpu
        self.log.updated(self.progress, mean_loss, rate, norm, int(num_tokens))

    def _after_update(self) -> None:
        update = self.progress.update
        if update % self.recipe.validation.every_updates == 0 or self._finished():
            if self.processes.is_first:
                self._validate()
            self._share_verdict()
        stopping = self.processes.sum(int(self._stop_requested), self.device) > 0
        scheduled = update % self.recipe.saving.every_updates == 0 or self._finished()
        if scheduled or stopping:
            self._save(keep_checkpoint=scheduled)
        if stopping:
            raise KeyboardInterrupt

    def _validate(self) -> None:
        scores = self._scores()
        better = scores.score(self.recipe.validation.metric) > self.progress.best_score
        if better:
            self.progress.best_score = scores.score(self.recipe.validation.metric)
            self.progress.validations_without_best = 0
            self._save_checkpoint(self.output / "best", self._trained_head)
        else:
            self.progress.validations_without_best += 1
        self.progress.history.append({"update": self.progress.update, **scores.to_dict()})
        self.log.validated(self.progress, scores, better)
        write_training_report(self.output)

    def _scores(self) -> Scores:
        return validate(self.model, self.data, device=self.device)

    # --- saving -----------------------------------------------------------------------------------

    def _save(self, *, keep_checkpoint: bool) -> None:
        """Save the state; a checkpoint too, unless an interruption is all that asks for it.

        An unbroken run would not have that one to average.
        """
        random_states = self.processes.gather(random_state(self.device))
        if self.processes.is_first:
            if keep_checkpoint:
                folder = checkpoint_folder(self.output, self.progress.update)
                self._save_checkpoint(folder, self._trained_head)
            save_state(
                self.output,
                self.progress,
                self.model,
                self.optimizer,
                random_states=random_states,
                decisive=self._decisive(),
            )
            forget_old_checkpoints(self.output, self.recipe.saving.average_last)
        release_free_memory()
        self.processes.wait_for_all()

    def _save_checkpoint(
        self, folder: Path, head: AlignmentHead | None, dtype: Literal["fp32", "fp16"] = "fp32"
    ) -> None:
        """Save the model's present weights, with the head that was trained to align in them."""
        save_checkpoint(
            folder,
            self.model,
            self.data.tokenizer,
            languages=self.recipe.languages.model_dump(),
            provenance=self._provenance(),
            recipe=self.recipe.text,
            alignment_head=head,
            trained_length=self.data.trained_length,
            dtype=dtype,
        )

    def save_weights(self, folder: Path) -> None:
        """Save the final weights in fp16; before the end, the mean of the last checkpoints.

        With `saving.average_last` of 1, the present weights, which are newer.
        """
        final, head = self.output / "final", self._trained_head
        found = [final] if final.is_dir() else recent_checkpoints(self.output)
        if found and (final.is_dir() or self.recipe.saving.average_last > 1):
            weights, head = average_checkpoints(found)
            self.model.load_state_dict(weights)
        self._save_checkpoint(folder, head, "fp16")

    def _provenance(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe.name,
            "updates": self.progress.update,
            "epochs": self.progress.epoch,
            "target_tokens": self.progress.tokens,
            "hours": round(self.progress.train_seconds / 3600, 2),
            "device": device_name(self.device),
            "precision": self.progress.precision,
            "corpora": [corpus.name for corpus in self.recipe.data.train],
        }

    def _write_final(self, folder: Path) -> None:
        """The mean of the last checkpoints (section 6.1), unless a single one was better."""
        recent = recent_checkpoints(self.output)
        weights, head = average_checkpoints(recent)
        self.model.load_state_dict(weights)
        scores = self._scores()
        metric = self.recipe.validation.metric
        mean_is_better = scores.score(metric) >= self.progress.best_score
        self.log.averaged(len(recent), scores, self.progress.best_score, mean_is_better)
        if not mean_is_better:
            best = load_checkpoint(self.output / "best")
            self.model.load_state_dict(best.model.state_dict())
            head = best.alignment_head
        self._save_checkpoint(folder, head, self.recipe.saving.dtype)
        if self.model.config.decoder == "ssru" and (text := self._batches().text):
            write_shortlist(folder, text, self.data.tokenizer)

    # --- processes, devices, signals --------------------------------------------------------------

    def _share_verdict(self) -> None:
        """Give every process the first one's view of early stopping."""
        progress = self.progress
        progress.best_score, progress.validations_without_best = self.processes.from_first(
            [progress.best_score, progress.validations_without_best]
        )

    def _adapt_to_machine(self) -> None:
        """Choose the number of threads and, once for a run, the precision.

        Threads are chosen at every start, since they depend on what else the machine does.
        """
        with self._trial_batch() as run:
            # Processes would have to measure in step, and torchrun gives them one thread each.
            if self._threads or (self.device.type == "cpu" and self.processes.count == 1):
                choose_threads(run, "a batch", self._threads)
            wanted = self.recipe.optimization.precision
            if not self.progress.precision:
                self.progress.precision = (
                    fastest_precision(self.gradients, run, self.processes)
                    if wanted == "auto"
                    else wanted
                )
            self.gradients.precision = self.progress.precision

    @contextlib.contextmanager
    def _trial_batch(self) -> Iterator[Callable[[], None]]:
        """A function that computes one batch's gradients; afterwards all is as before."""
        batches = self._batches()
        if not len(batches):
            raise TrainingError(
                "no training pair is short enough for data.max_tokens "
                f"({self.recipe.data.max_tokens})"
            )
        batch = batches[0]

        def run() -> None:
            self.gradients.add_batch(batch, 1.0)
            if self.device.type == "cuda":
                torch.cuda.synchronize()

        random = random_state(self.device)
        self.model.train()
        yield run
        self.optimizer.zero_grad()
        set_random_state(random, self.device)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self._stop_requested:  # the second time it is meant at once
            raise KeyboardInterrupt
        self._stop_requested = True
