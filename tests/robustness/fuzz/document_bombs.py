"""Document bombs: files that a grammar makes, read and written at two sizes.

A file is a frame with strands in it. A strand is a unit that is repeated, nested, copied around
others, or given attributes or namespaces. A file of four times the size may take about four times
the processor time and memory, or be refused.
"""

from __future__ import annotations

import enum
import io
import random
import re
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.processes import PeakMemory
from service.calls.backend import DOCUMENT_LIMITS as LIMITS
from service.documents.formats import read_document
from service.errors import InvalidArgumentError
from tests.robustness.fuzz.target import expect

_FACTOR = 4
# Growth beyond that of the file which is no longer linear: quadratic work grows by 4.
_MOST_GROWTH = 2.3
_LEAST_SECONDS = 0.6  # below, a difference may be noise
# Memory is no measure of growth: a small file finds what others have left.
_MOST_MEMORY, _LEAST_MEMORY = 200, 160 * 2**20  # for each byte of a file, and for any file
_SIZES = (300, 1_000, 2_500)
_MOST_LEVELS, _COPIES = 200, 7


class Shape(enum.Enum):
    """The way in which a unit grows."""

    REPEAT = enum.auto()
    NEST = enum.auto()
    COPY = enum.auto()
    ATTRIBUTES = enum.auto()
    NAMESPACES = enum.auto()


