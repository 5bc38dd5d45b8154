"""Builds a stand-in for CUDA, with which ONNX Runtime's CUDA provider starts without a GPU.

    make test-stand-in

downloads ONNX Runtime for GPUs and CUDA's headers, builds it and runs the tests. Needs gcc and nm,
on x86-64 Linux. The C sources in this folder describe what the stand-in can show and what not.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

LIBRARIES = ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10")
_DRIVER, _CUDNN = "libcuda.so.1", "libcudnn.so.9"
_HERE = Path(__file__).parent

_PRELUDE = """
#include <stdlib.h>
static long next_handle = 0x500000;
static long version(void) {
  const char *asked = getenv("STAND_IN_CUDNN");
  return asked ? atol(asked) : 91000;
}
void stand_in_call(const char *name);
#define CREATES(name) int name(void **made) { *made = (void *)(next_handle += 16); return 0; }
#define RETURNS_0(name) int name() { return 0; }
#define SAYS(name) const char *name() { return "of the stand-in"; }
#define VERSION(name) long name() { return version(); }
#define LAUNCHES(name) int name() { stand_in_call(#name); return 0; }
"""


def build(wheels: Path, output: Path) -> None:
    """Unpack ONNX Runtime into output/site, and write the libraries into output/lib."""
    site, libraries, cuda = (output / name for name in ("site", "lib", "cuda"))
    libraries.mkdir(parents=True, exist_ok=True)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            # Apart, since ONNX Runtime would find CUDA's own libraries beside itself.
            archive.extractall(site if wheel.name.startswith("onnxruntime") else cuda)
    [provider] = site.glob("onnxruntime/capi/libonnxruntime_providers_cuda.so")
    listing = _run("nm", "-D", "--undefined-only", str(provider))
    wanted = [line.split()[-1] for line in listing.splitlines()]
    source = "".join(file.read_text(encoding="utf-8") for file in sorted(_HERE.glob("*.c")))
    headers = next(cuda.glob("nvidia/*/include"))
    for library in LIBRARIES:
        names = [name.split("@")[0] for name in wanted if name.endswith(f"@{library}")]
        with_hand = source if library.startswith("libcudart") else ""
        _compile(libraries / library, with_hand, names, headers)
    driver = [name for name in wanted if re.match("cu[A-Z]", name)]
    _compile(libraries / _DRIVER, "", driver, headers)
    # It is opened by name, and its functions are looked up as they are called.
    text = provider.read_bytes()
    cudnn = {found.decode() for found in re.findall(rb"\bcudnn[A-Z][A-Za-z0-9_]+", text)}
    _compile(libraries / _CUDNN, "", cudnn, headers)


def _compile(library: Path, source: str, names: Iterable[str], headers: Path) -> None:
    missing = [name for name in sorted(set(names)) if not re.search(rf"\b{name}\(", source)]
    file = library.with_name(f"{library.name}.c")
    stubs = "\n".join(f"{_kind(name)}({name})" for name in missing)
    # A file of their own: the headers declare what the stubs only pretend to be.
    file.write_text(_PRELUDE + stubs + "\n", encoding="utf-8")
    sources = [str(file)]
    if source:
        sources += [str(file) for file in sorted(_HERE.glob("*.c"))]
    versions = library.with_name(f"{library.name}.map")
    versions.write_text(f"{library.name} {{ global: *; }};\n", encoding="utf-8")
    _run(
        "gcc", "-w", "-shared", "-fPIC", "-O1", f"-I{headers}", *sources, "-o", str(library),
        f"-Wl,-soname,{library.name}", f"-Wl,--version-script={versions}", "-lpthread",
        *([] if source else [str(library.with_name(LIBRARIES[0]))]),
    )  # fmt: skip


def _kind(name: str) -> str:
    if re.search("Status(Name|String)$|ErrorString$", name):
        return "SAYS"
    if name.endswith("GetVersion"):
        return "VERSION"
    if re.search("^cublas.*(Gemm|gemm|Matmul$)|^cudnn(BackendExecute|Reduce.*|.*Forward)$", name):
        return "LAUNCHES"
    return "CREATES" if "Create" in name else "RETURNS_0"


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
