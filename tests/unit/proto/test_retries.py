"""How long a client tries again what an overloaded server refused."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.base_client import Retries
from dragoman.results import TranslationError
from tests.clock import Clock

FULL = grpc.StatusCode.RESOURCE_EXHAUSTED


def refused(hint: float | None, code: grpc.StatusCode = FULL) -> TranslationError:
    return TranslationError(code, "no room", retry_after_seconds=hint)


def pause(retries: Retries, error: TranslationError) -> float | None:
    """None if there is no other attempt."""
    try:
        return retries.pause(error)
    except TranslationError:
        return None


@given(hint=st.floats(-1.0, 30.0), timeout=st.floats(0.1, 60.0))
def test_it_waits_as_asked_and_never_past_the_timeout(hint: float, timeout: float) -> None:
    clock = Clock()
    retries = Retries(timeout, True, clock)
    attempts = 1
    error = refused(hint)
    asked = max(0.05, hint)
    while (seconds := pause(retries, error)) is not None:
        assert asked <= seconds <= 1.5 * asked
        clock.now += seconds
        left = retries.left()
        assert left is not None
        assert left > 0.0
        attempts += 1
    assert clock.now < 100.0 + timeout
    assert attempts >= timeout // (1.5 * asked)


@pytest.mark.parametrize(
    "error",
    [
        refused(None),  # a message that is too large, say
        refused(1.0, grpc.StatusCode.UNAVAILABLE),  # gRPC itself tries again
        refused(1.0, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_other_failures_are_final(error: TranslationError) -> None:
    with pytest.raises(TranslationError) as caught:
        Retries(None, True).pause(error)
    assert caught.value is error


def test_no_timeout_no_end() -> None:
    retries = Retries(None, True)
    assert retries.left() is None
    assert retries.pause(refused(1e6)) >= 1e6


@pytest.mark.parametrize("hint", [0.0, -0.0, -1.0, 1e-9])
def test_it_never_asks_without_a_pause(hint: float) -> None:
    assert Retries(None, True).pause(refused(hint)) >= 0.05


def test_it_can_be_switched_off() -> None:
    with pytest.raises(TranslationError):
        Retries(None, False).pause(refused(1.0))
