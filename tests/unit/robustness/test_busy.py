"""The load beside the tests ends with them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import busy

SIBLINGS = """
import os, pathlib, signal, sys
runner = os.getppid()
print(*pathlib.Path(f"/proc/{runner}/task/{runner}/children").read_text().split(), flush=True)
if "waits" in sys.argv:
    while os.getppid() == runner:
        pass
sys.exit(3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs lists of a process's children")
@pytest.mark.parametrize("end", ["by itself", "SIGTERM", "SIGKILL"])
def test_the_load_ends_with_the_command(end: str) -> None:
    arguments = [] if end == "by itself" else ["waits"]
    runner = subprocess.Popen(
        [sys.executable, busy.__file__, sys.executable, "-c", SIBLINGS, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert runner.stdout is not None
    pids = [int(pid) for pid in runner.stdout.readline().split()]
    assert len(pids) == 4
    if arguments:
        runner.send_signal(signal.Signals[end])
    assert (runner.wait() == 3) == (end == "by itself")
    while any(runs(pid) for pid in pids):
        pass


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended may not have been waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
