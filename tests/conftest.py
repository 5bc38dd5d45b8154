"""What every test shares."""

import os

# onnxruntime reads it when it is imported: before any test module is.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
