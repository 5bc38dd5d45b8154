"""The decoder step on a CPU: a session bound to the first rows of the cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from model.bundle.bundle import Bundle
from service.domain.plan import Adjustments, RunnerLimits, StepPlan
from service.runtime.cpu.kv_cache import KVCache, cache_names
from service.runtime.cpu.row_lists import RowLists

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _Choices:
    """Output arrays of a step's best k tokens: [max_rows, k]."""

    top_k: Array
    top_ids: Array
    top_logits: Array


@dataclass
class _StepBinding:
    """The session's inputs and outputs, bound to the first n rows of all arrays.

    Attributes:
        io: the binding.
        token_ids, positions: inputs that each step writes, [n].
        outputs: top_ids, top_logits [n, k] and log_sum_exp [n].
    """

    io: ort.IOBinding
    token_ids: Array
    positions: Array
    outputs: tuple[Array, Array, Array]
    has_adjustments: bool = False
    lists_generation: int = -1


class DecoderStep:
    """The decoder-step session, bound by pointer to the first rows of the cache.

    Args:
        bundle: the bundle.
        session: the decoder step, or the one that chooses from lists.
        cache: the cache.
        limits: limits of the runner.
        lists: lists of the rows; None for the whole vocabulary.
    """

    def __init__(
        self,
        bundle: Bundle,
        session: ort.InferenceSession,
        cache: KVCache,
        limits: RunnerLimits,
        lists: RowLists | None = None,
    ) -> None:
        self._session = session
        self._lists = lists
        self._limits = limits
        self._token_groups = bundle.token_groups
        rows = limits.num_rows
        self._token_ids = np.zeros(rows, np.int64)
        self._positions = np.zeros(rows, np.int32)
        self._choices: dict[int, _Choices] = {}
        self._log_sum_exp = np.empty(rows, np.float32)
        self._inputs: dict[str, Array] = {
            "token_ids": self._token_ids,
            "positions": self._positions,
            "source_lengths": cache.source_lengths,
        }
        self._outputs: dict[str, Array] = {"log_sum_exp": self._log_sum_exp}
        for name, array in cache.past.items():
            self._inputs[f"past_{name}"] = self._outputs[f"present_{name}"] = array
        for i, name in enumerate(cache_names(bundle.config.num_decoder_layers)):
            self._inputs[f"cross_{name}"] = cache.cross_attention[i]
            self._inputs[f"cross_last_{name}"] = cache.cross_last[i]
            self._outputs[f"present_cross_{name}"] = cache.cross_attention[i]
        self._constants: dict[str, Array] = {}
        if cache.self_attention:
            # The length of the buffer and not of the longest row: the same in every step.
            length = np.array(limits.max_target_positions, np.int32)
            self._constants["total_sequence_length"] = length
        if bundle.is_resident:  # made for a GPU; run on a CPU to check it
            self._inputs["running"] = np.ones(rows, np.int32)
            self._constants["source_buffer_length"] = np.array(
                cache.cross_attention[0].shape[2], np.int32
            )
        # Cached by (rows, k): binding all arrays of a large model takes longer than a step of a
        # small one. A binding holds pointers, not data.
        self._bindings: dict[tuple[int, int], _StepBinding] = {}
        self._last: _StepBinding | None = None

    def run(self, plan: StepPlan) -> tuple[Array, Array, Array]:
        """Run a step; returns candidates' ids and logits [rows, k], and log-sum-exp [rows]."""
        rows = plan.num_rows
        k = min(plan.top_k or self._limits.top_k, self._limits.vocab_size)
        binding = self._bindings.get((rows, k)) or self._bind(rows, k)
        binding.token_ids[:] = plan.token_ids
        binding.positions[:] = plan.positions
        if self._lists is not None:
            self._bind_lists(self._lists, binding, rows)
        elif len(plan.adjustments.rows) or binding.has_adjustments:
            _bind_adjustments(binding, plan.adjustments)
        return self._run(binding)

    def follow_up(self) -> tuple[Array, Array, Array]:
        """Run a step after the last one, in which each row continues with its best token."""
        binding = self._last
        assert binding is not None, "no step to follow"
        binding.token_ids[:] = binding.outputs[0][:, 0]
        binding.positions += 1
        return self._run(binding)

    def _run(self, binding: _StepBinding) -> tuple[Array, Array, Array]:
        if len(binding.token_ids):
            self._session.run_with_iobinding(binding.io)
        self._last = binding
        top_ids, top_logits, log_sum_exp = binding.outputs
        # Copies, since the next step writes into the same arrays.
        return top_ids.copy(), top_logits.copy(), log_sum_exp.copy()

    def _prepare(self, k: int) -> _Choices:
        shape = (self._limits.num_rows, k)
        choices = _Choices(np.array([k]), np.empty(shape, np.int64), np.empty(shape, np.float32))
        self._choices[k] = choices
        if self._lists is not None:
            self._lists.reserve(k)
        return choices

    def _bind(self, rows: int, k: int) -> _StepBinding:
        choices = self._choices.get(k) or self._prepare(k)
        io = self._session.io_binding()
        constants = {**self._constants, "top_k": choices.top_k}
        if self._token_groups:
            constants["top_groups"] = np.minimum(choices.top_k, self._token_groups)
        for name, array in constants.items():
            io.bind_cpu_input(name, array)
        chosen = {"top_ids": choices.top_ids, "top_logits": choices.top_logits}
        outputs = {**chosen, **self._outputs}
        for bind, arrays in ((io.bind_input, self._inputs), (io.bind_output, outputs)):
            for name, array in arrays.items():
                shape = (rows, *array.shape[1:])
                bind(name, "cpu", 0, array.dtype, shape, array.ctypes.data)
        found = (choices.top_ids[:rows], choices.top_logits[:rows], self._log_sum_exp[:rows])
        binding = _StepBinding(io, self._token_ids[:rows], self._positions[:rows], found)
        if self._lists is None:
            _bind_adjustments(binding, Adjustments.none())
        self._bindings[rows, k] = binding
        return binding

    def _bind_lists(self, lists: RowLists, binding: _StepBinding, rows: int) -> None:
        if binding.lists_generation == lists.generation:
            return
        inputs = {**lists.shared, "listed_columns": lists.listed_columns[:rows]}
        for name, array in inputs.items():
            pointer = array.ctypes.data
            binding.io.bind_input(name, "cpu", 0, array.dtype, array.shape, pointer)
        binding.lists_generation = lists.generation


