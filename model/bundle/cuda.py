"""CUDA's libraries, found where they lie, and calls of its runtime library through ctypes.

ONNX Runtime asks for the libraries by name. They are on the loader's path (in an image), in Python
packages of NVIDIA beside ONNX Runtime, or in those beside PyTorch, wherever that is installed.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import Any

import onnxruntime as ort

# In the order of their dependencies; {} is the major version of CUDA.
_DRIVER, _RUNTIME = "libcuda.so.1", "libcudart.so.{}"
_LIBRARIES = (
    *(_DRIVER, _RUNTIME, "libnvrtc.so.{}", "libcublasLt.so.{}", "libcublas.so.{}"),
    *("libcurand.so.10", "libcudnn.so.9"),
)
_OPTIONAL = "libnvrtc"  # of cuDNN

_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal


class CudaError(RuntimeError):
    """CUDA failed, at this call or at something launched before it, or is not there."""


class CudaRuntime:
    """CUDA's runtime library. Its calls are made for the GPU of the calling thread.

    Raises:
        CudaError: by every method, if the call failed.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        for name in ("cudaGetErrorName", "cudaGetErrorString"):
            getattr(library, name).restype = ctypes.c_char_p

    def use(self, index: int) -> None:
        """Make GPU number `index` current in the calling thread, before its first call.

        From then on the thread allocates and waits whatever other threads do. Otherwise its calls
        would fail, and break the capture, while another thread captures a CUDA graph.
        """
        self.call("cudaSetDevice", index)
        mode = ctypes.c_int(_THREAD_LOCAL)
        self.call("cudaThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def call(self, name: str, *arguments: Any) -> None:
        """Call the function `name`. Numbers and addresses are passed alike, in registers."""
        passed = [ctypes.c_void_p(one) if isinstance(one, int) else one for one in arguments]
        code = getattr(self._library, name)(*passed)
        if not code:
            return
        # Clear the error: ONNX Runtime would find it after its own kernels.
        self._library.cudaGetLastError()
        what, why = self._library.cudaGetErrorName(code), self._library.cudaGetErrorString(code)
        raise CudaError(f"{name}: {what.decode()}: {why.decode()}")

    def create(self, name: str, *arguments: Any) -> int:
        """Call a function that makes an object, and return the object's address or handle."""
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made.value or 0


def cuda_version() -> str:
    """The version of CUDA that ONNX Runtime is built for, such as "13.0"; "" for a CPU's build."""
    return str(getattr(ort, "cuda_version", ""))


@functools.cache
def load_cuda() -> CudaRuntime:
    """Load what ONNX Runtime needs of CUDA, once, and let it log errors only.

    Raises:
        CudaError: a library is missing; the message has all places that were tried.
    """
    # Of each session it would warn that its CUDA provider is no plugin.
    ort.set_default_logger_severity(3)
    major = cuda_version().partition(".")[0] or "13"
    entries = [Path(entry).absolute() for entry in dict.fromkeys(sys.path)]
    folders = [folder for entry in entries for folder in sorted(entry.glob("nvidia/*/lib"))]
    loaded = {}
    for pattern in _LIBRARIES:
        name = pattern.format(major)
        try:
            loaded[pattern] = _load(name, folders)
        except OSError as exc:
            if name.startswith(_OPTIONAL):
                continue
            places = folders or [entry / "nvidia/*/lib" for entry in entries if entry.is_dir()]
            where = ", ".join(["in the loader's path", *map(str, places)])
            if pattern == _DRIVER:
                where = "as a part of NVIDIA's driver"
            raise CudaError(f"{name} can't be loaded ({exc}); it was looked for {where}") from exc
    return CudaRuntime(loaded[_RUNTIME])


def _load(name: str, folders: list[Path]) -> Any:
    """The library that the process has loaded already, or that of a package, or the system's."""
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        found = (folder / name for folder in folders if (folder / name).is_file())
        return ctypes.CDLL(str(next(found, name)))
