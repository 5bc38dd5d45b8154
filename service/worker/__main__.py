"""Starts the process of one model: the arguments are in `service.worker.main`."""

from __future__ import annotations

import importlib
import os
import sys

from model.bundle.background import in_background

if __name__ == "__main__":
    # The threads that serve are started by this one, which must not be nice itself.
    # NumPy's own, of which steps have no use, would be.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    descriptor, log_level, log_format, niceness = sys.argv[1:]
    module = in_background(lambda: importlib.import_module("service.worker.main"), int(niceness))
    module.run(int(descriptor), log_level, log_format)
