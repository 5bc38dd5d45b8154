"""Documents that grow: files by a grammar, read and written at two sizes.

A file is a frame with strands in it: a unit that is repeated, nested, or given attributes or
namespaces. Four times the strands may take about four times the work, or be refused.
"""

from __future__ import annotations

import io
import random
import re
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from bench.processes import PeakMemory
from service.calls.document_calls import LIMITS
from service.documents.formats import read_document
from service.errors import InvalidArgumentError
from tests.robustness.fuzz.target import expect

_FACTOR = 4
# Growth beyond that of the file, above which work is not linear: 4 would be quadratic.
_MOST_GROWTH = 2.3
# What less work says is noise.
_LEAST_SECONDS = 0.6
_LEAST_BYTES = 160 * 2**20
_MOST_LEVELS = 200
_COPIES = 7


class Shape(Enum):
    """How a unit grows."""

    REPEAT = "repeat"
    NEST = "nest"
    COPY = "copy"
    ATTRIBUTES = "attributes"
    NAMESPACES = "namespaces"


@dataclass(frozen=True)
class Strand:
    """A unit that grows around what follows it.

    Attributes:
        unit: a text with ~ where the following strands are put.
        shape: how it grows.
    """

    unit: str
    shape: Shape

    def grown(self, inner: str, size: int) -> str:
        """The strand around the others."""
        before, _, after = self.unit.partition("~")
        match self.shape:
            case Shape.REPEAT:
                return (before + after) * size + inner
            case Shape.NEST:
                levels = min(size, _MOST_LEVELS)
                return before * levels + inner + after * levels
            case Shape.COPY:
                return (before + inner + after) * _COPIES
            case Shape.ATTRIBUTES:
                added = "".join(f' a{number}="b"' for number in range(size))
            case Shape.NAMESPACES:
                added = "".join(f' xmlns:n{number}="urn:{number}"' for number in range(size))
        return re.sub(r"(?=/?>)", added, before, count=1) + inner + after


@dataclass(frozen=True)
class Bomb:
    """A file that grows.

    Attributes:
        extension: of its name.
        frame: the file with ~ where the strands are put; of a zip file, its largest part.
        strands: from the outermost to the innermost.
        size: how far each of them grows.
        num_parts: of a zip file: how often it has the part.
        change: the name of the change that a translation makes.
    """

    extension: str
    frame: str
    strands: tuple[Strand, ...]
    size: int
    num_parts: int
    change: str

    def file(self, factor: int) -> tuple[bytes, int]:
        """The file of `factor` times the size, and its bytes when it is unpacked."""
        content = ""
        for strand in reversed(self.strands):
            content = strand.grown(content, factor * self.size)
        text = self.frame.replace("~", content)
        if self.extension not in _MAIN_PARTS:
            data = text.encode()
            return data, len(data)
        main, other, fixed = _MAIN_PARTS[self.extension]
        names = [main, *(other.format(number) for number in range(1, self.num_parts))]
        output = io.BytesIO()
        # Packed, most would be refused for their ratio; but for a few kilobytes, none is.
        method = zipfile.ZIP_STORED if len(text) * len(names) > 2**20 else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(output, "w") as target:
            for name in names:
                target.writestr(zipfile.ZipInfo(name), text, method)
            for name, known in fixed.items():
                target.writestr(zipfile.ZipInfo(name), known)
        return output.getvalue(), len(text) * len(names)


