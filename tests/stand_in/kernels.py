"""The launches of an encode and of a greedy step of one row, for `test_kernels.py`.

Prints a list with one JSON object for each bundle. With ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO=1,
ONNX Runtime prints the kernel of each attention before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from service.domain.plan import EncodeItem, ScoreItem, StepPlan
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from service.runtime.scoring import OnnxScorer
from tests.stand_in.steering import StandIn

SOURCE = (5, 6, 7, 8, 3)
ENCODE = StepPlan((), [EncodeItem((0,), SOURCE)], np.zeros(0, np.int64), np.zeros(0, np.int32))


def launched(bundle: Bundle) -> dict[str, list[str]]:
    """The launched kernels, products and calls of cuDNN, in order."""
    cuda, found = StandIn(), {}
    settings = SessionSettings("cuda")
    runner = DeviceRunner(bundle, settings, DeviceOptions(4, captures=False))
    token_ids, positions, chained = np.full(1, 2), np.zeros(1, np.int32), np.ones(1, np.bool_)
    step = StepPlan((), (), token_ids, positions, top_k=1, chained=chained)
    for name, plan in (("encode", ENCODE), ("step", step)):
        runner.execute(plan)
        runner.execute(plan)
        cuda.forget()
        runner.execute(plan)
        found[name] = cuda.launched()
    scorer = OnnxScorer(bundle, settings, runner.encoder_session)
    scorer.prepare()
    scorer.score([ScoreItem(SOURCE, SOURCE)])
    runner.close()
    return found


if __name__ == "__main__":
    print(json.dumps([launched(Bundle.load(Path(path))) for path in sys.argv[1:]]))
