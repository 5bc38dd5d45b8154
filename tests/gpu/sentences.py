"""A thousand English sentences out of nothing but this file."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from export.parity import SENTENCES

SENTENCES_VARIABLE = "DRAGOMAN_GPU_SENTENCES"
"""A file with other sentences, one a line; or a number, for so many of these."""

_SUBJECTS = (
    "A dog", "My sister", "The old man next door", "Two children", "Nobody in this town",
    "The woman with the red umbrella", "Our teacher", "A group of tourists", "The cat", "He",
)  # fmt: skip
_PREDICATES = (
    "is waiting for the bus", "bought three books and a newspaper", "did not see the accident",
    "would like to drink a cup of tea", "has been sleeping since noon", "sings", "fell down",
    "wants to know why the shop is closed", "can play the guitar", "left without saying a word",
)  # fmt: skip
_ENDS = (
    ".", " in the park.", ", although it is raining.", " on 3 May 2019.", " because it was late.",
    ", and everybody laughed.", " at half past seven in the morning.", " in front of the station.",
    " for the first time.", "!",
)  # fmt: skip


def sentences() -> list[str]:
    """A thousand, or those that the environment asks for."""
    asked = os.environ.get(SENTENCES_VARIABLE, "")
    if asked and not asked.isdigit():
        lines = Path(asked).read_text(encoding="utf-8").splitlines()
        return [line.strip() for line in lines if line.strip()]
    made = ["".join((s, " ", p, e)) for s, p, e in itertools.product(_SUBJECTS, _PREDICATES, _ENDS)]
    # A stride through all of them, so that a few are not all of one subject.
    found = [*SENTENCES, *(made[i * 373 % len(made)] for i in range(len(made)))]
    return found[: int(asked) if asked else 1000]
