"""Opens a model while another one serves, for `test_two_models.py`.

While the second model's captures are held, the first one encodes, steps, copies and scores new
shapes, so that ONNX Runtime allocates and frees. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from service.domain.plan import EncodeItem, RowCopy, ScoreItem, StepPlan
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from service.runtime.scoring import OnnxScorer
from tests.stand_in.steering import StandIn

ROWS = 8
SETTINGS = SessionSettings("cuda")


def serve(runner: DeviceRunner, scorer: OnnxScorer, length: int) -> None:
    """Serve sources and targets of a new length."""
    source = (*[5] * (length - 1), 3)
    items = [EncodeItem((row,), source) for row in range(ROWS)]
    start = np.full(ROWS, 2), np.zeros(ROWS, np.int32)
    runner.execute(StepPlan((), items, *start, top_k=1))
    runner.execute(StepPlan([RowCopy(0, 1, 0, 1)], (), *start, top_k=10 * length))
    scorer.score([ScoreItem(source, source)])


def main(path: str) -> None:
    """Run two runners of the bundle at `path` at the same time."""
    cuda, bundle = StandIn(), Bundle.load(Path(path))
    first = DeviceRunner(bundle, SETTINGS, DeviceOptions(ROWS))
    scorer = OnnxScorer(bundle, SETTINGS, first.encoder_session)
    scorer.prepare()
    serve(first, scorer, 5)
    cuda.hold_captures(True)
    second: list[DeviceRunner] = []
    opening = threading.Thread(
        target=lambda: second.append(DeviceRunner(bundle, SETTINGS, DeviceOptions(ROWS)))
    )
    opening.start()
    captures = cuda.await_capture()
    served = threading.Thread(target=lambda: serve(first, scorer, 9))
    served.start()
    served.join(60)
    found: dict[str, Any] = {"captures": captures, "served": not served.is_alive()}
    cuda.hold_captures(False)
    opening.join(120)
    found["captured"] = [first.num_captures, second[0].num_captures] if second else []
    first.close()
    for runner in second:
        runner.execute(StepPlan((), (), np.full(1, 2), np.zeros(1, np.int32), top_k=1))
        runner.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
