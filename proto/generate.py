"""Generates files from the public contract's .proto files, beside them.

    python proto/generate.py [--output DIR] [--google FILE] [--openapi FILE]

- The Python stubs, `*_pb2*.py`. The messages' and services' type stubs come from mypy-protobuf,
  which (unlike protoc's own) types the service and repeats the field documentation.
- `dragoman.binpb`, the contract and all its imports as a descriptor set: for clients that read it
  instead of .proto files. Without admin.proto, which is not public.
- `third_party/`, the files of Google's that the contract imports (except those that come with
  protoc), for clients that are generated from the .proto files of a clone.

It also compiles the part of Google's contract that the server has (service/fronts/google_v3/), and
writes what /openapi.json says of the contract (service/ports/http/openapi/).

All of it is committed, so that the package can be installed without a compiler. A test generates it
again into another directory and compares.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import sysconfig
import tempfile
from importlib.resources import files
from pathlib import Path

from google.api import annotations_pb2
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

import openapi

ROOT = Path(__file__).resolve().parent
GOOGLE = ROOT.parent / "service" / "fronts" / "google_v3" / "contract.binpb"
OPENAPI = ROOT.parent / "service" / "ports" / "http" / "openapi" / "contract.json"
_PACKAGE = "dragoman.v1"
_PRIVATE = "admin.proto"
_GOOGLEAPIS = Path(annotations_pb2.__file__).parents[2]


def generate_stubs(output: Path) -> None:
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
    # error_details.proto, so that error details can be read and written as JSON too.
    _protoc(
        "--include_imports",
        f"--descriptor_set_out={output}",
        *(source for source in _sources() if not source.endswith(_PRIVATE)),
        "google/rpc/error_details.proto",
    )


def generate_google(output: Path) -> None:
    """Compile Google's contract to `output`, as a serialized FileDescriptorSet.

    Raises:
        RuntimeError: protoc refused the file (its own message is on stderr).
    """
    source = GOOGLE.with_suffix(".proto")
    _protoc(f"--proto_path={source.parent}", f"--descriptor_set_out={output}", str(source))


def generate_openapi(output: Path) -> None:
    """Describe the contract's HTTP calls in `output`, in the form of OpenAPI.

    Raises:
        RuntimeError: protoc refused a file (its own message is on stderr).
    """
    with tempfile.TemporaryDirectory() as folder:
        commented = Path(folder) / "commented.binpb"
        public = (source for source in _sources() if not source.endswith(_PRIVATE))
        _protoc("--include_source_info", f"--descriptor_set_out={commented}", *public)
        files = descriptor_pb2.FileDescriptorSet.FromString(commented.read_bytes())
    text = json.dumps(openapi.describe(files, _PACKAGE), indent=1, ensure_ascii=False)
    output.write_text(f"{text}\n", encoding="utf-8")


def copy_imports(descriptor: Path, output: Path) -> None:
    """Copy the imported files of googleapis-common-protos to the folder `output`."""
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor.read_bytes()).file:
        if file.name.startswith(("google/api/", "google/rpc/")):
            copy = output / file.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_GOOGLEAPIS / file.name, copy)


def _sources() -> list[str]:
    return sorted(str(path) for path in ROOT.glob("dragoman/**/*.proto"))


def _protoc(*arguments: str) -> None:
    includes = (ROOT, files("grpc_tools") / "_proto", _GOOGLEAPIS)
    code = protoc.main(["protoc", *(f"--proto_path={include}" for include in includes), *arguments])
    if code:
        raise RuntimeError(f"protoc ended with {code}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=ROOT, help="include root to write into")
    parser.add_argument(
        "--google", type=Path, default=GOOGLE, help="where to compile Google's contract to"
    )
    parser.add_argument(
        "--openapi", type=Path, default=OPENAPI, help="where to describe the contract in OpenAPI"
    )
    options = parser.parse_args()
    output, descriptor = options.output, options.output / "dragoman.binpb"
    output.mkdir(parents=True, exist_ok=True)
    try:
        generate_stubs(output)
        generate_descriptor(descriptor)
        generate_google(options.google)
        generate_openapi(options.openapi)
    except RuntimeError as exc:
        sys.exit(str(exc))
    copy_imports(descriptor, output / "third_party")


if __name__ == "__main__":
    main()
