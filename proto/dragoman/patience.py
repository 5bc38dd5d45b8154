"""Trying again what an overloaded server refused, when it says that there will be room."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import grpc

from dragoman.results import TranslationError

# Whatever a server's hint says, so that no client asks without pause.
_LEAST_PAUSE_SECONDS = 0.05


class Patience:
    """The time of one call, over all its attempts.

    Args:
        timeout: seconds for all of them; None for ever.
        patient: whether to try again at all.
        clock: seconds.
    """

    def __init__(
        self,
        timeout: float | None,
        patient: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ends = None if timeout is None else clock() + timeout
        self._patient = patient
        self._clock = clock

    def left(self) -> float | None:
        """Seconds for the next attempt; None for ever."""
        return None if self._ends is None else max(0.0, self._ends - self._clock())

    def pause(self, error: TranslationError) -> float:
        """How many seconds to wait before the next attempt.

        Raises:
            TranslationError: `error`, if no attempt is left to make: it is another kind of failure,
                or the server's hint lies beyond the timeout.
        """
        hint = error.retry_after_seconds
        if (
            not self._patient
            or error.code is not grpc.StatusCode.RESOURCE_EXHAUSTED
            or hint is None
        ):
            raise error
        # Later by chance, so that those who were refused together don't come back together.
        seconds = max(_LEAST_PAUSE_SECONDS, hint) * random.uniform(1.0, 1.5)
        left = self.left()
        if left is not None and seconds >= left:
            raise error
        return seconds
