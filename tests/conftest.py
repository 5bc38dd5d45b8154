"""What every test shares."""

import os

import hypothesis

# onnxruntime reads it when it is imported: before any test module is.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Tiny models gain nothing from a second thread, and on a busy machine threads that spin for each
# other take minutes. torch reads it when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# An example that takes long shows a busy machine, not a bug.
hypothesis.settings.register_profile("dragoman", deadline=None)
hypothesis.settings.load_profile("dragoman")
