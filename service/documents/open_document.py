"""OpenDocument texts (.odt): paragraphs and headings, also in notes, frames, heads and feet."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from lxml import etree

from service.documents.archive import Archive
from service.documents.document import (
    DocumentCounts,
    DocumentLimits,
    DocumentSegment,
    bad_document,
)
from service.documents.inline import InlineText
from service.documents.languages import Script, script_of, with_region
from service.documents.mixed_content import InlineKind, MixedContent
from service.documents.xml_parts import Element, local_name, namespace, parse_xml, write_xml

_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
_STYLE = "urn:oasis:names:tc:opendocument:xmlns:style:1.0"
_FO = "urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"
# Attributes of a format's language, country and whole tag.
_LANGUAGES = {
    Script.WESTERN: (f"{{{_FO}}}language", f"{{{_FO}}}country", f"{{{_STYLE}}}rfc-language-tag"),
    **{
        script: tuple(
            f"{{{_STYLE}}}{name}-{kind}" for name in ("language", "country", "rfc-language-tag")
        )
        for script, kind in ((Script.ASIAN, "asian"), (Script.COMPLEX, "complex"))
    },
}
_POSITION = f"{{{_STYLE}}}text-position"
_SPACES = re.compile(r"[ \t\r\n]+")
_PARTS = ("content.xml", "styles.xml")
_PAIRS = {"span", "a", "ruby", "ruby-base"}
_BREAKS = {"tab", "line-break"}
_MIME_TYPES = ("application/vnd.oasis.opendocument.text",)
# Tracked deletions are not part of the text.
_SKIPPED = f"{{{_TEXT}}}tracked-changes"
_PARAGRAPHS = f"{{{_TEXT}}}p", f"{{{_TEXT}}}h"


class OpenDocumentText:
    """A text document of LibreOffice and compatible programs.

    Raises:
        InvalidArgumentError: the file is not an OpenDocument text, or exceeds a limit.
    """

    def __init__(self, data: bytes, limits: DocumentLimits) -> None:
        self._archive = Archive(data, limits)
        self._language = self._region = ""
        mime_type = self._archive.read("mimetype").decode("ascii", "replace").strip()
        if not mime_type.startswith(_MIME_TYPES):
            raise bad_document(f"is a file of type {mime_type[:80]!r}, not an OpenDocument text")
        self._parts: list[tuple[str, bytes, Element, list[MixedContent]]] = []
        segments: list[DocumentSegment] = []
        counts = DocumentCounts(limits)
        for name in _PARTS:
            if name not in self._archive.names:
                continue
            source = self._archive.read(name)
            root = parse_xml(source, counts, name)
            paragraphs = _paragraphs(root, limits, _scripts(root))
            self._parts.append((name, source, root, paragraphs))
            segments += [paragraph.segment for paragraph in paragraphs]
            limits.check_segments(len(segments))
        self.segments: Sequence[DocumentSegment] = segments

    def set_language(self, language: str) -> None:
        """Set the language of the text, which programs check its spelling for, for `write`."""
        self._language, self._region = with_region(language)
        self._names = _LANGUAGES[script_of(language)]

    def write(self, translations: Sequence[str]) -> bytes:
        """Write the file with these texts in place of the segments."""
        remaining = iter(translations)
        written = set()
        for name, _, _, paragraphs in self._parts:
            # Inner paragraphs first: a note is moved together with its content.
            pairs = [(paragraph, next(remaining)) for paragraph in paragraphs]
            for content, text in reversed(pairs):
                if text == content.segment.text:
                    continue
                written.add(name)
                content.write(content.parent, content.translated(text), copies=False)
        if written and self._language:
            written |= {name for name, _, root, _ in self._parts if self._name_language(root)}
        return self._archive.write(
            {
                name: write_xml(root, source)
                for name, source, root, _ in self._parts
                if name in written
            }
        )

    def _name_language(self, root: Element) -> bool:
        """Name the language in all formats that have one; whether there are any."""
        language, country, tag = self._names
        found = False
        for properties in root.iter(f"{{{_STYLE}}}text-properties"):
            if properties.get(language, "none") not in ("none", "zxx"):
                properties.set(language, self._language)
                properties.set(country, self._region or "none")
                properties.attrib.pop(tag, None)  # which would count for more
                found = True
        return found


def _scripts(root: Element) -> frozenset[str]:
    """The names of styles whose text stands above or below the line."""
    return frozenset(
        style.get(f"{{{_STYLE}}}name", "")
        for style in root.iter(f"{{{_STYLE}}}style")
        for properties in style.iter(f"{{{_STYLE}}}text-properties")
        if not properties.get(_POSITION, "0%").startswith("0")
    )


def _paragraphs(
    root: Element, limits: DocumentLimits, scripts: frozenset[str]
) -> list[MixedContent]:
    classify = functools.partial(_classify, scripts=scripts)
    found = []
    walk = etree.iterwalk(root, events=("start",), tag=(*_PARAGRAPHS, _SKIPPED))
    for _, element in walk:
        if element.tag == _SKIPPED:
            walk.skip_subtree()
            continue
        content = MixedContent.of(element, classify)
        content.items = [
            # One space, as displayed: further spaces are elements.
            InlineText(_SPACES.sub(" ", item.text)) if isinstance(item, InlineText) else item
            for item in content.items
        ]
        if content.has_words:
            found.append(content)
            limits.check_segments(len(found))
    return found


def _classify(element: Element, scripts: frozenset[str]) -> InlineKind:
    name = local_name(element) if namespace(element) == _TEXT else ""
    if name in _BREAKS:
        return InlineKind.BREAK
    if name not in _PAIRS:
        return InlineKind.ATOM
    is_script = element.get(f"{{{_TEXT}}}style-name") in scripts
    return InlineKind.SCRIPT if is_script else InlineKind.PAIR
