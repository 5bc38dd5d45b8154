"""Memory that models need, computed from their bundles before one is opened.

There are two figures. The *typical* memory holds sentences of usual length in all rows, and has to
fit. The memory *at most* holds the longest texts in all rows and the scoring and attention graphs;
the kernel commits the pages of a long text only when a row first holds one
(`service.runtime.cpu.kv_cache`).

The constants were measured with the included model and with random models of Transformer base's
size on two cores; the sums were between 1.0 and 1.6 times the resident memory under load.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from model.bundle.bundle import Bundle
from model.bundle.processor import num_usable_cores, usable_memory
from service.domain.attention import AttentionShape
from service.errors import StartupError
from service.runtime.cpu.kv_cache import cache_shape, limits_of
from service.runtime.cpu.lane_count import best_lanes, num_layer_weights, steps_on_one_thread
from service.settings import Settings
from service.worker.division import divided, num_processes
from service.worker.opening import CPU_ROWS
from service.worker.packed_weights import parent_with_room

MIB = 2**20
# Python, gRPC and tokenizers; in the processes in which models run, also ONNX Runtime; in front
# processes, Python and gRPC.
SERVER_BYTES = 80 * MIB
PROCESS_BYTES = 60 * MIB
FRONT_BYTES = 30 * MIB
# Tokens of a long sentence.
_USUAL_TOKENS = 128
# Activations that ONNX Runtime keeps, of the widest batch and of the encoder.
_LOGITS_COPIES = 2
_ENCODED_TOKENS = 2048
# Columns of the union of shortlists; measured were 2,000 to 5,000.
_LISTED_COLUMNS = 5000
# Of the file of packed weights that all sessions map, in memory, as a share of the bundle's own.
_PACKED_SHARE = 1.25
# Encoder outputs that wait for a row, as a fraction of the caches.
_WAITING_SHARE = 0.2

IsRunning = Callable[[], bool]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MemoryNeed:
    """Memory that one model needs, in bytes.

    Attributes:
        model: name of the model.
        rows: number of rows of its batch.
        process: memory of its own processes without a model; 0 without processes of its own.
        weights: memory of weights in all sessions.
        caches: memory of all rows with texts of usual length.
        work: memory of activations.
        most: total with the longest texts in all rows, scores and attention weights.
    """

    model: str
    rows: int
    process: int
    weights: int
    caches: int
    work: int
    most: int

    @property
    def typical(self) -> int:
        """Total with texts of usual length, in bytes."""
        return self.process + self.weights + self.caches + self.work

    def __str__(self) -> str:
        """The typical memory and its parts, in MiB."""
        return (
            f"{self.model} {_mib(self.typical)} (process {_mib(self.process)}, weights "
            f"{_mib(self.weights)}, caches of {self.rows} rows {_mib(self.caches)}, "
            f"work {_mib(self.work)})"
        )


def memory_need(bundle: Bundle, settings: Settings, *, own_process: bool) -> MemoryNeed:
    """Compute the memory that a bundle needs on a CPU.

    Several processes share the weights with which they translate. Graphs that are loaded at the
    first request, for scores and attention, have weights of their own in each.

    Args:
        bundle: the model.
        settings: number of processes, rows and threads.
        own_process: whether the model runs in processes of its own.

    Raises:
        StartupError: the settings ask for several processes where there can only be one.
    """
    parts = divided(settings)
    first, *others = (_need_of_process(bundle, part, own_process=own_process) for part in parts)
    if not others:
        return first
    needs = (first, *others)
    # All sessions of all processes map one file of packed weights, if there is room for it.
    is_shared = parent_with_room(bundle) is not None
    shared = first.weights if is_shared else sum(need.weights for need in needs)
    return MemoryNeed(
        model=first.model,
        rows=sum(need.rows for need in needs),
        process=sum(need.process for need in needs),
        weights=shared,
        caches=sum(need.caches for need in needs),
        work=sum(need.work for need in needs),
        most=sum(need.most - need.weights for need in needs) + shared,
    )


def _num_copies(bundle: Bundle, settings: Settings) -> float:
    """Memory of the weights in one process, in copies of the bundle's.

    Lanes have two sessions, one for stepping alone and a shared one. Without room for a file that
    both map, each packs the weights.
    """
    if parent_with_room(bundle) is not None:
        return _PACKED_SHARE
    config, rows = bundle.config, settings.max_rows or CPU_ROWS
    has_lanes = best_lanes(config, rows, settings.threads or num_usable_cores()) > 0
    has_shortlist = _has_shortlist(bundle, settings)
    return 1 + (has_lanes and not steps_on_one_thread(config, has_shortlist=has_shortlist))


def _has_shortlist(bundle: Bundle, settings: Settings) -> bool:
    return "shortlist" in bundle.manifest and not settings.no_shortlist


def _need_of_process(bundle: Bundle, settings: Settings, *, own_process: bool) -> MemoryNeed:
    """The memory of one process that shares nothing with others."""
    config, rows = bundle.config, settings.max_rows or CPU_ROWS
    # Rows for background requests hold texts only beside others that are full.
    shape = cache_shape(bundle, limits_of(bundle, rows, rows))
    usual = dataclasses.replace(
        shape,
        max_rows=rows,
        max_source=min(shape.max_source, _USUAL_TOKENS),
        max_target=min(shape.max_target, _USUAL_TOKENS),
    )
    has_shortlist = _has_shortlist(bundle, settings)
    graphs = [bundle.weights_path, bundle.encoder_path, bundle.decoder_step_path]
    weights = sum(bundle.files.size(path) for path in graphs if path is not None)
    if has_shortlist:
        # Another step's session, and the columns of all rows' lists.
        item = 1 if bundle.precision == "int8" else 4
        weights += item * (num_layer_weights(config) + _LISTED_COLUMNS * config.d_model)
    work = shape.item_size * (
        _LOGITS_COPIES * rows * config.vocab_size
        + _ENCODED_TOKENS * (6 * config.d_model + config.ffn_dim)
    )
    process = PROCESS_BYTES if own_process else 0
    need = MemoryNeed(
        model=bundle.name,
        rows=rows,
        process=process,
        weights=int(_num_copies(bundle, settings) * weights),
        caches=usual.num_bytes,
        work=work,
        most=0,
    )
    # Graphs loaded at the first request: the decoder for scores, both networks for attention.
    late = weights * (1 if bundle.attention_path is None else 2)
    attention = AttentionShape.of(bundle)
    if attention is not None:
        late += attention.peak_bytes(shape.max_source, shape.max_target)
    most = need.typical - need.caches + int((1 + _WAITING_SHARE) * shape.num_bytes) + late
    return dataclasses.replace(need, most=most)


def with_processes_that_fit(
    bundles: Sequence[Bundle], settings: Settings, usable: int | None = None
) -> Settings:
    """The settings with the number of processes of each model.

    If the settings leave the number open, processes take at most half of the memory, since a reload
    opens a second version of a model.

    Args:
        bundles: all models of the server.
        settings: number of rows and threads, and the memory budget.
        usable: usable memory in bytes; None for that of this machine.

    Raises:
        StartupError: the settings ask for several processes where there can only be one.
    """
    count = num_processes(settings)
    budget = settings.memory_budget * MIB or (usable_memory() if usable is None else usable)
    while count > 1 and not settings.model_processes:
        tried = dataclasses.replace(settings, model_processes=count)
        needs = [memory_need(bundle, tried, own_process=True) for bundle in bundles]
        if _server_bytes(settings) + sum(need.typical for need in needs) <= budget / 2:
            break
        count -= 1
    return dataclasses.replace(settings, model_processes=count)


def check_memory(
    bundles: Sequence[Bundle], settings: Settings, *, own_process: bool, usable: int | None = None
) -> None:
    """Log the memory that each bundle needs, and compare the sum with the usable memory.

    Args:
        bundles: all models of the server.
        settings: number of rows and threads, and the memory budget.
        own_process: whether each model runs in a process of its own.
        usable: usable memory in bytes; None for that of this machine.

    Raises:
        StartupError: the models need more memory; the message has the sum.
    """
    usable = usable_memory() if usable is None else usable
    budget = settings.memory_budget * MIB or usable
    needs = [memory_need(bundle, settings, own_process=own_process) for bundle in bundles]
    for need in needs:
        mib = {"typical_mib": _mib(need.typical), "most_mib": _mib(need.most)}
        _log.info("memory", extra={"model": need.model, "rows": need.rows, **mib})
    server = _server_bytes(settings) + (0 if own_process else PROCESS_BYTES)
    typical = server + sum(need.typical for need in needs)
    most = server + sum(need.most for need in needs)
    of = _budget_of(settings)
    if typical > budget:
        raise StartupError(
            f"the models need about {_mib(typical)} MiB of memory, and {of} {_mib(budget)}: server "
            f"{_mib(server)} + {' + '.join(map(str, needs))}. Serve fewer models or rows "
            f"(--max-rows), use fewer processes (--model-processes), or raise --memory-budget if "
            f"that is wrong"
        )
    if most > budget:
        _log.warning(
            "with the longest texts in all rows, the models need %s MiB of memory, and %s %s: "
            "with fewer rows (--max-rows) that can't happen",
            *(_mib(most), of, _mib(budget)),
        )


def _server_bytes(settings: Settings) -> int:
    """Memory of the server without models, with its response cache and front processes."""
    fronts = settings.front_processes * FRONT_BYTES
    return SERVER_BYTES + fronts + settings.cache_memory * MIB


class MemoryBudget:
    """The memory of models in processes of their own, while versions are opened and end.

    A version counts from before it is opened until its process has ended. A sleeping model counts
    in full, since its next call wakes it. Methods may be called from several threads.

    Args:
        settings: number of rows and threads, and the memory budget.
        usable: usable memory in bytes; None for that of this machine.
    """

    def __init__(self, settings: Settings, usable: int | None = None) -> None:
        self._settings = settings
        self._usable = usable_memory() if usable is None else usable
        self._holdings: dict[str, list[_Holding]] = {}  # by model, in the order of opening
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def opening(self, bundle: Bundle) -> Iterator[Callable[[IsRunning], None]]:
        """Count a version, unless the `with` block that opens it raises.

        Yields:
            A setter for the function that tells whether the version's process still runs.

        Raises:
            StartupError: the version does not fit beside the models that run and sleep; the message
                has the sum.
        """
        holding = _Holding(memory_need(bundle, self._settings, own_process=True))
        with self._lock:
            self._check(holding.need)
            versions = self._holdings.setdefault(bundle.name, [])
            versions.append(holding)
        try:
            yield holding.started
        except BaseException:
            with self._lock:
                versions.remove(holding)
            raise

    def _check(self, new: MemoryNeed) -> None:
        server = _server_bytes(self._settings)
        terms, total = [f"server {_mib(server)}"], server + new.typical
        for name, versions in self._holdings.items():
            running = [holding for holding in versions if holding.is_running()]
            counted, why = running, "runs"
            if not running and name != new.model:
                counted, why = versions[-1:], "sleeps"
            versions[:] = running or versions[-1:]  # the others have ended
            terms += [f"{holding.need}, which {why}" for holding in counted]
            total += sum(holding.need.typical for holding in counted)
        budget = self._settings.memory_budget * MIB or self._usable
        if total > budget:
            raise StartupError(
                f"there is no memory to open it: about {_mib(total)} MiB would be needed, and "
                f"{_budget_of(self._settings)} {_mib(budget)}: {' + '.join(terms)} + the new "
                f"{new}. Restart the server instead, or raise --memory-budget if that is wrong"
            )


class _Holding:
    """The memory that a version needs, and whether its process runs."""

    def __init__(self, need: MemoryNeed) -> None:
        self.need = need
        self.is_running: IsRunning = lambda: True  # until it has been opened

    def started(self, is_running: IsRunning) -> None:
        self.is_running = is_running


def _budget_of(settings: Settings) -> str:
    return "--memory-budget" if settings.memory_budget else "this machine or its control group has"


def _mib(count: int) -> int:
    return -(-count // MIB)
