"""A trial of a model before it serves: its graphs must do what its manifest promises.

Without it, a bundle that contradicts itself would start, report SERVING and fail every request. The
sizes that the graphs declare have been compared already (`model.bundle.graph_check`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from model.bundle.background import in_background
from model.bundle.bundle import Bundle
from model.bundle.manifest import MANIFEST_FILE, BundleError
from model.bundle.out_of_memory import is_out_of_memory
from model.bundle.sessions import SessionSettings, open_session
from service.domain.plan import EncodeItem, LanedRunner, ModelRunner, StepOutput, StepPlan
from service.domain.sampling import MAX_SAMPLED
from service.errors import StartupError

T = TypeVar("T")

# A long source takes memory with the square of its length, which is not freed afterwards.
_LONGEST_SOURCE = 1024
_TIMED_STEPS = 3


def try_scoring(bundle: Bundle, settings: SessionSettings) -> None:
    """Score a target of two tokens for a source of zeros, in a session of its own.

    Raises:
        StartupError: scoring fails; names the graph and says what to do.
    """
    config, path = bundle.config, bundle.scoring_path
    if path is None:
        return
    shape = (1, config.num_heads, 2, config.head_dim)
    zeros = np.zeros(shape, bundle.cache_dtype)
    feeds: dict[str, Any] = {"target_ids": np.array([config.vocab_size - 1, config.eos_id])}
    for layer in range(config.num_decoder_layers):
        feeds |= {f"cross_key_{layer}": zeros, f"cross_value_{layer}": zeros}
    session = _tried(bundle, "graphs.scoring", lambda: open_session(bundle, path, settings))
    what = "scoring two tokens with graphs.scoring"
    outputs = ["log_probabilities", "attention"]
    found = _tried(bundle, what, lambda: session.run(outputs, feeds))
    shapes = [array.shape for array in found]
    if shapes != [(2,), (2, 2)] or not all(np.isfinite(array).all() for array in found):
        raise _contradiction(bundle, f"{what} gives no probabilities")


def try_translating(bundle: Bundle, runner: ModelRunner | LanedRunner, niceness: int = 0) -> float:
    """Encode and step with the first row, up to the manifest's limits.

    This leaves nothing in the row, since every encoded source replaces the one before.

    Args:
        bundle: the bundle.
        runner: runner of the bundle.
        niceness: niceness of the steps that are not timed, relative to the calling thread.

    Returns:
        Duration of a step of one row, in seconds.

    Raises:
        StartupError: an encode or a step fails; names the field and says what to do.
    """
    config, limits = bundle.config, runner.limits
    # The first lane has two runners for the same row: with all threads, and with one.
    timed, tried = (
        (runner.lanes[0].alone, runner.lanes[0].beside)
        if isinstance(runner, LanedRunner)
        else (runner, runner)
    )

    def step(what: str, plan: StepPlan, *, is_timed: bool = False) -> StepOutput:
        output = _tried(
            bundle,
            what,
            lambda: (
                timed.execute(plan)
                if is_timed
                else in_background(lambda: tried.execute(plan), niceness)
            ),
        )
        if not _is_sound(output, config.vocab_size):
            raise _contradiction(bundle, f"{what} gives no tokens of the vocabulary")
        return output

    highest = config.vocab_size - 1
    output = step("a first step", _plan(config.bos_id, 0, source_ids=(highest, config.eos_id)))
    seconds = []
    for position in range(1, min(1 + _TIMED_STEPS, limits.max_target_positions)):
        started = time.perf_counter()
        plan = _plan(int(output.top_ids[0, 0]), position)
        output = step(f"step {position}", plan, is_timed=True)
        seconds.append(time.perf_counter() - started)
    step(
        f"a step at limits.max_target_positions ({limits.max_target_positions})",
        _plan(highest, limits.max_target_positions - 1),
    )
    if limits.max_source_positions > limits.max_target_positions:
        # If targets may be at least as long, the last step has tried all positions at little cost.
        num_source = min(limits.max_source_positions, _LONGEST_SOURCE)
        source_ids = (*[highest] * (num_source - 1), config.eos_id)
        what = f"a source of limits.max_source_positions ({num_source})"
        step(what, _plan(config.bos_id, 0, source_ids=source_ids))
    if groups := bundle.token_groups:  # their number matters with many candidates
        num_candidates, by = config.vocab_size, f" by {groups} groups (resident.token_groups)"
    else:
        num_candidates, by = min(MAX_SAMPLED, config.vocab_size), ""
    what = f"choosing {num_candidates} tokens{by}"
    source = (highest, config.eos_id)
    step(what, _plan(highest, 0, source_ids=source, exact=True, top_k=num_candidates))
    return min(seconds, default=0.0)


def _plan(
    token_id: int,
    position: int,
    *,
    source_ids: tuple[int, ...] | None = None,
    exact: bool = False,
    top_k: int | None = None,
) -> StepPlan:
    """A plan for the first row."""
    return StepPlan(
        copies=(),
        encodes=() if source_ids is None else [EncodeItem((0,), source_ids, exact=exact)],
        token_ids=np.array([token_id], np.int64),
        positions=np.array([position], np.int32),
        top_k=top_k,
    )


def _is_sound(output: StepOutput, vocab_size: int) -> bool:
    ids, logits = output.top_ids, output.top_logits
    return bool(
        ids.shape == logits.shape
        and ((ids >= 0) & (ids < vocab_size)).all()
        and np.isfinite(logits[:, 0]).all()
        and (logits < np.inf).all()  # -inf, beyond the end of a shortlist; not NaN
        and np.isfinite(output.log_sum_exp).all()
    )


def _tried(bundle: Bundle, what: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except BundleError as exc:
        raise StartupError(str(exc)) from exc
    except Exception as exc:
        if is_out_of_memory(exc):
            raise StartupError(
                f"there is too little memory for {what} of {bundle.path}: serve fewer rows "
                f"(--max-rows), or give it more"
            ) from exc
        reason = str(exc).strip().partition("\n")[0] or type(exc).__name__
        raise _contradiction(bundle, f"{what} fails: {reason[:500]}") from exc


def _contradiction(bundle: Bundle, what: str) -> StartupError:
    return StartupError(
        f"{bundle.path / MANIFEST_FILE} contradicts its graphs: {what}; "
        f"copy the bundle again, or export it again"
    )
