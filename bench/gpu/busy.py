"""How busy a GPU was, by NVIDIA's own account."""

from __future__ import annotations

import shutil
import subprocess
import threading


class BusyShare:
    """Samples `nvidia-smi` from `start` to `stop`, ten times a second.

    What it samples is the share of the time in which a kernel ran; how much of the GPU that kernel
    used, it doesn't say.
    """

    def __init__(self, index: int = 0) -> None:
        self._index = index
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._samples: list[float] = []

    def start(self) -> None:
        """Begin, where there is an nvidia-smi."""
        if shutil.which("nvidia-smi") is None:
            return
        self._process = subprocess.Popen(
            ["nvidia-smi", f"--id={self._index}", "--query-gpu=utilization.gpu",
             "--format=csv,noheader,nounits", "--loop-ms=100"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._thread.start()

    def stop(self) -> float | None:
        """The mean share since `start`, 0 to 1; None where it is not known."""
        if self._process is None or self._thread is None:
            return None
        self._process.terminate()
        self._process.wait()
        self._thread.join()
        # The first samples still show what was before.
        samples = self._samples[3:]
        return sum(samples) / len(samples) / 100 if samples else None

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None, "it was asked for"
        for line in process.stdout:
            if line.strip().isdigit():
                self._samples.append(float(line))