_MAIN_PARTS = {
    ".docx": ("word/document.xml", "word/header{}.xml", {}),
    ".odt": (
        "content.xml",
        "styles.xml",
        {"mimetype": "application/vnd.oasis.opendocument.text"},
    ),
}
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_FRAMES: dict[str, Sequence[str]] = {
    ".docx": (
        f'<w:document xmlns:w="{_WORD}"><w:body>~</w:body></w:document>',
        f'<w:document xmlns:w="{_WORD}"><w:body><w:p>~</w:p></w:body></w:document>',
        f'<w:document xmlns:w="{_WORD}"><w:body><w:p><w:r>~</w:r></w:p></w:body></w:document>',
        f'<w:document xmlns:w="{_WORD}"><w:p><w:r><w:rPr>~</w:rPr><w:t>Words</w:t></w:r><w:r><w:t>a'
        "</w:t></w:r><w:r><w:t>b</w:t><w:tab/><w:t>c</w:t></w:r></w:p></w:document>",
    ),
    ".odt": (
        '<o:c xmlns:o="urn:o" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0">~</o:c>',
        '<o:c xmlns:o="urn:o" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><text:p>'
        "~</text:p></o:c>",
    ),
    ".xlf": (
        '<xliff version="1.2"><file>~</file></xliff>',
        '<xliff xmlns="urn:x" version="1.2"><trans-unit><source>~</source></trans-unit></xliff>',
        '<xliff version="1.2"><trans-unit><source>a</source><seg-source>~</seg-source></trans-unit>'
        "</xliff>",
        '<xliff version="1.2"><trans-unit><source>a</source><seg-source>~</seg-source><target>~'
        "</target></trans-unit></xliff>",
        '<xliff xmlns="urn:y" version="2.0"><unit><segment><source>~</source></segment></unit>'
        "</xliff>",
    ),
    ".po": (
        'msgid "~"\nmsgstr ""\n',
        "~",
        'msgid "a"\nmsgid_plural "~"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    ),
    ".srt": (
        "1\n00:00:01,000 --> 00:00:02,000\n~\n",
        "1\n00:00:01,000 --> 00:00:02,000\nx\n~\ny\n",
    ),
    ".md": ("~", "a ~ b", "| ~ |\n| --- |\n| a |\n", "a ~\n\n[a]: b\n"),
    ".html": ("~", "<p>~</p>", "<pre>~"),
    ".txt": ("~",),
}
_RUN, _BOLD = "<w:r><w:t>Word </w:t></w:r>", "<w:r><w:rPr><w:b/></w:rPr><w:t>bold </w:t></w:r>"
_UNITS: dict[str, Sequence[str]] = {
    ".docx": (
        _RUN, _BOLD, f"{_RUN}{_BOLD}", "<w:t>a</w:t>", "<w:t>a</w:t><w:tab/>", "<w:br/>", "<w:b/>",
        "<w:ins>~</w:ins>", "<w:hyperlink>~</w:hyperlink>", f"<w:ins>{_RUN}~</w:ins>",
        f"<w:ins><w:r><w:tab/></w:r>~{_RUN}</w:ins>", "<w:sdt><w:sdtContent>~</w:sdtContent></w:sdt>",
        "<w:fldSimple>~</w:fldSimple>", f"<w:p>~{_RUN}</w:p>", f"<w:p>{_RUN}</w:p>", "<w:p>~</w:p>",
        f"<w:r><w:pict><w:p>~{_RUN}</w:p></w:pict></w:r>", "<w:r>~<w:t>a</w:t></w:r>",
        "<w:r><w:rPr>~</w:rPr><w:t>Words </w:t></w:r>", "<w:r><w:noBreakHyphen/></w:r>",
        "<w:rPr>~<w:i/></w:rPr>", "<w:tbl><w:tr><w:tc>~</w:tc></w:tr></w:tbl>", "<w:proofErr/>",
        f"<w:hyperlink>{_RUN}</w:hyperlink>", f"<w:r><w:rPr><w:i/></w:rPr><w:t>i</w:t></w:r>{_RUN}",
        "<!-- c -->", "<?p i?>", "<w:t>&lt;b&gt;&amp;</w:t>", "<w:sz w:val='1'/>", "<x xmlns='u'/>",
        "<w:r><w:footnoteReference/></w:r>", "word ",
    ),
    ".odt": (
        "<text:p>Words</text:p>", "<text:p>~</text:p>", "<text:p>a<text:span>~</text:span></text:p>",
        "<text:span>~</text:span>", "<text:span>word </text:span>", "a<text:span>b</text:span>",
        "<text:span text:id='1'>a</text:span>", "<text:note><text:p>a~</text:p></text:note>",
        "<text:note>~</text:note>", "<text:s/>", "word", " \n ", "<text:h>a</text:h>", "<!-- c -->",
        "<text:tracked-changes>~<text:p>a</text:p></text:tracked-changes>", "<text:list>~</text:list>",
        "<![CDATA[a]]>", "<text:a>a</text:a>b", "<text:p>a<text:note>b</text:note></text:p>",
        "<x xmlns='u'>~</x>", "&amp;",
    ),
    ".xlf": (
        "<trans-unit><source>Words</source></trans-unit>", "<trans-unit><source>~</source></trans-unit>",
        "<trans-unit>~<source>a</source></trans-unit>", "<group>~</group>", "<g>~</g>", "<g>a</g>",
        "<group translate='yes'>~</group>", "a<g id='1'>b</g>", "<x/>", "a<x/>", "<ph>~</ph>", "<mrk>~</mrk>",
        "<mrk mtype='seg' mid='a'>~ b</mrk>", "<mrk mtype='seg'>a</mrk>", "word ", "&lt;", "<!-- c -->",
        "<unit><segment><source>a</source></segment></unit>", "<segment><source>~</source></segment>",
        "<pc>~</pc>", "<trans-unit><source><g>a</g></source><target/></trans-unit>", "<![CDATA[<a>]]>",
        "<trans-unit><source>a</source><seg-source><mrk mtype='seg' mid='1'>b</mrk></seg-source>~"
        "</trans-unit>", "<g xmlns='u'>~</g>", "<note>~</note>",
    ),
    ".po": (
        'msgid "a"\nmsgstr ""\n', 'msgid "a"\nmsgstr "b"\n', "#, fuzzy\n", "#| x\n", "# c\n", "\n",
        '"b"\n', "a ", " _Ab", "_Ab", "&Ab", " &Ab", "E&xit ", "%", "%s", "{a}", "{aaaaaaaa", "{{", "$a",
        "%(a", "&amp;", "&#", "\\n", "\\\\", "\\x41", "a" * 60, "%1$", "<b>", "%-+#", 'msgctxt "a"\n',
        '#, fuzzy\n#| msgid "b"\nmsgid "a %d"\nmsgstr "c"\n\n', "{e}", "é",
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    ),
    ".srt": (
        "1\n00:00:01,000 --> 00:00:02,000\nWords\n\n", "00:00:01,000 --> 00:00:02,000\n", "word ", "a\n",
        "\n", "- a\n", "{\\an8}", "{\\", "<i>", "<i>a</i> ", "</i", "<font a", "<", "<a ", "&amp;", " ",
        "1\n", "-->", "00:", "12", "<i >", "\u2028",
    ),
    ".md": (
        "a ", "a\n", "\n", "a\n\n", "# a\n", "- a\n", "> ", "> a\n", "1. ", "*", "**", "*a", "_a", "a* ", "`",
        "``", "`a` ", "[", "]", "[a]", "[a](", "](", "![", "[a][b]", "](<", "](a \"", "<", "<a", "<a b='",
        "<a \"", "<!--", "<!-- ", "-->", "-", "<http:", "<a@", "http://", "&amp;", "&#", "\\", "\\[", "|",
        "| a ", "| a |\n", "| --- |\n", "```\n", "~~~\n", "<pre>\n", "[a]: b\n", "[^a", "[^a]: b\n", "    a\n",
        ":::\n", "---\n", "  \n", "(", ")", "~~", "[a\\", "('", "a  \n", "\\\n", "*a_b", "[`a`]",
    ),
    ".html": (
        "a ", "<p>", "<p>a", "</p>", "<b>", "<b>a</b> ", "</b>", "<i>~</i>", "<div>~</div>", "<x>", "<x>~</x>",
        "<br>", "<code>", "<code>a</code>", "<pre>", "<!--", "<!-- a -->", "<!", "<![", "<?", "<a href='",
        '<a "', "<a ", "<", "&amp;", "&", "&#", "<script>", "<title>", "</script", "<![CDATA[", "<b a='b'>",
        "<p translate='no'>", "<svg>", "<!DOCTYPE [", "\n", "<b ~>a",
    ),
    ".txt": ("a ", "a\n", "\n", "a\n\n", " ", " \n", "\t", "\r", "\u2028", "a" * 50, "\u3000"),
}  # fmt: skip
_TAGS = re.compile(r"(<[^<>]*>)")
_CHANGES: dict[str, Callable[[str], str]] = {
    "longer": lambda text: f"{text}!",
    "without tags": lambda text: _TAGS.sub("", text) + "!",
    "text between tags": lambda text: " x ".join(_TAGS.split(text)) + "!",
    "other tags first": lambda text: "".join(reversed(_TAGS.split(text))) + "!",
}


class DocumentBombs:
    """Files that grow, of all formats."""

    name: ClassVar[str] = "bombs"
    share: ClassVar[float] = 0.02
    what: ClassVar[str] = "documents that grow by a grammar: time and memory for each byte"

    def generate(self, rng: random.Random) -> Bomb:
        """A file that grows: mostly by one or two units."""
        extension = rng.choice(list(_FRAMES))
        is_xml = extension in (".docx", ".odt", ".xlf")
        strands = []
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            unit = rng.choice(_UNITS[extension])
            shapes = [Shape.REPEAT, Shape.REPEAT]
            if "~" in unit:
                shapes = [Shape.NEST, Shape.NEST, Shape.COPY, Shape.REPEAT]
            if is_xml and unit.startswith("<") and rng.random() < 0.2:
                shapes = [Shape.ATTRIBUTES, Shape.NAMESPACES]
            strands.append(Strand(unit, rng.choice(shapes)))
        return Bomb(
            extension,
            rng.choice(_FRAMES[extension]),
            tuple(strands),
            rng.choice((500, 2_000, 10_000)),
            rng.choice((1, 1, 1, 7, 100)) if extension == ".docx" else rng.choice((1, 2)),
            rng.choice(list(_CHANGES)),
        )

    def run(self, given: Bomb) -> str:
        """Read and write the file at two sizes, and compare what they took."""
        outcome, *_ = self._measured(given, 1)  # imports, and what is made once
        for _attempt in range(2):  # the second time, if the first could be noise
            _, size, seconds, memory = self._measured(given, 1)
            outcome, large_size, large_seconds, large_memory = self._measured(given, _FACTOR)
            growth = large_size / size * _MOST_GROWTH
            is_slow = large_seconds > max(_LEAST_SECONDS, seconds * growth)
            is_large = large_memory > max(_LEAST_BYTES, memory * growth)
            if not (is_slow or is_large):
                return outcome
        evidence = (
            f"{size:,} bytes: {seconds:.2f} s, {memory >> 20} MiB; {large_size:,} bytes: "
            f"{large_seconds:.2f} s, {large_memory >> 20} MiB; {given}"
        )
        expect(not is_slow, "time grows faster than the file", evidence)
        expect(not is_large, "memory grows faster than the file", evidence)
        return outcome

    def _measured(self, given: Bomb, factor: int) -> tuple[str, int, float, int]:
        """What becomes of the file; its bytes unpacked, CPU time, and memory at the peak."""
        data, size = given.file(factor)
        change = _CHANGES[given.change]
        with PeakMemory() as memory:
            started = time.thread_time()
            outcome = "written"
            try:
                document = read_document(f"a{given.extension}", data, LIMITS)
                document.write([change(segment.text) for segment in document.segments])
            except InvalidArgumentError:
                outcome = "refused"
            seconds = time.thread_time() - started
        return outcome, size, seconds, memory.peak_bytes


TARGETS: Sequence[Callable[[], Any]] = (DocumentBombs,)
