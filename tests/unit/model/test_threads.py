"""Sessions that share one pool of threads: only in a process that has opened none before."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from model.threads import share_threads
from service.runner import OnnxRunner
from tests.factories import random_sources, tiny_bundle
from tests.runner_loops import greedy_steps

THREADS = 3
NUM_STEPS = 4
CHILD = """
import json, os, sys
from model.bundle import Bundle
from model.threads import share_threads
from service.runner import OnnxRunner
from tests.runner_loops import greedy_steps

def num_threads():
    return len(os.listdir("/proc/self/task"))

share_threads(int(sys.argv[2]))
bundle = Bundle.load(sys.argv[1])
counts = [num_threads()]
runners = []
for _ in range(2):
    runners.append(OnnxRunner(bundle, max_rows=8, intra_op_threads=5))
    counts.append(num_threads())
outputs = greedy_steps(runners[1], json.loads(sys.stdin.read()), int(sys.argv[3]))
print(json.dumps([counts, [output.top_logits.tobytes().hex() for output in outputs]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_one_pool_serves_all_sessions_with_the_same_bits(tmp_path: Path, precision: str) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision=precision)
    sources = random_sources(bundle.config, 5)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(bundle.path), str(THREADS), str(NUM_STEPS)],
        input=json.dumps(sources),
        env={"PYTHONPATH": ":".join(sys.path), "ORT_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    counts, logits = json.loads(child.stdout)
    # The pool comes with the first session; whoever calls is one of its threads.
    assert counts[1] - counts[0] in (0, THREADS - 1)
    assert counts[2] == counts[1]
    own = greedy_steps(OnnxRunner(bundle, max_rows=8), sources, NUM_STEPS)
    assert logits == [output.top_logits.tobytes().hex() for output in own]


def test_too_late_where_sessions_have_threads_of_their_own(tmp_path: Path) -> None:
    OnnxRunner(tiny_bundle(tmp_path / "bundle"), max_rows=2)
    with pytest.raises(RuntimeError, match="sessions already"):
        share_threads()
