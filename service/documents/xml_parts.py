"""Parses untrusted XML: without entities, files and network, and within limits."""

from __future__ import annotations

import re
from typing import TypeAlias

from lxml import etree

from service.documents.document import DocumentCounts, bad_document

Element: TypeAlias = etree._Element

_ENCODING = re.compile(rb"""<\?xml[^>]*?\sencoding\s*+=\s*+["']([^"'>]*+)["']""")
_DECLARATION = re.compile(rb"""\sxmlns[^"'<>]*+(?:"([^"<]*+)|'([^'<]*+))""")
_PLAIN_NAMESPACE = re.compile(rb"[!-%'-~]*+")  # without characters that can be escaped
_WIDE_TAG = re.compile(rb"<(?:[^<=]*+=){257}")
_MARKS = b"\xef\xbb\xbf\xfe\xff \t\r\n"
_ASCII = bytes(range(0x20, 0x7F))
_MOST_LEVELS = 256  # limit of libxml2
# A document type without declarations.
_DOCTYPE = re.compile(
    rb"""<!DOCTYPE\s+([\w:.-]{1,100})"""
    rb"""(?:\s+(?:SYSTEM|PUBLIC\s+["'][^"'<>\[\]]{0,200}["'])\s+["'][^"'<>\[\]]{0,200}["'])?\s*>"""
)
# Characters that XML can't contain.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_xml(
    data: bytes, counts: DocumentCounts, name: str = "", *, has_doctype: bool = False
) -> Element:
    """Parse an XML document, and return its root.

    Args:
        data: the document; libxml2 refuses more than 256 levels, texts over 10 MB and entities that
            grow.
        has_doctype: whether the format's files may have a document type. It is not read, and one
            with declarations is refused.

    Raises:
        InvalidArgumentError: the data is not XML, has a document type, or exceeds a limit.
    """
    where = f"{name}: " if name else ""
    signs = _signs(data, where)
    _count_signs(signs, counts)
    parser = etree.XMLParser(
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        remove_blank_text=False,
        strip_cdata=False,
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as exc:
        raise bad_document(f"{where}is no well-formed XML: {exc.msg}") from exc
    except ValueError as exc:
        raise bad_document(f"{where}is no XML: {exc}") from exc
    if root.getroottree().docinfo.internalDTD is not None:
        if not (has_doctype and _is_plain_doctype(signs, root)):
            raise bad_document(f"{where}has a document type (<!DOCTYPE>), which is not read")
        if next(root.iter(etree.Entity), None) is not None:
            raise bad_document(f"{where}has entities, which are not read")
    _count_levels(root, signs, counts, where)
    if _WIDE_TAG.search(signs):  # possibly a text with many equals signs
        counts.limits.check("element_attributes", max(len(e.attrib) for e in root.iter()), where)
    return root


def _signs(data: bytes, where: str) -> bytes:
    """The document in an encoding in which the characters of ASCII are single bytes.

    In UTF-16, the zeros beside them are removed. In other encodings, such as UTF-7, they could not
    be counted, and the document is refused.
    """
    signs = data.replace(b"\0", b"").lstrip(_MARKS)
    if not signs.startswith(b"<"):
        raise bad_document(f"{where}is no well-formed XML: it does not begin with a tag")
    if declared := _ENCODING.match(signs):
        encoding = declared[1].decode("ascii", "replace")
        try:
            is_known = encoding.lower().startswith(("utf-16", "utf-32")) or (
                _ASCII.decode(encoding) == _ASCII.decode("ascii")
            )
        except (LookupError, ValueError):
            is_known = False
        if not is_known:
            raise bad_document(f"{where}is in {encoding[:40]!r}: convert it to UTF-8")
    return signs


def _is_plain_doctype(signs: bytes, root: Element) -> bool:
    """Whether the document type names the root, and maybe a file, and declares nothing."""
    found = _DOCTYPE.search(signs)
    if found is None or signs.count(b"<!DOCTYPE") > 1:
        return False
    return found[1].decode("ascii", "replace").rpartition(":")[2] == local_name(root)


def _count_signs(signs: bytes, counts: DocumentCounts) -> None:
    """Count tags and attributes before parsing: a tag of four bytes takes over 100 in memory."""
    counts.add("tags", signs.count(b"<"))
    counts.add("attributes", signs.count(b"="))


def _count_levels(root: Element, signs: bytes, counts: DocumentCounts, where: str) -> None:
    """Count the levels of all elements, and the namespaces around each of them."""
    limits = counts.limits
    declared = [match[1] or match[2] or b"" for match in _DECLARATION.finditer(signs)]
    if (
        counts["tags"] * _MOST_LEVELS <= limits.max_level_sum
        and len(declared) <= limits.max_namespaces
        and sum(map(len, declared)) <= limits.max_namespace_characters
        and len(set(declared)) == len(declared)
        and all(map(_PLAIN_NAMESPACE.fullmatch, declared))
    ):
        return  # within the limits for any nesting, as in most files
    level = level_sum = 0
    around: list[tuple[str, str]] = []  # prefixes and namespaces around an element
    for event, found in etree.iterwalk(root, events=("start", "end", "start-ns", "end-ns")):
        if event == "start":
            level += 1
            level_sum += level
        elif event == "end":
            level -= 1
        elif event == "end-ns":
            around.pop()
        else:
            around.append(found)
            limits.check("namespaces", len(around), where)
            characters = sum(len(prefix) + len(uri) for prefix, uri in around)
            limits.check("namespace_characters", characters, where)
            if any(uri == found[1] and prefix != found[0] for prefix, uri in around):
                # When elements are moved, libxml2 replaces one prefix by the other, in quadratic
                # time.
                limits.check(
                    "nodes_with_two_prefixes", counts["tags"] + counts["attributes"], where
                )
    counts.add("level_sum", level_sum)


def add_copy(copies: DocumentCounts, element: Element) -> None:
    """Count the tags, attributes and characters of a copied element.

    Raises:
        InvalidArgumentError: all copies together exceed a limit.
    """
    tags = attributes = characters = 0
    for each in element.iter():
        tags += 1
        characters += len(each.text or "") + len(each.tail or "")
        for name, value in each.items():
            attributes += 1
            characters += len(name) + len(value)
    copies.add("tags", tags)
    copies.add("attributes", attributes)
    copies.add("unpacked_bytes", characters)


def drop(element: Element) -> None:
    """Remove an element and its content, which may not be used elsewhere."""
    del element[:]  # frees it; moving it out would declare namespaces on it, in quadratic time
    parent = element.getparent()
    assert parent is not None, "a root is not dropped"
    parent.remove(element)


def printable(text: str) -> str:
    """Replace characters that XML can't contain with spaces."""
    return _NOT_XML.sub(" ", text)


def write_xml(root: Element, source: bytes) -> bytes:
    """Write a document with the encoding and the declaration of its source.

    Args:
        root: root from `parse_xml`, possibly changed.
        source: bytes that it was parsed from.
    """
    info = root.getroottree().docinfo
    has_declaration = source.lstrip(b"\xef\xbb\xbf").startswith(b"<?xml")
    written = etree.tostring(
        root.getroottree(),
        encoding=info.encoding or "UTF-8",
        xml_declaration=False,
    )
    if not has_declaration:
        return bytes(written)
    head = source[: source.index(b"?>") + 2] if info.encoding in ("UTF-8", "utf-8", None) else b""
    if not head:
        return bytes(
            etree.tostring(root.getroottree(), encoding=info.encoding, xml_declaration=True)
        )
    rest = source[len(head) :]
    space = rest[: len(rest) - len(rest.lstrip())]
    return head + space + bytes(written)


def local_name(element: Element) -> str:
    """The name of an element without its namespace; "" for comments and instructions."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def namespace(element: Element) -> str:
    """The namespace of an element; "" without one."""
    tag = element.tag
    return tag[1:].partition("}")[0] if isinstance(tag, str) and tag.startswith("{") else ""
