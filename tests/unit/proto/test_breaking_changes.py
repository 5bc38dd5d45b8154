"""No change of the contract breaks clients of the last release.

Which changes break them is left to `buf`. Three of those here are found by its strict rules only.
"""

import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
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


def remove_field_and_reserve_it(file: FileDescriptorProto) -> None:
    number = field(file).number
    message(file).field.remove(field(file))
    message(file).reserved_range.add(start=number, end=number + 1)
    message(file).reserved_name.append("model")


def rename_field(file: FileDescriptorProto) -> None:
    renamed = field(file)
    renamed.name = renamed.json_name = "models"


def remove_message(file: FileDescriptorProto) -> None:
    file.message_type.remove(message(file, "ListLanguagesRequest"))
    methods = file.service[0].method
    methods.remove(next(each for each in methods if each.name == "ListLanguages"))


BREAKS: dict[str, Change] = {
    "a field is removed and reserved": remove_field_and_reserve_it,
    "a field gets another name": rename_field,
    "a message is removed": remove_message,
    "a call takes another request": lambda file: setattr(
        file.service[0].method[0], "input_type", ".dragoman.v1.ScoreRequest"
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


def test_an_addition_is_none(tmp_path: Path) -> None:
    assert breaks(changed(tmp_path, add_field)) == ""


def test_this_contract_breaks_nothing() -> None:
    assert breaks(PROTO / "dragoman.binpb") == ""
