"""Starts the process of one model; `service.worker.main` documents the arguments."""

from __future__ import annotations

import importlib
import os
import sys

from model.bundle.background import in_background

if __name__ == "__main__":
    # Only the import is nice: this thread starts those that serve, which inherit its niceness.
    # NumPy's own threads would be started by the import, and steps do not use them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    descriptor, log_level, log_format, niceness = sys.argv[1:]
    module = in_background(lambda: importlib.import_module("service.worker.main"), int(niceness))
    module.run(int(descriptor), log_level, log_format)
