"""Generate the Python stubs of the public contract beside the .proto files.

    python proto/generate.py [--output DIR]

They are committed, so that nobody needs a compiler to install the package; a test regenerates
them into another directory and compares. The messages' and services' type stubs come from
mypy-protobuf, which (unlike protoc's own) types the service and repeats the field documentation.
"""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent


def generate(output: Path) -> None:
    """Write the stubs of every .proto file under `output`, in the folders of the include root.

    Raises:
        RuntimeError: protoc refused a file (its own message is on stderr).
    """
    sources = sorted(str(path) for path in ROOT.glob("dragoman/**/*.proto"))
    # protoc finds protoc-gen-mypy on the PATH only; it is installed beside this interpreter.
    scripts = sysconfig.get_path("scripts")
    os.environ["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", "")])
    includes = (ROOT, files("grpc_tools") / "_proto", files("google.api") / ".." / "..")
    code = protoc.main(
        [
            "protoc",
            *(f"--proto_path={include}" for include in includes),
            f"--python_out={output}",
            f"--grpc_python_out={output}",
            f"--mypy_out={output}",
            f"--mypy_grpc_out={output}",
            *sources,
        ]
    )
    if code:
        raise RuntimeError(f"protoc ended with {code}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=ROOT, help="include root to write into")
    output: Path = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    try:
        generate(output)
    except RuntimeError as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
