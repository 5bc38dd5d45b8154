"""Commands that tests start do not ignore signals, even if the tests themselves do."""

import signal
import subprocess
import sys

import pytest

from tests.inherited_signals import handle_ignored_signals


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_started_process_gets_the_default_action(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        handle_ignored_signals()
        program = f"import signal; print(signal.getsignal({int(number)}) is signal.SIG_IGN)"
        started = [sys.executable, "-S", "-c", program]
        assert subprocess.check_output(started, text=True) == "False\n"
        signal.raise_signal(number)  # is still ignored here
    finally:
        signal.signal(number, before)
