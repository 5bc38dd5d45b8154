"""Errors and warnings of `dragoman attention` before it makes a call."""

import pytest
from typer.testing import CliRunner

from cli.attention import _read_differently
from cli.main import app


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([" "], "the text is empty"),
        (["A dog.", "--translation", ""], "--translation is empty: leave it out"),
        (["A dog.", "--server", "localhost", "--bundle", "x"], "--server and --bundle exclude"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["attention", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"dragoman: {message}")


def test_a_server_in_the_environment_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_SERVER", "localhost")
    result = CliRunner().invoke(app, ["attention", "A dog.", "--bundle", "no-such-bundle"])
    assert result.exit_code == 1
    assert "no-such-bundle" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A dog is running.", ""),
        ("A dog is running. Two men.", "the text has 2 sentences"),
        ("42 🎉", "`dragoman translate` would copy the text"),
    ],
)
def test_a_text_that_translate_reads_otherwise(text: str, said: str) -> None:
    assert _read_differently(text, "en") == said
