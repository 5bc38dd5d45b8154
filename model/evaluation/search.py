"""Reference search: greedy and beam, in simple code. The engine is compared with it.

Definitions, since outputs have to agree to the last token:

- A token's log-probability is its raw logit minus the row's log-sum-exp, subtracted in double
  precision; totals are sums of these in double precision.
- Length counts generated tokens, the end-of-sentence token included. A score is the total
  log-probability divided by the length penalty.
- Ties: within one row, tokens are ordered by raw logit, then lower token id first. (Not by
  log-probability: rounding can make two of them equal where the logits are not.) Between rows of
  a beam, candidates are ordered by total log-probability, then lower beam first. Beams are
  numbered from best to worst. Among finished hypotheses of equal score, the one that finished
  first comes first, and within one step the candidate that came first.
- No token is suppressed: a model that wants to say padding says it, unless its configuration has
  `forbid_pad`. Then padding is never chosen, and keeps its share of the log-sum-exp.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from model.bundle.limits import default_max_new_tokens
from model.bundle.search_limits import EarlyStopping, LengthPenaltyKind
from model.network.transformer import Transformer


@dataclass(frozen=True)
class ReferenceHypothesis:
    """One translation.

    Attributes:
        token_ids: tokens without BOS and EOS.
        log_probs: natural logarithm of every generated token's probability; the last one is the
            EOS's if `finished`.
        score: total log-probability over the length penalty (greedy search: the bare total).
        finished: whether it ended with EOS; False if it was cut at the length limit.
    """

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    score: float
    finished: bool


@dataclass(frozen=True)
class BeamOptions:
    """Options of a beam search.

    Attributes:
        beam_size: hypotheses kept, k.
        num_hypotheses: number of hypotheses to return, best first; at most `beam_size`.
        length_penalty: alpha; 0 compares bare totals, larger favours longer translations.
        length_penalty_kind: "power" is length^alpha; "gnmt" is ((5 + length) / 6)^alpha (Wu et
            al., 2016, equation 14).
        early_stopping: when a sentence with k finished hypotheses stops. "first": at once.
            "heuristic": when the best running one, at its present length, scores no better than
            the worst finished one. "never": the same, at the length that would flatter it most,
            so that nothing better can be missed. (Hugging Face calls them True, False and
            "never".)

    Raises:
        ValueError: a value is out of range; the message names the field.
    """

    beam_size: int = 5
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    length_penalty_kind: LengthPenaltyKind = "power"
    early_stopping: EarlyStopping = "heuristic"

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise ValueError(f"beam_size must be at least 1, not {self.beam_size}")
        if not 1 <= self.num_hypotheses <= self.beam_size:
            raise ValueError(
                f"num_hypotheses must be between 1 and beam_size ({self.beam_size}), "
                f"not {self.num_hypotheses}"
            )
        if self.length_penalty_kind not in get_args(LengthPenaltyKind):
            raise ValueError(
                f"length_penalty_kind must be power or gnmt, not {self.length_penalty_kind!r}"
            )
        if self.early_stopping not in get_args(EarlyStopping):
            raise ValueError(
                f"early_stopping must be heuristic, first or never, not {self.early_stopping!r}"
            )

    def score(self, log_probability: float, length: int) -> float:
        """A total log-probability over the penalty for `length` tokens."""
        if self.length_penalty_kind == "gnmt":
            return log_probability / math.pow((5 + length) / 6, self.length_penalty)
        return log_probability / math.pow(length, self.length_penalty)


@torch.inference_mode()
def greedy_search(
    model: Transformer,
    source_ids: Tensor,
    source_mask: Tensor | None = None,
    max_new_tokens: int | Sequence[int] | None = None,
    start_ids: Sequence[int] = (),
    lists: Sequence[Sequence[int]] | None = None,
) -> list[ReferenceHypothesis]:
    """Greedy search: append the most probable token until the end.

    Args:
        model: the network, in evaluation mode.
        source_ids: [B, S], every row ending with EOS, padding on the right.
        source_mask: [B, S], True at tokens; by default everything but `pad_id`.
        max_new_tokens: limit for all rows or one a row, EOS included; by default
            `default_max_new_tokens`.
        start_ids: every translation begins with these, whose log-probabilities then are 0.
        lists: the only tokens of each row, among which probabilities add up to one; by default all.

    Returns:
        One hypothesis a row, its score the bare total log-probability.

    Raises:
        ValueError: the source or a limit exceeds the model's positions.
    """
    mask = source_ids != model.config.pad_id if source_mask is None else source_mask
    limits = _limits(model, mask, max_new_tokens)
    tokens: list[list[int]] = [[] for _ in limits]
    log_probs: list[list[float]] = [[] for _ in limits]
    cache = model.start_cache(model.encode(source_ids, mask), mask)
    live = list(range(len(limits)))  # the sentence of each row that still steps
    last = source_ids.new_full((len(live),), model.config.bos_id)
    for step in itertools.count():
        if not live:
            break
        logits = _among(model.step(last, cache), lists, live)
        best_ids, best_log_probs = best_tokens(logits, 1, model.config.forbidden_id)
        if step < len(start_ids):
            best_ids, best_log_probs = [[start_ids[step]]] * len(live), [[0.0]] * len(live)
        going = []
        for row, sentence in enumerate(live):
            tokens[sentence].append(best_ids[row][0])
            log_probs[sentence].append(best_log_probs[row][0])
            ended = best_ids[row][0] == model.config.eos_id
            if not ended and len(tokens[sentence]) < limits[sentence]:
                going.append(row)
        if len(going) < len(live):
            live = [live[row] for row in going]
            cache = cache.select(source_ids.new_tensor(going))
        last = source_ids.new_tensor([tokens[sentence][-1] for sentence in live])
    return [
        _hypothesis(ids, log_ps, sum(log_ps), model.config.eos_id)
        for ids, log_ps in zip(tokens, log_probs, strict=True)
    ]


@torch.inference_mode()
def beam_search(
    model: Transformer,
    source_ids: Tensor,
    source_mask: Tensor | None = None,
    options: BeamOptions | None = None,
    max_new_tokens: int | Sequence[int] | None = None,
    lists: Sequence[Sequence[int]] | None = None,
) -> list[list[ReferenceHypothesis]]:
    """The best of k hypotheses that grow side by side (Graves, 2012; Wu et al., 2016).

    A step takes the best 2k continuations of a sentence's beam. Those that end with EOS and are
    among the best k are finished; the first k that don't end go on. At the length limit the best
    k continuations are hypotheses without EOS.

    Args:
        model: the network, in evaluation mode.
        source_ids: [B, S], as in `greedy_search`.
        source_mask: [B, S], as in `greedy_search`.
        options: beam size, penalties, stopping; by default `BeamOptions()`.
        max_new_tokens: as in `greedy_search`.
        lists: as in `greedy_search`.

    Returns:
        For every row the best `num_hypotheses`, best first; fewer only where the vocabulary is
        too small for as many to exist.

    Raises:
        ValueError: the source or a limit exceeds the model's positions.
    """
    options = options or BeamOptions()
    mask = source_ids != model.config.pad_id if source_mask is None else source_mask
    limits = _limits(model, mask, max_new_tokens)
    beams = [ReferenceBeam(options, limit, model.config.eos_id) for limit in limits]
    cache = model.start_cache(model.encode(source_ids, mask), mask)
    live = beams  # their running hypotheses, one after another, are the rows of the cache
    last = source_ids.new_full((len(beams),), model.config.bos_id)
    while live:
        sentences = [beams.index(beam) for beam in live for _ in beam.running]
        logits = _among(model.step(last, cache), lists, sentences)
        ids, log_probs = best_tokens(logits, 2 * options.beam_size, model.config.forbidden_id)
        rows: list[int] = []
        tokens: list[int] = []
        start = 0
        for beam in live:
            end = start + len(beam.running)
            for parent, token in beam.advance(ids[start:end], log_probs[start:end]):
                rows.append(start + parent)
                tokens.append(token)
            start = end
        live = [beam for beam in live if not beam.done]
        cache = cache.select(source_ids.new_tensor(rows))
        last = source_ids.new_tensor(tokens)
    return [beam.finished[: options.num_hypotheses] for beam in beams]


@dataclass(frozen=True)
class _Running:
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    total: float


class ReferenceBeam:
    """The search state of one sentence, in pure Python and independent of the model.

    Attributes:
        running: hypotheses that go on, best first; one empty one to begin with.
        finished: the best `beam_size` hypotheses that have ended, best first.
        done: nothing of this sentence needs another step.
    """

    def __init__(self, options: BeamOptions, max_new_tokens: int, eos_id: int) -> None:
        self.options = options
        self.max_new_tokens = max_new_tokens
        self.eos_id = eos_id
        self.running = [_Running((), (), 0.0)]
        self.finished: list[ReferenceHypothesis] = []
        self.done = False

    def advance(
        self, ids: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]]
    ) -> list[tuple[int, int]]:
        """Takes one step.

        Args:
            ids: best tokens of every running hypothesis, best first: 2 * `beam_size` of
                them, or the whole vocabulary if that is smaller.
            log_probs: their log-probabilities.

        Returns:
            For every hypothesis that runs on, its parent (an index into `running` before the step)
            and its newest token; nothing if the sentence is done.
        """
        size = self.options.beam_size
        candidates = [
            (parent, token, log_prob)
            for parent in range(len(self.running))
            for token, log_prob in zip(ids[parent], log_probs[parent], strict=True)
        ]
        # A stable sort: equals stay in the order of beam and, within a beam, of raw logit.
        candidates.sort(key=lambda c: -(self.running[c[0]].total + c[2]))
        length = len(self.running[0].token_ids) + 1
        going: list[tuple[int, int]] = []
        running: list[_Running] = []
        for rank, (parent, token, log_prob) in enumerate(candidates[: 2 * size]):
            old = self.running[parent]
            new = _Running(
                (*old.token_ids, token), (*old.log_probs, log_prob), old.total + log_prob
            )
            if token == self.eos_id or length == self.max_new_tokens:
                if rank < size:
                    self._finish(new)
            elif len(running) < size:
                going.append((parent, token))
                running.append(new)
        self.running = running
        self.done = not running or self._cannot_improve(length)
        return [] if self.done else going

    def _finish(self, ended: _Running) -> None:
        score = self.options.score(ended.total, len(ended.token_ids))
        self.finished.append(_hypothesis(ended.token_ids, ended.log_probs, score, self.eos_id))
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self.finished[self.options.beam_size :]

    def _cannot_improve(self, length: int) -> bool:
        options = self.options
        if len(self.finished) < options.beam_size:
            return False
        if options.early_stopping == "first":
            return True
        if options.early_stopping == "never" and options.length_penalty > 0:
            length = self.max_new_tokens
        return self.finished[-1].score >= options.score(self.running[0].total, length)


def best_tokens(
    logits: Tensor, count: int, forbidden_id: int | None = None
) -> tuple[list[list[int]], list[list[float]]]:
    """The best tokens of every row and their log-probabilities, as this module orders them.

    Args:
        logits: [rows, V].
        count: number of tokens a row; V if that is smaller.
        forbidden_id: a token that is not among them, and keeps its probability.

    Returns:
        Token ids and log-probabilities, [rows][count], highest logit first, lower id first among
        equal logits.
    """
    count = min(count, logits.size(-1))
    log_sum_exp = logits.logsumexp(-1, keepdim=True).double()
    if forbidden_id is not None:
        logits = logits.clone()
        logits[:, forbidden_id] = -torch.inf
    values, ids = logits.topk(count)
    if (logits >= values[:, -1:]).sum() > ids.numel():
        # Some row has equals on both sides of the cut, where topk is free to keep any of them.
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        values, ids = values[:, :count], ids[:, :count]
    else:  # the right tokens, but topk is free to order equals as it likes
        ids = ids.sort(dim=-1).values
        values, order = logits.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
        ids = ids.gather(-1, order)
    log_probs = values.double() - log_sum_exp
    return ids.tolist(), log_probs.tolist()


def _among(
    logits: Tensor, lists: Sequence[Sequence[int]] | None, sentences: Sequence[int]
) -> Tensor:
    """Logits [rows, V] that are -inf but for the tokens in the lists of the rows' sentences."""
    if lists is None:
        return logits
    found = torch.full_like(logits, -torch.inf)
    for row, sentence in enumerate(sentences):
        listed = torch.tensor(lists[sentence])
        found[row, listed] = logits[row, listed]
    return found


def _hypothesis(
    generated: Sequence[int], log_probs: Sequence[float], score: float, eos_id: int
) -> ReferenceHypothesis:
    finished = generated[-1] == eos_id
    token_ids = tuple(generated[:-1] if finished else generated)
    return ReferenceHypothesis(token_ids, tuple(log_probs), score, finished)


def _limits(model: Transformer, mask: Tensor, given: int | Sequence[int] | None) -> list[int]:
    max_positions = model.config.num_target_positions
    lengths: list[int] = mask.sum(-1).tolist()
    if given is None:
        return [default_max_new_tokens(length, max_positions) for length in lengths]
    limits = [given] * len(lengths) if isinstance(given, int) else list(given)
    if len(limits) != len(lengths):
        raise ValueError(f"max_new_tokens has {len(limits)} limits for {len(lengths)} sentences")
    for limit in limits:
        if not 1 <= limit <= max_positions:
            raise ValueError(f"max_new_tokens must be in [1, {max_positions}], not {limit}")
    return limits
