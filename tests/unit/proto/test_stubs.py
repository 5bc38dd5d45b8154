"""The committed stubs are those of the contract, and the contract says what every field means."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[3]
PROTO = ROOT / "proto"


def files_under(*folders: Path) -> set[Path]:
    return {file for folder in folders for file in folder.rglob("*") if file.is_file()}


def test_generating_it_again_changes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "proto"
    google, openapi = tmp_path / "google.binpb", tmp_path / "openapi.json"
    command: list[str | Path] = [sys.executable, PROTO / "generate.py", "--output", output]
    subprocess.run(
        [*command, "--google", google, "--openapi", openapi],
        check=True,
        cwd=tmp_path,
    )
    generated = {file.relative_to(output): file for file in files_under(output)}
    committed = {
        *(PROTO / "dragoman/v1").glob("*_pb2*.py*"),
        *PROTO.glob("*.binpb"),
        *files_under(PROTO / "third_party" / "google"),
    }
    assert set(generated) == {file.relative_to(PROTO) for file in committed}
    for name, file in generated.items():
        assert file.read_bytes() == (PROTO / name).read_bytes(), f"{name}: run `make proto`"
    assert google.read_bytes() == (ROOT / "service/fronts/google_v3/contract.binpb").read_bytes()
    assert openapi.read_bytes() == (ROOT / "service/ports/http/openapi/contract.json").read_bytes()


def test_a_clone_has_all_that_the_contract_imports(tmp_path: Path) -> None:
    import grpc_tools

    output = tmp_path / "compiled.binpb"
    # The files that come with every protoc: google/protobuf.
    well_known = Path(grpc_tools.__path__[0]) / "_proto"
    includes = (PROTO, PROTO / "third_party", well_known)
    code = protoc.main(
        [
            "protoc",
            *(f"--proto_path={include}" for include in includes),
            "--include_imports",
            f"--descriptor_set_out={output}",
            "dragoman/v1/translation.proto",
            "google/rpc/error_details.proto",
        ]
    )
    assert code == 0
    assert output.read_bytes() == (PROTO / "dragoman.binpb").read_bytes()


@pytest.mark.parametrize(("name", "least"), [("translation", 50), ("admin", 8)])
def test_every_message_field_value_and_method_is_documented(
    tmp_path: Path, name: str, least: int
) -> None:
    output = tmp_path / "descriptors.binpb"
    import google.api
    import grpc_tools

    includes = [
        PROTO,
        Path(grpc_tools.__path__[0]) / "_proto",
        Path(google.api.__path__[0]).parents[1],
    ]
    code = protoc.main(
        [
            "protoc",
            *(f"--proto_path={include}" for include in includes),
            "--include_source_info",
            f"--descriptor_set_out={output}",
            str(PROTO / f"dragoman/v1/{name}.proto"),
        ]
    )
    assert code == 0
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file
    commented = {
        tuple(location.path)
        for location in file.source_code_info.location
        if location.leading_comments.strip()
    }
    # Paths as in descriptor.proto: 4 messages, 5 enums, 6 services; in each, 2 is its parts.
    wanted: dict[tuple[int, ...], str] = {}
    kinds: list[tuple[int, list[tuple[str, list[str]]]]] = [
        (4, [(item.name, [part.name for part in item.field]) for item in file.message_type]),
        (5, [(item.name, [part.name for part in item.value]) for item in file.enum_type]),
        (6, [(item.name, [part.name for part in item.method]) for item in file.service]),
    ]
    for kind, items in kinds:
        for index, (name, parts) in enumerate(items):
            wanted[kind, index] = name
            wanted |= {(kind, index, 2, place): part for place, part in enumerate(parts)}
    assert len(wanted) > least
    assert [name for path, name in wanted.items() if path not in commented] == []
