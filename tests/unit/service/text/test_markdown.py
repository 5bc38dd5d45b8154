"""Markdown: what is markup stays, and what a translation says is never markup."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.text.markup.document import Chars, TextRun, Verbatim
from service.text.markup.markdown_inline import begin_line, encode
from service.text.markup.markdown_parser import parse_markdown
from service.text.markup.markup_translator import MarkupTranslator
from service.text.options import MimeType, TextOptions
from service.translation.options import TranslateOptions
from service.translation.results import TextResult
from tests.fake_linked import FakeLinkedTranslator

MARKDOWN = TextOptions(MimeType.MARKDOWN)

PAGE = """---
title: a dog
---

# A *red* dog

It is **very old**, and
has a [big door](https://x.org/a_(b) "T").\u0020\u0020
TextRun `git pull` twice.

- [ ] one ![cat](b.png) runs
  2) and another

> he said \\*no\\* &lt;b&gt;
> about [that], or [this][1]

```python
x = "a dog"
```

| a | big dog |
|---|:-------:|
| cat | the **cat** `\\|` sleeps |

    code of a dog

<script>
a dog
</script>

<div>
the <b>dog</b> sleeps<br>
</div>

[that]: https://example.com "a dog"
"""

_soup = st.lists(
    st.sampled_from(
        [
            *(
                "dog",
                "runs ",
                " ",
                "\n",
                "\n\n",
                "*",
                "**",
                "_",
                "`",
                "```",
                "~~",
                "[",
                "]",
                "![",
                "<",
            ),
            *("> [!NOTE]", "$$", "\\\\[", "!!! note", ": ", "{: a}"),
            *("](a)", "][1]", "[1]: a", "# ", "- ", "1. ", "> ", "|", "|-|-|", "---", "\\", "&lt;"),
            *("<", "<b>", "</b>", "<p>", "<!--", "-->", "<script>", "    ", "https://x.y/z", "{1}"),
        ]
    ),
    max_size=30,
).map("".join)


def runs(document: str) -> list[TextRun]:
    return [part for part in parse_markdown(document) if isinstance(part, TextRun)]


async def translated(document: str) -> str:
    below = FakeLinkedTranslator()
    [result] = await MarkupTranslator(below, MARKDOWN, below.limits).translate([document])
    assert result.error is None, result.error
    return result.text


@settings(max_examples=150, deadline=None)
@given(document=_soup)
def test_the_parts_of_a_document_joined_are_the_document(document: str) -> None:
    assert "".join(part.raw for part in parse_markdown(document)) == document


@pytest.mark.parametrize("document", ["#    \n", "1.   \n\nA dog", "- -  \n", "> 1.    \r\n"])
def test_white_space_after_a_marker_is_written_once(document: str) -> None:
    assert "".join(part.raw for part in parse_markdown(document)) == document


def test_runs_are_what_is_read() -> None:
    assert [run.text for run in runs(PAGE)] == [
        *("A red dog", "It is very old, and has a big door.", "TextRun  twice.", "one cat runs"),
        *("and another", "he said *no* <b> about , or this", " a ", " big dog ", " cat "),
        *(" the cat  sleeps ", " the dog sleeps"),
    ]
    verbatim = [item.raw for run in runs(PAGE) for item in run.items if isinstance(item, Verbatim)]
    assert verbatim == ["`git pull`", "[that]", "`\\|`"]


def test_entities_are_decoded() -> None:
    [run] = runs("the&nbsp;dog&#10;runs &eacute;&#1; &unknown;")
    assert run.text == "the\xa0dog runs é &unknown;"


async def test_the_text_of_a_footnote_is_translated() -> None:
    document = "a dog[^1]\n\n[^1]: dog\n> [^note]:runs\n\n    dog\n\n[^]: dog\n[1]: /dog\n"
    assert [run.text for run in runs(document)] == ["a dog", "dog", "runs", "dog"]
    result = await translated(document)
    assert result.count("[^1]") == 2
    assert result.endswith(
        "\n\n[^1]: dog's\n> [^note]:runs's\n\n    dog's\n\n[^]: dog\n[1]: /dog\n"
    )


async def test_a_link_whose_text_is_the_name_of_its_definition_stays() -> None:
    definition = "\n\n[The dog]: /dog\n"
    [run] = runs(f"[the dog][] runs by ![The *dog*][] and [it][]{definition}")
    assert [item.raw for item in run.items if isinstance(item, Verbatim)] == ["[the dog][]"]
    result = await translated(f"[the dog][] runs{definition}")
    assert result.count("[the dog][]") == 1
    assert result.endswith(definition)


async def test_lines_of_directives_stay() -> None:
    document = ":::note\na dog\n:::\n\nruns\n> ::: {.dog}\n> dog\n> :::\n"
    assert [run.text for run in runs(document)] == ["a dog", "runs", "dog"]
    result = await translated(document)
    for part in (":::note\n", "\n:::\n\nruns's\n> ::: {.dog}\n> dog's\n> :::\n"):
        assert part in result


async def test_a_page_keeps_its_markup() -> None:
    result = await translated(PAGE)
    for part in (
        *("---\ntitle: a dog\n---\n", "# ", "*red's*", '](https://x.org/a_(b) "T")', "`git pull`"),
        *("  \n", "- [ ] ", "![cat's](b.png)", "  2) ", "\n> ", "\\*no\\*", "[that]", "][1]"),
        *('```python\nx = "a dog"\n```\n', "|---|:-------:|\n", "`\\|`", "    code of a dog\n"),
        *("<script>\na dog\n</script>\n", "<div>\n", "<b>dog's</b>", "<br>\n"),
        '[that]: https://example.com "a dog"\n',
    ):
        assert result.count(part) >= 1, (part, result)
    assert result.count("|") == PAGE.count("|")
    assert result.count("\n\n") == PAGE.count("\n\n")


@settings(max_examples=60, deadline=None)
@given(document=_soup)
@example(document="runs <b>\\<b>")
async def test_any_document_is_translated_and_its_blocks_stay(document: str) -> None:
    result = await translated(document)
    script, bold = re.compile(r"(?<!\\)<script>"), re.compile(r"(?<!\\)<b>")
    assert bool(script.search(result)) == bool(script.search(document))
    assert len(bold.findall(result)) == len(bold.findall(document))


@given(text=st.text("a *_`[]<>&;:#|!()\\~-+1.\n", max_size=20))
@example("[1]")
@example("[1];")
@example("a) 1")
def test_what_a_translation_says_is_no_markup(text: str) -> None:
    """Read again, it is text with nothing but characters in it, and no block of its own."""
    text = " ".join(text.split())
    written = begin_line(encode(text))
    found = parse_markdown(written)
    if any(map(str.isalnum, text.lstrip("1."))):
        [run] = [part for part in found if isinstance(part, TextRun)]
        assert all(isinstance(item, Chars) for item in run.items)
        label = text.removesuffix(run.text)  # is copied, though it is no markup
        assert not label or re.fullmatch(r"a[.)] |\([a1]{1,3}\) ", label)


def test_a_translation_that_begins_like_a_directive_is_none() -> None:
    assert begin_line("::: dog") == "\\::: dog"
    assert begin_line(":: dog") == ":: dog"


async def test_a_translation_that_begins_like_an_item_is_no_item() -> None:
    class Ordinal(FakeLinkedTranslator):
        def result(self, text: str) -> TextResult:
            return TextResult("1. Mai", None, links=[])

    below = Ordinal()
    translator = MarkupTranslator(below, MARKDOWN, below.limits)
    [result] = await translator.translate(["May 1st"], TranslateOptions())
    assert result.text == "1\\. Mai"


_FLOODS = ("*", "[", "]", "](", "](a", "`", "``` `", "<a ", "<!--", "&", "|", "|a|b\n|-|-\n", "> ")
_MORE_FLOODS = (
    "*a ",
    "**a** ",
    "[a](b) ",
    "\\",
    "```\n",
    "a  \n",
    "[[a]]",
    "[^a]:",
    "***a** b* ",
    "<a:",
    "\n",
)


@pytest.mark.parametrize("flood", [*_FLOODS, *_MORE_FLOODS])
async def test_floods_of_markup_take_linear_time(flood: str) -> None:
    document = (flood * 100_000)[:20_000] + "dog"
    below = FakeLinkedTranslator()
    await MarkupTranslator(below, MARKDOWN, below.limits).translate([document])


@pytest.mark.parametrize(
    ("document", "texts"),
    [
        ("> [!NOTE]\n> Read this first.", ["Read this first."]),
        ("> [!warning]- My title\n> Read this.", ["My title", "Read this."]),
        ("> > [!TIP]\n> > Read\n> > this.", ["Read this."]),
        ("$$\nx = y^2\n$$", []),
        ("Text\n$$ x = y $$\nmore", ["Text", "more"]),
        ("> $$\n> x\n> $$\n> text", ["text"]),
        ("\\[\nx\n\\]\ntext", ["text"]),
        ("\\begin{align}\na &= b\n\\end{align}\n", []),
        ("$$ is much\nmoney", ["$$ is much money"]),
        ("Term\n: A definition\n: Another", ["Term", "A definition", "Another"]),
        ("Term\n\n:   A definition\n    goes on", ["Term", "A definition goes on"]),
        ("!!! note\n    Read this.", ["Read this."]),
        ('!!! note "My title"\n\n    Read this.', ["My title", "Read this."]),
        ('=== "My tab"\n\n    Read this.', ["My tab", "Read this."]),
        ("[TOC]\nText", ["Text"]),
        ("Text\n{: .class #id}\nmore", ["Text", "more"]),
        ("{% raw %}\nText\n{% endraw %}", ["Text"]),
        ("{{< figure src=a >}}\nText", ["Text"]),
    ],
)
async def test_blocks_of_further_dialects_keep_their_lines(document: str, texts: list[str]) -> None:
    runs = [part.text for part in parse_markdown(document) if isinstance(part, TextRun)]
    assert [text.strip() for text in runs] == texts
    assert "".join(part.raw for part in parse_markdown(document)) == document
    below = FakeLinkedTranslator()
    [result] = await MarkupTranslator(below, MARKDOWN, below.limits).translate([document])
    assert result.error is None
    if not any("goes on" in text or "Read this" in text for text in texts):
        assert result.text.count("\n") >= document.count("\n") - 1


def test_code_in_an_item_is_copied() -> None:
    document = """\
