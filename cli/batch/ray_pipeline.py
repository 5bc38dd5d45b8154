"""A job as a pipeline of Ray Data: actors with a model each, on one machine or many."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cli.batch.inputs import JobError
from cli.batch.plan import JobPart
from cli.batch.run import OnDone, Work

# Parts that an actor gets at once. It begins with all of them, so that the end of one is not idle.
_PARTS_PER_CALL = 3


class PartTranslator:
    """Translates parts with a model or clients of its own, and writes them into the job's folder.

    A part that an actor did not finish is done again by another one, as a whole.

    Args:
        work: settings with the job, in files that all machines can read and write.
        parts: the parts that are missing.
    """

    def __init__(self, work: Work, parts: Sequence[JobPart]) -> None:
        import asyncio

        self._work = work
        self._parts = parts
        self._runner = asyncio.Runner()
        self._opened = work.pool()  # until the actor's process ends
        self._pool = self._runner.run(self._opened.__aenter__())

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Translate the parts with the indices in a batch; returns their numbers of rows."""
        from cli.batch.run import run_parts

        parts = [self._parts[index] for index in batch["item"]]
        self._runner.run(run_parts(self._work.job, parts, self._pool, lambda rows: None))
        return {"rows": [part.extent.rows for part in parts]}


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster that does a job.

    Attributes:
        address: "auto", "local" or ray://HOST:PORT.
        actor_cpus: CPUs of each actor, and threads of its model.
        work: settings of the translation.
    """

    address: str
    actor_cpus: int
    work: Work

    def translate(self, parts: Sequence[JobPart], on_done: OnDone) -> None:
        """Translate parts on the cluster.

        A part of an actor that dies is translated by another one, which Ray starts.

        Raises:
            JobError: the cluster has failed, or a part can't be translated.
        """
        from cli.exits import fail_without

        try:
            import ray
            from ray.data import ActorPoolStrategy, DataContext
            from ray.exceptions import RayError
        except ModuleNotFoundError as exc:
            fail_without(str(exc.name), "ray")
        # The command shows progress itself.
        ray.init(self.address, log_to_driver=False, logging_level=logging.ERROR)
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        DataContext.get_current().enable_progress_bars = False
        work = replace(self.work, servers=replace(self.work.servers, threads=self.actor_cpus))
        most = int(ray.cluster_resources()["CPU"]) // self.actor_cpus
        wanted = math.ceil(len(parts) / _PARTS_PER_CALL)
        done = (
            ray.data.from_items(list(range(len(parts))), override_num_blocks=len(parts))
            .map_batches(
                PartTranslator,
                fn_constructor_args=(work, parts),
                batch_size=_PARTS_PER_CALL,
                num_cpus=self.actor_cpus,
                compute=ActorPoolStrategy(size=max(1, min(most, wanted))),
            )
            .iter_rows()
        )
        try:
            for row in done:
                on_done(row["rows"])
        except RayError as exc:
            reason = str(exc).strip().splitlines()[-1]
            raise JobError(f"the Ray cluster failed; the same command resumes: {reason}") from exc