@dataclass(frozen=True)
class Strand:
    """A unit that grows around the strands after it.

    Attributes:
        unit: text with ~ at the place of the following strands.
        shape: way in which it grows.
    """

    unit: str
    shape: Shape

    def grown(self, inner: str, size: int) -> str:
        """The strand with others in it."""
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
        extension: extension of the file's name.
        frame: file, or part of a zip file, with ~ at the place of the strands.
        strands: strands from the outermost to the innermost.
        size: number of units in all parts.
        num_parts: number of such parts in a zip file.
        change: name of the change that a translation makes.
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
        num_copies = self.num_parts
        for strand in self.strands:
            num_copies *= _COPIES if strand.shape is Shape.COPY else 1
        for strand in reversed(self.strands):
            content = strand.grown(content, max(1, factor * self.size // num_copies))
        text = self.frame.replace("~", content).encode()
        if self.extension not in _ARCHIVES:
            return text, len(text)
        main, other, fixed = _ARCHIVES[self.extension]
        names = [main, *(other.format(number) for number in range(1, self.num_parts))]
        size = len(text) * len(names)
        # Packed, a larger one would be refused for its ratio.
        method = zipfile.ZIP_STORED if size > 2**20 else zipfile.ZIP_DEFLATED
        output = io.BytesIO()
        with zipfile.ZipFile(output, "w") as target:
            for name, part in {**fixed, **dict.fromkeys(names, text)}.items():
                target.writestr(zipfile.ZipInfo(name), part, method)
        return output.getvalue(), size


# The name of the main part, that of others, and parts that each file has.
_ARCHIVES: Mapping[str, tuple[str, str, Mapping[str, bytes]]] = {
    ".docx": ("word/document.xml", "word/header{}.xml", {}),
    ".odt": ("content.xml", "styles.xml", {"mimetype": b"application/vnd.oasis.opendocument.text"}),
}
_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_TEXT = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
_TIMES = "1\n00:00:01,000 --> 00:00:02,000\n"
FRAMES: Mapping[str, Sequence[str]] = {
    ".docx": (
        f"<w:document {_W}><w:body>~</w:body></w:document>",
        f"<w:document {_W}><w:body><w:p>~</w:p></w:body></w:document>",
        f"<w:document {_W}><w:body><w:p><w:r>~</w:r></w:p></w:body></w:document>",
        f"<w:document {_W}><w:p><w:r><w:rPr>~</w:rPr><w:t>Words</w:t></w:r><w:r><w:t>a</w:t></w:r>"
        "<w:r><w:t>b</w:t><w:tab/><w:t>c</w:t></w:r></w:p></w:document>",
    ),
    ".odt": (
        f'<o:c xmlns:o="urn:o" {_TEXT}>~</o:c>',
        f'<o:c xmlns:o="urn:o" {_TEXT}><text:p>~</text:p></o:c>',
    ),
    ".xlf": (
        '<xliff version="1.2"><file>~</file></xliff>',
        '<xliff xmlns="urn:x" version="1.2"><trans-unit><source>~</source></trans-unit></xliff>',
        '<xliff version="1.2"><trans-unit><source>a</source><seg-source>~</seg-source>'
        "</trans-unit></xliff>",
        '<xliff version="1.2"><trans-unit><source>a</source><seg-source>~</seg-source>'
        "<target>~</target></trans-unit></xliff>",
        '<xliff version="1.2"><trans-unit><source>a</source><seg-source>~</seg-source>'
        "<target>~</target><seg-defs>~</seg-defs></trans-unit></xliff>",
        '<xliff xmlns="urn:y" version="2.0"><unit><segment><source>~</source></segment></unit>'
        "</xliff>",
    ),
    ".po": (
        "~", 'msgid "~"\nmsgstr ""\n',
        'msgid "a"\nmsgid_plural "~"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    ),
    ".srt": (f"{_TIMES}~\n", f"{_TIMES}x\n~\ny\n"),
    ".md": ("~", "a ~ b", "| ~ |\n| --- |\n| a |\n", "a ~\n\n[a]: b\n"),
    ".html": ("~", "<p>~</p>", "<pre>~"),
    ".txt": ("~",),
}  # fmt: skip
_RUN, _BOLD = "<w:r><w:t>Word </w:t></w:r>", "<w:r><w:rPr><w:b/></w:rPr><w:t>bold </w:t></w:r>"
UNITS: Mapping[str, Sequence[str]] = {
    ".docx": (
        _RUN, _BOLD, f"{_RUN}{_BOLD}", "<w:t>a</w:t>", "<w:t>a</w:t><w:tab/>", "<w:br/>", "<w:b/>",
        "<w:ins>~</w:ins>", "<w:hyperlink>~</w:hyperlink>", f"<w:ins>{_RUN}~</w:ins>", "<!-- c -->",
        f"<w:ins><w:r><w:tab/></w:r>~{_RUN}</w:ins>", "<w:fldSimple>~</w:fldSimple>", "<?p i?>",
        "<w:sdt><w:sdtContent>~</w:sdtContent></w:sdt>", f"<w:p>~{_RUN}</w:p>", "<w:p>~</w:p>",
        f"<w:p>{_RUN}</w:p>", f"<w:r><w:pict><w:p>~{_RUN}</w:p></w:pict></w:r>", "<w:proofErr/>",
        "<w:r>~<w:t>a</w:t></w:r>", "<w:r><w:rPr>~</w:rPr><w:t>Words </w:t></w:r>", "word ",
        "<w:r><w:noBreakHyphen/></w:r>", "<w:rPr>~<w:i/></w:rPr>", "<w:sz w:val='1'/>",
        "<w:tbl><w:tr><w:tc>~</w:tc></w:tr></w:tbl>", f"<w:hyperlink>{_RUN}</w:hyperlink>",
        f"<w:r><w:rPr><w:i/></w:rPr><w:t>i</w:t></w:r>{_RUN}", "<w:t>&lt;b&gt;&amp;</w:t>",
        "<x xmlns='u'/>", "<w:r><w:footnoteReference/></w:r>",
    ),
    ".odt": (
        "<text:p>Words</text:p>", "<text:p>~</text:p>",
        "<text:p>a<text:span>~</text:span></text:p>",
        "<text:span>~</text:span>", "<text:span>word </text:span>", "a<text:span>b</text:span>",
        "<text:span text:id='1'>a</text:span>", "<text:note><text:p>a~</text:p></text:note>",
        "<text:note>~</text:note>", "<text:s/>", "word", " \n ", "<text:h>a</text:h>", "<!-- c -->",
        "<text:tracked-changes>~<text:p>a</text:p></text:tracked-changes>", "<![CDATA[a]]>",
        "<text:list>~</text:list>", "<text:a>a</text:a>b", "<x xmlns='u'>~</x>", "&amp;",
        "<text:p>a<text:note>b</text:note></text:p>",
    ),
    ".xlf": (
        "<trans-unit><source>Words</source></trans-unit>", "<group>~</group>", "<g>~</g>",
        "<g>a</g>",
        "<trans-unit><source>~</source></trans-unit>", "<group translate='yes'>~</group>", "<x/>",
        "<trans-unit>~<source>a</source></trans-unit>", "a<g id='1'>b</g>", "a<x/>", "<ph>~</ph>",
        "<mrk>~</mrk>", "<mrk mtype='seg' mid='a'>~ b</mrk>", "<mrk mtype='seg'>a</mrk>", "word ",
        "&lt;", "<!-- c -->", "<unit><segment><source>a</source></segment></unit>", "<pc>~</pc>",
        "<segment><source>~</source></segment>", "<![CDATA[<a>]]>", "<g xmlns='u'>~</g>",
        "<trans-unit><source><g>a</g></source><target/></trans-unit>", "<note>~</note>",
        "<trans-unit><source>a</source><seg-source><mrk mtype='seg' mid='1'>b</mrk></seg-source>~"
        "</trans-unit>",
    ),
    ".po": (
        'msgid "a"\nmsgstr ""\n', 'msgid "a"\nmsgstr "b"\n', "#, fuzzy\n", "#| x\n", "# c\n", "\n",
        '"b"\n', "a ", " _Ab", "_Ab", "&Ab", " &Ab", "E&xit ", "%", "%s", "{a}", "{aaaaaaaa", "{{",
        "$a", "%(a", "&amp;", "&#", "\\n", "\\\\", "\\x41", "a" * 60, "%1$", "<b>", "%-+#", "{e}",
        '#, fuzzy\n#| msgid "b"\nmsgid "a %d"\nmsgstr "c"\n\n', 'msgctxt "a"\n', "é",
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    ),
    ".srt": (
        f"{_TIMES}Words\n\n", "00:00:01,000 --> 00:00:02,000\n", "word ", "a\n", "\n", "- a\n",
        "-->",
        "{\\an8}", "{\\", "<i>", "<i>a</i> ", "</i", "<font a", "<", "<a ", "&amp;", " ", "1\n",
        "00:", "12", "<i >", "\u2028",
    ),
    ".md": (
        "a ", "a\n", "\n", "a\n\n", "# a\n", "- a\n", "> ", "> a\n", "1. ", "*", "**", "*a", "_a",
        "a* ", "`", "``", "`a` ", "[", "]", "[a]", "[a](", "](", "![", "[a][b]", "](<", '](a "',
        "<",
        "<a", "<a b='", '<a "', "<!--", "<!-- ", "-->", "-", "<http:", "<a@", "http://", "&amp;",
        "&#", "\\", "\\[", "|", "| a ", "| a |\n", "| --- |\n", "```\n", "~~~\n", "<pre>\n",
        "[a]: b\n", "[^a", "[^a]: b\n", "    a\n", ":::\n", "---\n", "  \n", "(", ")", "[a\\", "('",
        "a  \n", "\\\n", "*a_b", "[`a`]",
    ),
    ".html": (
        "a ", "<p>", "<p>a", "</p>", "<b>", "<b>a</b> ", "</b>", "<i>~</i>", "<div>~</div>", "<x>",
        "<x>~</x>", "<br>", "<code>", "<code>a</code>", "<pre>", "<!--", "<!-- a -->", "<!", "<![",
        "<?", "<a href='", '<a "', "<a ", "<", "&amp;", "&", "&#", "<script>", "<title>",
        "</script",
        "<![CDATA[", "<b a='b'>", "<p translate='no'>", "<svg>", "<!DOCTYPE [", "\n", "<b ~>a",
    ),
    ".txt": ("a ", "a\n", "\n", "a\n\n", " ", " \n", "\t", "\r", "\u2028", "a" * 50, "\u3000"),
}  # fmt: skip
_TAGS = re.compile(r"(<[^<>]*>)")
_CHANGES: Mapping[str, Callable[[str], str]] = {
    "longer": lambda text: f"{text}!",
    "without tags": lambda text: _TAGS.sub("", text) + "!",
    "text between tags": lambda text: " x ".join(_TAGS.split(text)) + "!",
    "other tags first": lambda text: "".join(reversed(_TAGS.split(text))) + "!",
}


class DocumentBombs:
    """Files that grow, of all formats.

    Args:
        clock: returns the processor time of this thread in seconds, which others do not affect.
    """

    name: ClassVar[str] = "bombs"
    share: ClassVar[float] = 0.02
    what: ClassVar[str] = "document bombs by a grammar: how time grows with the file, and memory"

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock

    def generate(self, rng: random.Random) -> Bomb:
        """Generate a file that grows by one or a few units."""
        extension = rng.choice(list(FRAMES))
        strands = []
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            unit = rng.choice(UNITS[extension])
            shapes = [Shape.REPEAT]
            if "~" in unit.replace("~~~", ""):
                shapes = [Shape.NEST, Shape.NEST, Shape.COPY, Shape.REPEAT]
            if extension in (*_ARCHIVES, ".xlf") and unit.startswith("<") and rng.random() < 0.2:
                shapes = [Shape.ATTRIBUTES, Shape.NAMESPACES]
            strands.append(Strand(unit, rng.choice(shapes)))
        return Bomb(
            extension,
            rng.choice(FRAMES[extension]),
            tuple(strands),
            rng.choice(_SIZES),
            {".docx": rng.choice((1, 1, 7)), ".odt": rng.choice((1, 2))}.get(extension, 1),
            rng.choice(list(_CHANGES)),
        )

    def run(self, given: Bomb) -> str:
        """Read and write the file at two sizes, and compare what they take."""
        self._measured(given, 1)  # imports, and what is made once
        for _ in range(2):  # again, if the first comparison could be noise
            _, size, seconds, _ = self._measured(given, 1)
            outcome, large_size, large_seconds, memory = self._measured(given, _FACTOR)
            growth = _MOST_GROWTH * large_size / size
            is_slow = large_seconds > max(_LEAST_SECONDS, growth * seconds)
            if not is_slow:
                break
        evidence = (
            f"{size:,} bytes: {seconds:.2f} s; {large_size:,} bytes: {large_seconds:.2f} s, "
            f"{memory >> 20} MiB; {given}"
        )
        expect(not is_slow, "processor time grows faster than the file", evidence)
        most = max(_LEAST_MEMORY, _MOST_MEMORY * large_size)
        expect(memory <= most, "much more memory than the file has bytes", evidence)
        return outcome

    def _measured(self, given: Bomb, factor: int) -> tuple[str, int, float, int]:
        """The outcome for a file; its bytes unpacked, processor time, and memory at the peak."""
        data, size = given.file(factor)
        change, outcome = _CHANGES[given.change], "written"
        with PeakMemory() as memory:
            started = self._clock()
            try:
                document = read_document(f"a{given.extension}", data, LIMITS)
                document.write([change(segment.text) for segment in document.segments])
            except InvalidArgumentError:
                outcome = "refused"
            seconds = self._clock() - started
        return outcome, size, seconds, memory.peak_bytes


TARGETS: Sequence[Callable[[], Any]] = (DocumentBombs,)
