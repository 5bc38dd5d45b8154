"""The plan of a load test: one frozen dataclass, checked once, stored with the results."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bench.load.arrivals import Arrivals
from bench.load.errors import PlanError
from dragoman.tls import Tls

EarlyStopping = Literal["", "heuristic", "first", "never"]

_MAX_REQUESTS = 20_000_000


@dataclass(frozen=True)
class LoadPlan:
    """One run. Exactly one of `rate` (open loop) and `concurrency` (closed loop) is set.

    Attributes:
        server: address, "HOST:PORT".
        tls: TLS options of the connection; None for plain text.
        rate: arriving requests a second, independent of answers.
        concurrency: users; each sends the next request when its last one was answered.
        arrivals: distribution of the arrivals of an open loop.
        burstiness: burstiness of gamma arrivals; see `arrivals.arrival_times`.
        duration: seconds that are measured.
        warmup: seconds before them, that are not.
        timeout: seconds that a call may take.
        seed: random seed of the arrivals and of the order of the texts.
        stream: StreamTranslate instead of Translate.
        texts_per_request: texts in a request.
        processes: processes that make the load.
        source_language, target_language, model: as in the contract; "" is the server's choice.
        max_new_tokens, split_sentences: as in the contract; None is the server's choice.
        beam_size: hypotheses of the search; 1 is greedy.
        early_stopping: end of a beam search, as in the contract; "" is the server's choice.

    Raises:
        PlanError: a value can't be used; the message names the command line's argument.
    """

    server: str
    rate: float | None = None
    concurrency: int | None = None
    arrivals: Arrivals = "poisson"
    burstiness: float = 1.0
    duration: float = 60.0
    warmup: float = 5.0
    timeout: float = 60.0
    seed: int = 0
    stream: bool = False
    texts_per_request: int = 1
    processes: int = 1
    source_language: str = ""
    target_language: str = ""
    model: str = ""
    max_new_tokens: int | None = None
    split_sentences: bool | None = None
    beam_size: int = 1
    early_stopping: EarlyStopping = ""
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.concurrency is None):
            raise PlanError(
                "give either --rate (open loop: requests arrive on their own) "
                "or --concurrency (closed loop: each user waits for the last answer)"
            )
        for argument, value, low in (
            ("--rate", self.rate, 0.0),
            ("--duration", self.duration, 0.0),
            ("--timeout", self.timeout, 0.0),
            ("--burstiness", self.burstiness, 0.0),
        ):
            if value is not None and not low < value < float("inf"):
                raise PlanError(f"{argument} must be above {low:g}, not {value:g}")
        for argument, count in (
            ("--concurrency", self.concurrency),
            ("--texts-per-request", self.texts_per_request),
            ("--processes", self.processes),
            ("--max-new-tokens", self.max_new_tokens),
            ("--beam-size", self.beam_size),
        ):
            if count is not None and count < 1:
                raise PlanError(f"{argument} must be at least 1, not {count}")
        if not 0 <= self.warmup < float("inf"):
            raise PlanError(f"--warmup must not be negative, not {self.warmup:g}")
        if self.seed < 0:
            raise PlanError(f"--seed must not be negative, not {self.seed}")
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.arrivals not in get_args(Arrivals):
            choices = ", ".join(get_args(Arrivals))
            raise PlanError(f"--arrivals must be one of {choices}, not {self.arrivals!r}")
        if self.burstiness != 1.0 and self.arrivals != "gamma":
            raise PlanError(
                f"--burstiness goes with --arrivals gamma; {self.arrivals} arrivals have their own"
            )
        if self.early_stopping not in get_args(EarlyStopping):
            choices = ", ".join(filter(None, get_args(EarlyStopping)))
            raise PlanError(
                f"--early-stopping must be one of {choices}, not {self.early_stopping!r}"
            )
        if self.early_stopping and self.beam_size == 1:
            raise PlanError("--early-stopping goes with a --beam-size above 1")
        if self.stream and self.beam_size > 1:
            raise PlanError("--beam-size: a stream translates greedily, without a beam")
        if self.stream and self.texts_per_request > 1:
            raise PlanError("--texts-per-request: a stream translates one text")
        if self.concurrency is not None and self.processes > self.concurrency:
            raise PlanError(
                f"--processes ({self.processes}) is more than --concurrency ({self.concurrency}): "
                "some would have nothing to do"
            )
        if self.rate is not None and self.rate * (self.warmup + self.duration) > _MAX_REQUESTS:
            raise PlanError(f"--rate and --duration make more than {_MAX_REQUESTS:,} requests")

    @property
    def loop(self) -> str:
        """The kind of loop: "open" or "closed"."""
        return "closed" if self.rate is None else "open"

    @property
    def total_seconds(self) -> float:
        """Warm-up and measurement."""
        return self.warmup + self.duration

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> LoadPlan:
        """The plan that `to_dict` gave."""
        tls = fields.get("tls")
        return cls(**{**fields, "tls": Tls(**tls) if tls else None})