* One dog:

      the code

  Two dogs.

1. Three:

       more code

   - Four

     five

         inner code

   Six

       outer code

    Seven

- Eight

    - Nine

        - Ten

\televen

Twelve

    last code
"""
    parts = parse_markdown(document)
    found = [part.raw for part in parts if isinstance(part, TextRun)]
    names = "One dog: Two dogs. Three: Four five Six Seven Eight Nine Ten eleven Twelve"
    assert " ".join(found) == names
    assert "".join(part.raw for part in parts) == document


@pytest.mark.parametrize("name", ["kbd", "code", "SAMP", "var"])
def test_elements_of_code_are_copied(name: str) -> None:
    whole = f"<{name} class=a>a <b>dog</b></{name.lower()}>"
    [run] = parse_markdown(f"Ä {whole} and <{name}>")
    assert isinstance(run, TextRun)
    assert [item.raw for item in run.items if isinstance(item, Verbatim)] == [whole]


@pytest.mark.parametrize(
    "document",
    [
        '=== "One"\n\n    !!! note "Two"\n\n        Three\n',
        "1. One\n\n    !!! warning\n        Two\n\n        Three\n",
        '!!! note\n\n    One\n\n    ??? tip "Two"\n\n        Three\n\n        - Four\n\n'
        "            Five\n",
        "1. One\n\n    a. Two\n\n        Three\n",
        "1. One\n\n    (1) Two\n\n        Three\n",
        "- 1.  One\n\n      Two\n",
        "- - - One\n\n      Two\n",
        "- [ ] One\n\n      Two\n",
        "1. One\n\n    : Two\n\n        Three\n",
    ],
)
def test_text_in_an_item_is_no_code(document: str) -> None:
    words = re.findall("One|Two|Three|Four|Five", document)
    parts = parse_markdown(document)
    found = [part.raw for part in parts if isinstance(part, TextRun)]
    assert found == words


def test_elements_of_code_end_with_their_own_tag() -> None:
    keys = "<kbd><kbd>Ctrl</kbd>+<kbd>C</kbd></kbd>"
    [run] = parse_markdown(f"Press {keys} or <svg/> now, <svg>x</svg>.")
    assert isinstance(run, TextRun)
    assert [item.raw for item in run.items if isinstance(item, Verbatim)] == [keys, "<svg>x</svg>"]
