"""The store of translated files: bounded in bytes, number and time, and each file its owner's."""

from __future__ import annotations

import pytest

from service.errors import InvalidArgumentError, NotFoundError
from service.fronts.http.fields import NamedFile
from service.fronts.http.translated_files import TranslatedFiles
from tests.clock import Clock


def file(size: int) -> NamedFile:
    return NamedFile("a.txt", b"x" * size)


def has(files: TranslatedFiles, file_id: str, owner: str = "a") -> bool:
    try:
        files.get(file_id, owner)
    except NotFoundError:
        return False
    return True


def test_a_file_is_its_owners() -> None:
    files = TranslatedFiles(100)
    file_id = files.add(file(3), "a")
    assert files.get(file_id, "a") == file(3)
    assert not has(files, file_id, "b")
    assert not has(files, "x")


def test_files_end_after_their_time() -> None:
    clock = Clock(0.0)
    files = TranslatedFiles(100, max_seconds=10, clock=clock)
    first = files.add(file(1), "a")
    clock.now = 5
    second = files.add(file(1), "a")
    clock.now = 10
    assert (has(files, first), has(files, second)) == (False, True)


def test_the_owner_of_the_most_bytes_makes_room() -> None:
    files = TranslatedFiles(100, max_files=100)
    small = files.add(file(30), "a")
    large = [files.add(file(30), "b") for _ in range(3)]
    assert has(files, small)
    assert [has(files, each, "b") for each in large] == [False, True, True]
    with pytest.raises(InvalidArgumentError, match="the limit is 100"):
        files.add(file(101), "a")
    assert has(files, files.add(file(100), "c"), "c")
    assert not has(files, small)


def test_the_number_is_bounded() -> None:
    files = TranslatedFiles(100, max_files=4)
    ids = [files.add(file(0), "a") for _ in range(6)]
    assert [has(files, each) for each in ids] == [False] * 2 + [True] * 4
