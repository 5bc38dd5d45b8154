"""The check of English finds phrases in docstrings, comments and Markdown, and ignores code."""

from pathlib import Path

import pytest

from tests import plain_english


def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str) -> list[str]:
    """The findings in a file, without its name."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    status = plain_english.main([str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert status == (1 if lines else 0)
    assert all(line.startswith(f"{path}:") for line in lines)
    return [line.removeprefix(f"{path}:") for line in lines]


MODULE = '''\
"""{module}"""

LIMIT = 3
"""{constant}"""


def function(first: int, second: int) -> None:
    """Compare two numbers.

    Args:
        first: {first}
        second: a number.
    """
    print("likewise", f"as given {{first}}")
    # {comment}
    # whole line.
    second += 1  # {trailing}
'''
CLEAN = {
    "module": "A module.",
    "constant": "A limit.",
    "first": "a number.",
    "comment": "One comment, and its",
    "trailing": "of the loop",
}


@pytest.mark.parametrize(
    ("place", "phrase", "found"),
    [
        ("module", "What a module does.", '1: "What"'),
        ("module", "A module of\nnobody's.", '2: "nobody\'s"'),
        ("constant", "Its limit.", '4: "Its"'),
        ("first", "of the pair.", '11: "of the"'),
        ("first", "whose sign counts.", '11: "whose"'),
        ("comment", "What is done with a", '15: "What"'),
        ("comment", "The loop takes what there", None),
        ("trailing", "likewise", '17: "likewise"'),
    ],
)
def test_phrases_in_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, phrase: str, found: str | None
) -> None:
    lines = checked(tmp_path, capsys, "module.py", MODULE.format(**CLEAN | {place: phrase}))
    assert [line.rsplit(": ", 1)[0] for line in lines] == ([found] if found else [])


def test_phrases_may_be_broken_across_lines_of_a_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [line] = checked(tmp_path, capsys, "module.py", "x = 1\n# It takes what\n# there is.\n")
    assert line.startswith('2: "what there is": ')


def test_strings_of_code_are_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not checked(tmp_path, capsys, "module.py", MODULE.format(**CLEAN))
    assert not checked(tmp_path, capsys, "module.py", 'x = ["""What\nis likewise"""]\n')


def test_prose_of_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (
        "# What it does\n\nText as\ngiven.\n\n```sh\nlikewise\n```\n\n`nobody's` and\n- likewise.\n"
    )
    lines = checked(tmp_path, capsys, "page.md", page)
    assert [line.rsplit(": ", 1)[0] for line in lines] == ['3: "as given"', '11: "likewise"']
