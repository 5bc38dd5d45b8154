"""Examples are found in a page, and answers that no example has any more."""

from __future__ import annotations

from bench.readme_examples import (
    PAGES,
    ROOT,
    TABLE_PAGE,
    example_sentences,
    outdated_answers,
    table_texts,
    with_table,
)

PAGE = """\
It answers `Eine Katze
schläft.` and `Sie`. Not `Ein Hund bellt.`

```sh
ask '{"contents": ["A cat sleeps.", "A dog."], "to": "de"}'
print("A cat sleeps.", "a dog", "No {name}", `Ein Haus.`)
```

| text | translation by the included model |
| --- | --- |
| `12 cats` | `120 Katzen` |
| `` Type `ls` `` | `Tippe` |

End.
"""


def test_examples_are_the_quoted_sentences_of_the_code() -> None:
    assert example_sentences(PAGE) == ["A cat sleeps.", "A dog."]


def test_an_answer_that_no_example_has_is_outdated() -> None:
    assert outdated_answers(PAGE, ["Eine Katze schläft.", "Ein Hund."]) == ["Ein Hund bellt."]


def test_a_table_is_written_anew_and_its_texts_stay() -> None:
    texts = table_texts(PAGE)
    assert texts == ["12 cats", "Type `ls`"]
    changed = with_table(PAGE, ["12 Katzen", "`ls` | tippen"])
    assert "| `12 cats` | `12 Katzen` |\n| `` Type `ls` `` | `` `ls` \\| tippen `` |\n" in changed
    assert table_texts(changed) == texts
    assert with_table(changed, ["120 Katzen", "Tippe"]) == PAGE


def test_the_pages_have_examples() -> None:
    for name in PAGES:
        assert example_sentences((ROOT / name).read_text(encoding="utf-8"))
    assert len(table_texts((ROOT / TABLE_PAGE).read_text(encoding="utf-8"))) > 5
