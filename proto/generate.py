"""Generate the Python stubs of the public contract beside the .proto files.

    python proto/generate.py [--output DIR] [--descriptor FILE]

They are committed, so that nobody needs a compiler to install the package; a test regenerates
them into another directory and compares. The messages' and services' type stubs come from
mypy-protobuf, which (unlike protoc's own) types the service and repeats the field documentation.

The contract is also written as a descriptor set, from which Envoy translates between JSON and gRPC
(docker/envoy/).
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
DESCRIPTOR = ROOT.parent / "docker" / "envoy" / "translation.binpb"


def generate(output: Path) -> None:
    """Write the stubs of every .proto file under `output`, in the folders of the include root.

    Raises:
        RuntimeError: protoc refused a file (its own message is on stderr).
    """
    # protoc finds protoc-gen-mypy on the PATH only; it is installed beside this interpreter.
    scripts = sysconfig.get_path("scripts")
    os.environ["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", "")])
    _protoc(
        f"--python_out={output}",
        f"--grpc_python_out={output}",
        f"--mypy_out={output}",
        f"--mypy_grpc_out={output}",
        *_sources(),
    )


def generate_descriptor(output: Path) -> None:
    """Write the contract and all that it imports to `output`, as a serialized FileDescriptorSet.

    Raises:
        RuntimeError: protoc refused a file (its own message is on stderr).
    """
    # The last names what an error's details hold, so that they too can be written as JSON.
    _protoc(
        "--include_imports",
        f"--descriptor_set_out={output}",
        *_sources(),
        "google/rpc/error_details.proto",
    )


def _sources() -> list[str]:
    return sorted(str(path) for path in ROOT.glob("dragoman/**/*.proto"))


def _protoc(*arguments: str) -> None:
    includes = (ROOT, files("grpc_tools") / "_proto", files("google.api") / ".." / "..")
    code = protoc.main(["protoc", *(f"--proto_path={include}" for include in includes), *arguments])
    if code:
        raise RuntimeError(f"protoc ended with {code}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=ROOT, help="include root to write into")
    parser.add_argument(
        "--descriptor", type=Path, default=DESCRIPTOR, help="file for the descriptor set"
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        generate(options.output)
        generate_descriptor(options.descriptor)
    except RuntimeError as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