class ListedStep:
    """Steps of rows with and without a shortlist.

    Where there are both, all rows step with both graphs, and the states of an SSRU decoder are put
    back in between. (Attention writes the same keys and values again.)

    Args:
        whole: the step that chooses from the whole vocabulary.
        listed: the step that chooses from lists.
        lists: lists of the rows.
        cache: the cache of both.
    """

    def __init__(
        self, whole: DecoderStep, listed: DecoderStep, lists: RowLists, cache: KVCache
    ) -> None:
        self._whole = whole
        self._listed = listed
        self._lists = lists
        self._cache = cache
        self._follow_up = whole.follow_up

    def run(self, plan: StepPlan) -> tuple[Array, Array, Array]:
        """Run a step; returns candidates' ids and logits [rows, k], and log-sum-exp [rows]."""
        has_any, has_all = self._lists.trim(plan.num_rows, plan.num_paused)
        if has_any and not has_all:
            return self._run_both(plan)
        step = self._listed if has_any else self._whole
        self._follow_up = step.follow_up
        return step.run(plan)

    def follow_up(self) -> tuple[Array, Array, Array]:
        """Run a step after the last one, in which each row continues with its best token."""
        return self._follow_up()

    def _run_both(self, plan: StepPlan) -> tuple[Array, Array, Array]:
        rows = plan.num_rows
        is_listed = self._lists.is_listed[:rows]
        states = [state[:rows].copy() for state in self._cache.states]
        ids, logits, log_sum_exp = self._whole.run(plan)
        for state, before in zip(self._cache.states, states, strict=True):
            state[:rows] = before
        for found, own in zip((ids, logits, log_sum_exp), self._listed.run(plan), strict=True):
            found[is_listed] = own[is_listed]
        following = replace(plan, token_ids=ids[:, 0], positions=plan.positions + 1)
        self._follow_up = partial(self._run_both, following)
        return ids, logits, log_sum_exp


def _bind_adjustments(binding: _StepBinding, adjustments: Adjustments) -> None:
    binding.io.bind_cpu_input("adjust_rows", adjustments.rows)
    binding.io.bind_cpu_input("adjust_token_ids", adjustments.token_ids)
    binding.io.bind_cpu_input("adjust_values", adjustments.values)
    binding.has_adjustments = len(adjustments.rows) > 0
