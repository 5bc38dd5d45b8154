"""The utilization of a GPU, as nvidia-smi reports it."""

from __future__ import annotations

import shutil
import subprocess
import threading


class BusyShare:
    """Samples `nvidia-smi` from `start` to `stop`, ten times a second.

    That is the share of the time in which a kernel ran, not how much of the GPU the kernel used.
    """

    def __init__(self, index: int = 0) -> None:
        self._index = index
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._samples: list[float] = []

    def start(self) -> None:
        """Start sampling, if nvidia-smi is installed."""
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
        """The mean share since `start`, 0 to 1; None without nvidia-smi."""
        if self._process is None or self._thread is None:
            return None
        self._process.terminate()
        self._process.wait()
        self._thread.join()
        # The first samples still cover the time before `start`.
        samples = self._samples[3:]
        return sum(samples) / len(samples) / 100 if samples else None

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None, "it was asked for"
        for line in process.stdout:
            if line.strip().isdigit():
                self._samples.append(float(line))
