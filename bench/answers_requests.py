"""Mixed requests, generated: texts and documents of each kind, with each option, good and bad."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.kept_sentences import sample_sentence

MEMORY = "answers"
"""Name of the memory that some requests use."""
_TERMS = {"dog": "Köter", "city": "Metropole", "meeting": "Sitzung", "{0}": "{0}", "bus": "Autobus"}
_SENTENCES = (
    "A dog runs.", "The train is late again, and nobody knows why.", "It barks.", "Thanks.",
    "Where is the nearest station?", "SHE SAID THAT THE EU AND THE UN AGREE.", "do not open",
    "“Come in,” she said, and closed the door.", "He asked: 'Why not?'", "Read more »",
    "The Straßenverkehrsamt is closed on Monday.", "Save && Exit", "Press <Ctrl> to go on.",
    "See `make test` and https://example.org/a_b?c=d.", "Hello {name}, you have %d new messages.",
    "Dr. Smith met Mr. Brown at 4 p.m. on October 4th.", "About 50 people came.", "-Thanks.",
    "It cost $1,250.50, i.e. 12% more than in 1999.", "The The the dog dog runs runs.",
    "Visit our website or call +49 30 123456.", "Mix 2 cups of flour with 200 g of sugar.",
    "Ünïcödé → naïve café ☕ 👩🏽‍🚀", "E = mc² and $x^2$", "   ", "!!!", "12345", "Привет, мир.",
    "The film begins at half past seven.", "sen-\ntence", "Monday, Tuesday and Wednesday",
)  # fmt: skip
_INLINE = ("b", "i", "em", "a href='/x?a=1&amp;b=2'", "span class=x", "code", "small", "button")
_BLOCK = ("p", "div", "li", "h1", "td", "option", "label")
_EMPTY = ("<br>", "<img alt='A dog runs.' src=a.png>", "<input>", "<!-- b -->", "&nbsp;", "<hr>")
_MARKDOWN = ("", "", "# ", "- ", "  - ", "> ", "1. ", "| ", "    ", "- [x] ")
_MARKS = ("**{}**", "*{}*", "`{}`", "[{}](https://a.b/c)", "{}  ", "![{}](x.png)", "~~{}~~")
_REST = (":ref:`{} <x>`", "`{} <https://a.b>`_", "``{}``", ":class:`X` {}", "{} [1]_")


@dataclass(frozen=True)
class Request:
    """A call.

    Attributes:
        kind: for the list of differences.
        method: name of the method.
        message: the request, in the JSON form of its message.
    """

    kind: str
    method: str
    message: dict[str, Any]


def memory_pairs() -> list[tuple[str, str]]:
    """Pairs for the memory: whole texts, sentences of others, and similar ones."""
    pairs = [(text, f"Nr. {number}") for number, text in enumerate(_SENTENCES[:12])]
    return [*pairs, ("The train is late again.", "Der Zug hat schon wieder Verspätung.")]


class Requests:
    """A source of requests.

    Args:
        lines: sentences of the source language to mix in; may be empty.
    """

    def __init__(self, seed: int, lines: Sequence[str]) -> None:
        self._rng = random.Random(seed)
        self._lines = lines

    def make(self, count: int) -> list[Request]:
        """Make a number of requests, of each kind in turn."""
        kinds: Sequence[tuple[str, Callable[[], Request]]] = [
            ("plain", self._plain),
            ("options", self._options),
            ("lines", self._of_lines),
            ("html", lambda: self._marked("text/html", self._html(3))),
            ("markdown", lambda: self._marked("text/markdown", self._markdown())),
            ("xml", lambda: self._marked("application/xml", f"<r>{self._html(3, True)}</r>")),
            ("rest", self._rest),
            ("glossary", self._glossary),
            ("memory", self._memory),
            ("pivot", self._pivot),
            ("search", self._search),
            ("stream", self._stream),
            ("document", self._document),
            ("long", self._long),
            ("bad", self._bad),
        ]
        made = []
        for number in range(count):
            kind, make = kinds[number % len(kinds)]
            request = make()
            made.append(Request(kind, request.method, request.message))
        return made

    # --- texts -----------------------------------------------------------------------------------

    def _sentence(self) -> str:
        kind = self._rng.random()
        if kind < 0.35:
            return sample_sentence(self._rng).text
        if kind < 0.65 and self._lines:
            return self._rng.choice(self._lines)
        return self._rng.choice(_SENTENCES)

    def _text(self, most: int = 4) -> str:
        separators = (" ", " ", "  ", "\n", "\n\n", "\t", "\u00a0")
        text = self._sentence()
        for _ in range(self._rng.randint(0, most - 1)):
            text += self._rng.choice(separators) + self._sentence()
        return text

    def _texts(self) -> list[str]:
        return [self._text() for _ in range(self._rng.choice((1, 1, 1, 2, 5, 20)))]

    def _html(self, depth: int, is_xml: bool = False) -> str:
        parts = []
        for _ in range(self._rng.randint(1, 4)):
            kind = self._rng.random()
            if depth == 0 or kind < 0.4:
                text = self._sentence()
                parts.append(text.replace("&", "&amp;").replace("<", "&lt;") if is_xml else text)
            elif kind < 0.5 and not is_xml:
                parts.append(self._rng.choice(_EMPTY))
            else:
                name = self._rng.choice(_INLINE if kind < 0.8 else _BLOCK)
                if is_xml:
                    name = name.partition(" ")[0]
                inner = self._html(depth - 1, is_xml)
                parts.append(f"<{name}>{inner}</{name.partition(' ')[0]}>")
            parts.append(self._rng.choice(("", " ", "\n")))
        return "".join(parts)

    def _markdown(self) -> str:
        lines = []
        for _ in range(self._rng.randint(1, 6)):
            words = self._sentence().split(" ")
            place = self._rng.randrange(len(words))
            words[place] = self._rng.choice(_MARKS).format(words[place])
            lines.append(self._rng.choice(_MARKDOWN) + " ".join(words))
        return self._rng.choice(("\n", "\n\n")).join(lines)

    # --- requests --------------------------------------------------------------------------------

    def _translate(self, contents: list[str], **others: Any) -> Request:
        languages = {"source_language_code": "en", "target_language_code": "de"}
        return Request("", "Translate", {"contents": contents, **languages, **others})

    def _plain(self) -> Request:
        return self._translate(self._texts())

    def _marked(self, mime_type: str, text: str) -> Request:
        ignored = self._rng.choice(([], [], ["b"], ["code", "div"]))
        splits = self._rng.random() < 0.9
        options: dict[str, Any] = {"split_sentences": splits}
        if mime_type != "text/markdown":
            options["ignore_tags"] = ignored
        return self._translate([text, self._sentence()], mime_type=mime_type, options=options)

    def _options(self) -> Request:
        rng = self._rng
        options: dict[str, Any] = {
            "split_sentences": rng.random() < 0.7,
            "adapt_letter_case": rng.random() < 0.5,
            "verbatim": {
                name: rng.random() < 0.5
                for name in ("placeholders", "urls", "code", "emoji", "symbols", "numbers")
            },
        }
        if rng.random() < 0.3:
            options["return_alignments"] = rng.choice(("HARD", "SOFT"))
            options["return_alignments"] = f"ALIGNMENT_KIND_{options['return_alignments']}"
        if rng.random() < 0.3:
            options |= {"num_hypotheses": 1, "return_tokens": True}
        return self._translate(self._texts(), options=options)

    def _of_lines(self) -> Request:
        words = self._text(12).split()
        lines, width = [""], self._rng.choice((30, 60, 72))
        for word in words:
            if len(lines[-1]) + len(word) > width:
                lines.append(self._rng.choice(("", "", "> ", "  ")))
            lines[-1] += f" {word}" if lines[-1].strip("> ") else word
        mode = self._rng.choice(("KEEP", "JOIN", "AUTO"))
        return self._translate(["\n".join(lines)], options={"line_breaks": f"LINE_BREAKS_{mode}"})

    def _rest(self) -> Request:
        texts = [
            self._sentence() + " " + self._rng.choice(_REST).format("the dog") + " is here."
            for _ in range(self._rng.randint(1, 3))
        ]
        return self._translate([*texts, self._sentence()])

    def _terms(self) -> dict[str, Any]:
        terms = self._rng.sample(sorted(_TERMS), 3)
        return {"entries": [{"source_term": t, "target_term": _TERMS[t]} for t in terms]}

    def _glossary(self) -> Request:
        texts = [f"{self._sentence()} The dog saw the city from the bus.", self._text()]
        mime_type = self._rng.choice(("", "text/html"))
        return self._translate(texts, glossary=self._terms(), mime_type=mime_type)

    def _memory(self) -> Request:
        texts = [self._text(5) for _ in range(self._rng.randint(1, 3))]
        others: dict[str, Any] = {"memory": MEMORY}
        if self._rng.random() < 0.3:
            others["glossary"] = self._terms()
        if self._rng.random() < 0.3:
            others["mime_type"] = "text/html"
        if self._rng.random() < 0.3:
            others["memory_threshold"] = 0.6
        return self._translate(texts, **others)

    def _pivot(self) -> Request:
        texts = ["Der Hund bellt. " + self._text(2), "Um 16 Uhr kommt der Zug (Gleis 3)."]
        languages = {"source_language_code": "de", "target_language_code": "fr"}
        return self._translate(texts, **languages, options={"allow_pivot": True})

    def _search(self) -> Request:
        search: dict[str, Any] = {"beam_size": self._rng.choice((1, 2, 4))}
        if self._rng.random() < 0.3:
            search["target_prefix"] = "Der "
        if self._rng.random() < 0.3:
            search["sampling"] = {"temperature": 0.8, "seed": self._rng.randrange(1000)}
            search["beam_size"] = 1
        return self._translate([self._text()], options={"search": search})

    def _stream(self) -> Request:
        base = self._rng.choice((self._plain, self._glossary, self._memory, self._pivot))()
        message = {**base.message, "content": self._text(6)}
        del message["contents"]
        if self._rng.random() < 0.9:
            message.pop("mime_type", None)
        return Request("", "StreamTranslate", message)

    def _document(self) -> Request:
        kind = self._rng.choice(("txt", "html", "md", "po", "srt", "xliff"))
        texts = [self._sentence().replace("\n", " ") for _ in range(self._rng.randint(1, 8))]
        escaped = [text.replace("&", "&amp;").replace("<", "&lt;") for text in texts]
        quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
        head = '<xliff version="1.2"><file source-language="en" datatype="plaintext"><body>'
        times = "00:00:0{0},000 --> 00:00:0{0},900"
        written = {
            "txt": "\n\n".join(texts),
            "html": self._html(3),
            "md": self._markdown(),
            "po": "\n\n".join(f'msgid "{text}"\nmsgstr ""' for text in quoted),
            "srt": "\n\n".join(
                f"{n}\n{times.format(n)}\n{text}" for n, text in enumerate(texts, 1)
            ),
            "xliff": head
            + "".join(
                f'<trans-unit id="{n}"><source>{text}</source></trans-unit>'
                for n, text in enumerate(escaped)
            )
            + "</body></file></xliff>",
        }[kind]
        message = {
            "content": base64.b64encode(written.encode()).decode(),
            "file_name": f"a.{kind}",
            "source_language_code": "en",
            "target_language_code": "de",
        }
        return Request("", "TranslateDocument", message)

    def _long(self) -> Request:
        sentence = self._sentence()
        clause = sentence.rstrip(".") + ", and "
        text = self._rng.choice((clause * 60, f"{sentence} " * 40, "word " * 300, "x" * 2000))
        return self._translate([text], mime_type=self._rng.choice(("", "", "text/html")))

    def _bad(self) -> Request:
        text = self._text(2)
        bad: Sequence[dict[str, Any]] = (
            {"contents": []},
            {"contents": [text, "a\0b", text]},
            {"contents": [text, "x " * 60_000]},
            {"contents": ["\ufdfa" * 9_000, text]},
            {"contents": [text], "target_language_code": "xx"},
            {"contents": [text], "mime_type": "text/x"},
            {"contents": [text, "<b>" * 3000], "mime_type": "text/html"},
            {"contents": [text, "<b>a\0</b>"], "mime_type": "text/html"},
            {"contents": [text], "options": {"max_new_tokens": -1}},
            {"contents": [text], "options": {"search": {"beam_size": 1000}}},
            {"contents": [text], "memory": "nowhere"},
            {"contents": [text], "glossary": {"entries": [{"source_term": ""}]}},
            {"contents": [text, f"{text} `a <b>`_ \0"]},
            {"contents": ["a"] * 5000},
        )
        chosen = dict(self._rng.choice(bad))
        return self._translate(chosen.pop("contents"), **chosen)
