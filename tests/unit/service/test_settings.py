import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from service.errors import StartupError
from service.settings import DIRECTORIES, Settings
from service.settings_sources import _check_names, environment_name, load_settings

ROOT = Path(__file__).parents[3]


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "dragoman.toml"
    file.write_text(text)
    return file


def test_without_any_source_everything_is_its_default() -> None:
    settings = load_settings({}, {})
    assert settings == Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 50051)
    assert (settings.metrics_host, settings.metrics_port) == ("127.0.0.1", 9464)
    assert (settings.max_texts, settings.max_characters) == (1024, 100_000)


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "port = 1\nmax_rows = 1\nthreads = 1\n")
    environment = {"DRAGOMAN_PORT": "2", "DRAGOMAN_MAX_ROWS": "2"}
    settings = load_settings({"port": 3, "max_rows": None}, environment, file)
    assert (settings.port, settings.max_rows, settings.threads) == (3, 2, 1)


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "port = 1234\n")
    assert load_settings({}, {"DRAGOMAN_CONFIG": str(file)}).port == 1234


def test_a_weaker_source_may_be_wrong_when_a_stronger_one_is_used() -> None:
    assert load_settings({"port": 3}, {"DRAGOMAN_PORT": "nonsense"}).port == 3


@pytest.mark.parametrize(
    ("flags", "environment", "file", "expected"),
    [
        ({"model": [Path("a"), Path("b")]}, {}, "", ("a", "b")),
        ({}, {"DRAGOMAN_MODEL": "a:b"}, "", ("a", "b")),
        ({}, {}, 'model = ["a", "b"]', ("a", "b")),
        ({}, {}, 'model = "a"', ("a",)),
    ],
)
def test_models_from_every_source(
    tmp_path: Path, flags: Any, environment: Any, file: str, expected: tuple[str, ...]
) -> None:
    settings = load_settings(flags, environment, write(tmp_path, file))
    assert settings.model == tuple(Path(path) for path in expected)


@pytest.mark.parametrize(
    "field", [field for field in dataclasses.fields(Settings) if field.name in DIRECTORIES]
)
def test_directories_are_paths_from_every_source(
    tmp_path: Path, field: dataclasses.Field[Any]
) -> None:
    variable, expected = f"DRAGOMAN_{field.name.upper()}", (Path("a"), Path("b"))
    file = write(tmp_path, f'{field.name} = ["a", "b"]')
    for settings in (
        load_settings({field.name: ["a", "b"]}, {}),
        load_settings({}, {variable: "a:b"}),
        load_settings({}, {}, file),
    ):
        assert getattr(settings, field.name) == expected


def test_all_lists_of_paths_are_directories() -> None:
    found = [field.name for field in dataclasses.fields(Settings) if "Path" in str(field.type)]
    assert tuple(found) == DIRECTORIES


@pytest.mark.parametrize(
    ("flags", "environment", "file", "message"),
    [
        ({"port": 70_000}, {}, "", r"--port: must be from 0 to 65,535, not 70000"),
        ({}, {"DRAGOMAN_PORT": "x"}, "", r"variable DRAGOMAN_PORT: .*whole number, not 'x'"),
        ({}, {"DRAGOMAN_DEVICE": "tpu"}, "", r"DRAGOMAN_DEVICE: must be cpu, cuda, or one of"),
        ({"host": ""}, {}, "", r"--host: must not be empty"),
        ({}, {}, "max_rows = -1", r"max_rows in .*dragoman.toml: must be from 0 to"),
        ({}, {}, "max_rows = true", r"max_rows in .*toml: must be a whole number, not True"),
        ({}, {}, 'max_rows = "8"', r"max_rows in .*toml: must be a whole number, not '8'"),
        ({}, {}, "drain_seconds = nan", r"drain_seconds in .*toml: must be from 0"),
        ({}, {}, "max_row = 8", r"toml: there is no setting 'max_row'; there are model, host"),
        ({}, {}, "max_rows = ", r"dragoman.toml: not valid TOML"),
        ({}, {}, "max_rows = " + "[" * 50_000, r"dragoman.toml: not valid TOML"),
        ({}, {}, "max_rows = " + "9" * 50_000, r"dragoman.toml: not valid TOML"),
        ({}, {}, 'model = [""]', r"model in .*toml: must be one or more directories"),
        ({}, {}, "model = 7", r"model in .*toml: must be one or more directories"),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_its_source(
    tmp_path: Path, flags: Any, environment: Any, file: str, message: str
) -> None:
    with pytest.raises(StartupError, match=message):
        load_settings(flags, environment, write(tmp_path, file))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"none\.toml: No such file"):
        load_settings({}, {}, tmp_path / "none.toml")


def test_a_whole_number_does_for_a_number(tmp_path: Path) -> None:
    assert load_settings({}, {}, write(tmp_path, "drain_seconds = 5")).drain_seconds == 5.0


def test_settings_made_in_code_are_checked_too() -> None:
    with pytest.raises(StartupError, match="setting port"):
        Settings(port=-1)


def test_the_help_of_serve_has_every_setting_with_its_variable_and_default() -> None:
    result = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "300", "TERM": "dumb"})
    text = re.sub(r"\s+", " ", result.output)
    for field in dataclasses.fields(Settings):
        assert "--" + field.name.replace("_", "-") in text
        assert f"env: {environment_name(field.name)}" in text
        if field.default not in ((), ""):
            assert f"default: {field.default})" in text


