"""Reading a model card."""

from pathlib import Path

import pytest

from export.huggingface.model_card import licence_of


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlanguage:\n- en\nlicense: apache-2.0\n---\n\n# A model\n", "apache-2.0"),
        ("---\r\nlicense: 'cc-by-nc-4.0' # for NLLB\r\n---\r\n", "cc-by-nc-4.0"),
        ('---\nlicense: "mit"\n---', "mit"),
        ("---\ntags: x\n---\nlicense: mit\n", None),
        ("---\nlicense:\n- mit\n- apache-2.0\n---\n", None),
        ("---\nlicense: \x1b[31mred\n---\n", None),
        ("license: mit\n", None),
        ("---\nlicense: mit\n", None),
        ("", None),
    ],
)
def test_the_licence_is_that_of_the_front_matter(
    tmp_path: Path, card: str, licence: str | None
) -> None:
    (tmp_path / "README.md").write_bytes(card.encode())
    assert licence_of(tmp_path) == ({} if licence is None else {"license": licence})


def test_without_a_card_there_is_none(tmp_path: Path) -> None:
    assert licence_of(tmp_path) == {}
