"""No change of the contract breaks clients of the last release, and each kind of break is found."""

import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[3]
PROTO = ROOT / "proto"
BUF = Path(sysconfig.get_path("scripts")) / "buf"
LAST = max((PROTO / "releases").glob("*.binpb"), key=lambda path: Version(path.stem))
Change = Callable[[FileDescriptorProto], object]


def breaks(contract: Path) -> str:
    """Breaking changes of `contract` since the last release, as in `make check`; "" for none."""
    command: list[str | Path] = [BUF, "breaking", contract, "--against", LAST, "--path", "dragoman"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: str = done.stdout
    assert done.returncode in (0, 100), done.stderr
    assert bool(found) == (done.returncode == 100)
    return found


def changed(folder: Path, change: Change) -> Path:
    """The last release with a change."""
    contract = FileDescriptorSet.FromString(LAST.read_bytes())
    change(next(file for file in contract.file if file.name.endswith("/translation.proto")))
    path = folder / "changed.binpb"
    path.write_bytes(contract.SerializeToString())
    return path


def message(file: FileDescriptorProto, name: str = "TranslateRequest") -> DescriptorProto:
    return next(each for each in file.message_type if each.name == name)


def field(file: FileDescriptorProto, name: str = "model") -> FieldDescriptorProto:
    return next(each for each in message(file).field if each.name == name)


def enum(file: FileDescriptorProto) -> EnumDescriptorProto:
    return file.enum_type[0]


def remove_field(file: FileDescriptorProto) -> None:
    message(file).field.remove(field(file))


def remove_field_and_reserve_it(file: FileDescriptorProto) -> None:
    number = field(file).number
    remove_field(file)
    message(file).reserved_range.add(start=number, end=number + 1)
    message(file).reserved_name.append("model")


def make_repeated(file: FileDescriptorProto) -> None:
    field(file).label = FieldDescriptorProto.LABEL_REPEATED


def make_optional(file: FileDescriptorProto) -> None:
    """Give a field presence, as `optional` does."""
    field(file).proto3_optional = True
    field(file).oneof_index = len(message(file).oneof_decl)
    message(file).oneof_decl.add(name="_model")


def rename_field(file: FileDescriptorProto) -> None:
    renamed = field(file)
    renamed.name = renamed.json_name = "models"


def remove_message(file: FileDescriptorProto) -> None:
    file.message_type.remove(message(file, "ListLanguagesRequest"))
    methods = file.service[0].method
    methods.remove(next(each for each in methods if each.name == "ListLanguages"))


BREAKS: dict[str, Change] = {
    "a field is removed": remove_field,
    "a field is removed and reserved": remove_field_and_reserve_it,
    "a field gets another number": lambda file: setattr(field(file), "number", 99),
    "a field gets another type": lambda file: setattr(
        field(file), "type", FieldDescriptorProto.TYPE_INT32
    ),
    "a field becomes repeated": make_repeated,
    "a field gets presence": make_optional,
    "a field gets another name": rename_field,
    "a field gets another name in JSON": lambda file: setattr(field(file), "json_name", "m"),
    "a message is removed": remove_message,
    "a value is removed": lambda file: enum(file).value.pop(),
    "a value gets another number": lambda file: setattr(enum(file).value[-1], "number", 99),
    "a value gets another name": lambda file: setattr(enum(file).value[-1], "name", "OTHER"),
    "a call is removed": lambda file: file.service[0].method.pop(),
    "a call answers with a stream": lambda file: setattr(
        file.service[0].method[0], "server_streaming", True
    ),
    "a call takes a stream": lambda file: setattr(
        file.service[0].method[0], "client_streaming", True
    ),
    "a call takes another request": lambda file: setattr(
        file.service[0].method[0], "input_type", ".dragoman.v1.ScoreRequest"
    ),
    "a call answers with another message": lambda file: setattr(
        file.service[0].method[0], "output_type", ".dragoman.v1.ScoreResponse"
    ),
}


@pytest.mark.parametrize("change", BREAKS.values(), ids=BREAKS.keys())
def test_a_break_is_found(change: Change, tmp_path: Path) -> None:
    assert breaks(changed(tmp_path, change))


def add_field(file: FileDescriptorProto) -> None:
    message(file).field.add(
        name="added",
        json_name="added",
        number=99,
        type=FieldDescriptorProto.TYPE_STRING,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )


ADDITIONS: dict[str, Change] = {
    "nothing": lambda file: None,
    "a field": add_field,
    "a message": lambda file: file.message_type.add(name="Added"),
    "a value": lambda file: enum(file).value.add(name="ADDED", number=99),
    "a call": lambda file: file.service[0].method.add(
        name="Added",
        input_type=".dragoman.v1.ScoreRequest",
        output_type=".dragoman.v1.ScoreResponse",
    ),
}


@pytest.mark.parametrize("change", ADDITIONS.values(), ids=ADDITIONS.keys())
def test_an_addition_is_none(change: Change, tmp_path: Path) -> None:
    assert breaks(changed(tmp_path, change)) == ""


def reserve(file: FileDescriptorProto) -> None:
    message(file).reserved_range.add(start=98, end=99)


def test_a_reserved_number_stays_reserved(tmp_path: Path) -> None:
    before = changed(tmp_path, reserve).rename(tmp_path / "before.binpb")
    command: list[str | Path] = [BUF, "breaking", changed(tmp_path, add_field), "--against", before]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 100
    assert "reserved" in done.stdout


def test_this_contract_breaks_nothing() -> None:
    assert breaks(PROTO / "dragoman.binpb") == ""
