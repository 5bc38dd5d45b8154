"""Generates files from the public contract's .proto files, beside them.

    python proto/generate.py [--output DIR] [--check-json FILE] [--google FILE] [--openapi FILE]

- The Python stubs, `*_pb2*.py`. The messages' and services' type stubs come from mypy-protobuf,
  which (unlike protoc's own) types the service and repeats the field documentation.
- `dragoman.binpb`, the contract and all its imports as a descriptor set: for clients that read it
  instead of .proto files, and for Envoy, which transcodes between JSON and gRPC with it. Without
  admin.proto, which is not public.
- `third_party/`, the files of Google's that the contract imports (except those that come with
  protoc), for clients that are generated from the .proto files of a clone.

It also compiles the part of Google's contract that the server has (service/fronts/google_v3/), and
writes the tables of the script that checks JSON requests in Envoy (docker/envoy/), and what
/openapi.json says of the contract (service/ports/http/openapi/).

All of it is committed, so that the package can be installed without a compiler. A test generates it
again into another directory and compares.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from google.api import annotations_pb2
from google.api.http_pb2 import HttpRule
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto
from grpc_tools import protoc

import openapi

ROOT = Path(__file__).resolve().parent
CHECK_JSON = ROOT.parent / "docker" / "envoy" / "check_json.lua"
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


def generate_tables(descriptor: Path, script: Path) -> None:
    """Write the methods and fields of JSON requests into a script.

    Args:
        descriptor: written by `generate_descriptor`.
        script: its part between two comments is replaced.

    Raises:
        RuntimeError: the tables can't express a rule, or the script lacks the comments.
    """
    files = descriptor_pb2.FileDescriptorSet.FromString(descriptor.read_bytes()).file
    messages = {
        f".{file.package}.{item.name}": item for file in files for item in file.message_type
    }
    methods = [method for file in files for service in file.service for method in service.method]
    http: Any = annotations_pb2.http  # its types don't fit those of protobuf
    rules = [(method.options.Extensions[http], messages[method.input_type]) for method in methods]
    lines = ["local RULES = {", *(_rule(rule, message.name) for rule, message in rules), "}"]
    bodies = [message for rule, message in rules if rule.body]
    lines += ["local FIELDS = {", *_fields(bodies, messages), "}", ""]
    text, count = re.subn(
        r"^local RULES = .*(?=^-- End of what is generated)",
        lambda _: "\n".join(lines),
        script.read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    )
    if count != 1:
        raise RuntimeError(f"{script} lacks the comments around the generated tables")
    script.write_text(text, encoding="utf-8")


def _rule(rule: HttpRule, message: str) -> str:
    """The HTTP rule of a method, as an item of a Lua table."""
    method = rule.WhichOneof("pattern")
    if rule.body not in ("", "*"):
        raise RuntimeError(
            f"a body that is one field, {rule.body}: check_json.lua supports whole messages only"
        )
    # In Lua patterns, "%" escapes a character.
    path = re.sub(r"[^\w/:{}]", r"%\g<0>", getattr(rule, method))
    path = re.sub(r"\{\w+\}", "[^/]+", path)
    body = f', message = "{message}"' if rule.body else ""
    return f'  {{method = "{method.upper()}", path = "^{path}$"{body}}},'


def _fields(
    wanted: list[DescriptorProto], messages: Mapping[str, DescriptorProto]
) -> Iterator[str]:
    """The fields of `wanted` and of all nested messages, as items of a Lua table."""
    for message in wanted:  # grows meanwhile
        yield f"  {message.name} = {{"
        for field in message.field:
            held = messages.get(field.type_name)
            if held and held not in wanted:
                wanted.append(held)
            # JSON may use either name.
            for name in sorted({field.name, field.json_name}):
                yield f"    {name} = " + (f'"{held.name}",' if held else "false,")
        yield "  },"


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
        "--check-json", type=Path, default=CHECK_JSON, help="script to write the tables into"
    )
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
        generate_tables(descriptor, options.check_json)
        generate_google(options.google)
        generate_openapi(options.openapi)
    except RuntimeError as exc:
        sys.exit(str(exc))
    copy_imports(descriptor, output / "third_party")


if __name__ == "__main__":
    main()
