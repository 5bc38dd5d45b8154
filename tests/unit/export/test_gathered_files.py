"""Single files in place of a directory."""

from pathlib import Path

import pytest

from export.errors import ExportError
from export.gathered_files import located
from export.students.files import StudentFiles


def write(*files: Path) -> list[str]:
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text(file.name)
    return list(map(str, files))


def test_files_of_several_directories_are_one_model(tmp_path: Path) -> None:
    names = write(tmp_path / "a" / "model.ende.bin", tmp_path / "b" / "vocab.ende.spm")
    with located(names, None) as (directory, origin):
        files = StudentFiles.find(directory)
        assert files.weights.read_text() == "model.ende.bin"
        assert files.languages(None) == ("en", "de")
        assert origin == {"directory": "a"}
    assert not directory.exists()


def test_names_that_say_no_languages(tmp_path: Path) -> None:
    names = write(tmp_path / "model.bin", tmp_path / "vocab.spm")
    with (
        pytest.raises(ExportError, match="does not say which languages"),
        located(names, None) as (directory, _),
    ):
        StudentFiles.find(directory).languages(None)


def test_metadata_says_the_languages(tmp_path: Path) -> None:
    names = write(tmp_path / "model.bin", tmp_path / "vocab.spm", tmp_path / "metadata.json")
    (tmp_path / "metadata.json").write_text('{"sourceLanguage": "nb", "targetLanguage": "en"}')
    with located(names, None) as (directory, _):
        assert StudentFiles.find(directory).languages(None) == ("nb", "en")


def test_errors_name_the_files_as_the_user_does(tmp_path: Path) -> None:
    names = write(tmp_path / "model.ende.bin")
    with pytest.raises(ExportError) as caught, located(names, None) as (directory, _):
        raise ExportError(f"{directory}/model.ende.bin is cut off")
    assert str(caught.value) == "model.ende.bin is cut off"
    with pytest.raises(ExportError) as caught, located(names, None) as (directory, _):
        StudentFiles.find(directory)
    assert str(caught.value).startswith(f"{names[0]} needs the vocabulary")


def test_a_directory_or_a_name_of_the_hub_is_as_before(tmp_path: Path) -> None:
    with located([str(tmp_path)], None) as found:
        assert found == (tmp_path, {})


def test_files_that_can_not_be_one_model(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a" / "model.bin", tmp_path / "b" / "model.bin")
    for names, message in (
        ([first, second], "b/model.bin: another file is called model.bin, too"),
        ([first, str(tmp_path)], "is not a file: name one directory, or files only"),
        ([first, str(tmp_path / "none")], "none is not a file"),
    ):
        with pytest.raises(ExportError, match=message), located(names, None):
            pass
