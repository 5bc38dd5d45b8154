"""Outcomes of calls: answered correctly, or refused with a code that says whether to retry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

# The codes that tell a client whether to try again (proto/README.md, "Errors"). A connection that
# was refused or reset over HTTP has no code: the client knows that nothing was answered.
NO_CONNECTION = "no connection"
RETRIED = frozenset(
    {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "503", "429", "504", NO_CONNECTION}
)
HUNG = "hung"
# gRPC resets calls that arrive while a server stops.
RETRIED_AT_THE_END = RETRIED | {"CANCELLED"}


@dataclass
class CallAccount:
    """The calls of a round.

    Attributes:
        expected: correct translation of each text, recorded without faults.
        refusals: codes with which a call may be refused.
        right: number of calls with an answer identical to the recorded one.
        refused: number of refused calls, by code.
        messages: messages of the refused calls, each with its kind and code.
        cancelled: number of calls cancelled by their client.
        finds: failures: wrong texts, other codes, calls past their deadline.
    """

    expected: Mapping[str, str]
    refusals: Collection[str] = RETRIED
    right: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    cancelled: int = 0
    finds: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All calls that ended."""
        return self.right + self.refused.total() + self.cancelled + len(self.finds)

    def answered(self, kind: str, text: str, translation: str) -> None:
        """Record the answer to a call of `kind`."""
        if translation == self.expected[text]:
            self.right += 1
        else:
            expected = self.expected[text]
            self.finds.append(f"{kind}: {text!r} gave {translation!r} instead of {expected!r}")

    def failed(self, kind: str, code: str, message: str, *, text: str = "", got: str = "") -> None:
        """Record a call of `kind` that ended with `code`, after a stream had sent `got`."""
        if not self.expected.get(text, "").startswith(got):
            self.finds.append(f"{kind}: {text!r} began with {got!r}, which is wrong, then {code}")
        elif code in self.refusals:
            self.refused[code] += 1
            self.messages[f"{kind}: {code}: {message}"] += 1
        else:
            self.finds.append(f"{kind}: {code}: {message}")

    def hung(self, kind: str, seconds: float) -> None:
        """Record a call of `kind` without an end `seconds` after its deadline."""
        self.finds.append(f"{kind}: {HUNG}: no end {seconds:g} s after its deadline")