def test_an_empty_variable_counts_as_none() -> None:
    fields = dataclasses.fields(Settings)
    names = [field.name for field in fields if not field.metadata["is_optional"]]
    environment = {environment_name(name): "" for name in [*names, "config"]}
    assert load_settings({}, environment) == Settings()


def test_an_empty_variable_does_not_open_the_server(tmp_path: Path) -> None:
    config = tmp_path / "dragoman.toml"
    config.write_text('keys = ""\n')
    for flags, environment, file in (
        ({}, {"DRAGOMAN_KEYS": ""}, None),
        ({"keys": ""}, {}, None),
        ({}, {}, config),
    ):
        with pytest.raises(StartupError, match=r"(?i)keys.*must not be empty"):
            load_settings(flags, environment, file)


# Variables that Kubernetes sets in every pod for Services `dragoman` and `dragoman-metrics`.
SERVICE_LINKS = {
    "DRAGOMAN_SERVICE_HOST": "10.0.0.1",
    "DRAGOMAN_SERVICE_PORT": "50051",
    "DRAGOMAN_SERVICE_PORT_GRPC": "50051",
    "DRAGOMAN_PORT": "tcp://10.0.0.1:50051",
    "DRAGOMAN_PORT_50051_TCP": "tcp://10.0.0.1:50051",
    "DRAGOMAN_PORT_50051_TCP_PROTO": "tcp",
    "DRAGOMAN_PORT_50051_TCP_PORT": "50051",
    "DRAGOMAN_PORT_50051_TCP_ADDR": "10.0.0.1",
    "DRAGOMAN_METRICS_SERVICE_HOST": "10.0.0.2",
    "DRAGOMAN_METRICS_PORT": "tcp://10.0.0.2:9464",
    "DRAGOMAN_METRICS_PORT_9464_TCP_ADDR": "10.0.0.2",
}


def test_what_kubernetes_says_of_services_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    assert load_settings({}, SERVICE_LINKS) == Settings()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("DRAGOMAN_MAX_ROW", "DRAGOMAN_MAX_ROWS"),
        ("DRAGOMAN_MODELS", "DRAGOMAN_MODEL"),
        ("DRAGOMAN_METRIC_PORT", "DRAGOMAN_METRICS_PORT"),
        ("DRAGOMAN_LOGLEVEL", "DRAGOMAN_LOG_LEVEL"),
        ("DRAGOMAN_PROT", "DRAGOMAN_PORT"),
        ("DRAGOMAN_MAX_CONCURENT_REQUESTS", "DRAGOMAN_MAX_CONCURRENT_REQUESTS"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_name_that_was_meant(
    variable: str, meant: str
) -> None:
    with pytest.raises(StartupError, match=rf"{variable}: .*did you mean {meant}\?"):
        load_settings({}, {variable: "1"})


def test_of_other_variables_there_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    environment = {"DRAGOMAN_COLOUR": "red", "DRAGOMANX": "1", "MAX_ROW": "1"}
    assert load_settings({}, environment) == Settings()
    (record,) = caplog.records
    assert (record.levelname, "DRAGOMAN_COLOUR" in record.message) == ("WARNING", True)


def test_every_variable_of_this_repository_is_known(caplog: pytest.LogCaptureFixture) -> None:
    found = {
        variable
        for folder in ("bench", "cli", "docker", "export", "model", "proto", "service", "Makefile")
        for path in [ROOT / folder, *(ROOT / folder).rglob("*")]
        if path.is_file() and path.suffix not in (".md", ".pyc") and path.stat().st_size < 100_000
        for variable in re.findall(r"\bDRAGOMAN_[A-Z_]*[A-Z]\b", path.read_text(errors="ignore"))
    }
    assert {"DRAGOMAN_DATA_ROOT", "DRAGOMAN_MODEL"} < found
    _check_names(found)
    assert caplog.records == []
