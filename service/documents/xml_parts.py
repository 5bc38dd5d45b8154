"""Parses XML that nobody has checked: no entities, no files, no network, bounded depth."""

from __future__ import annotations

from typing import TypeAlias

from lxml import etree

from service.documents.document import bad_document

# Of one part, counted before it is parsed: a tag of four bytes takes over a hundred when it is.
_MAX_TAGS = 2_000_000
_MAX_ATTRIBUTES = 4_000_000

Element: TypeAlias = etree._Element


def parse_xml(data: bytes, name: str = "") -> Element:
    """The root of an XML document.

    Args:
        data: the document; libxml2 refuses more than 256 levels, texts over 10 MB and entities that
            grow.
        name: of the part, for messages.

    Raises:
        InvalidArgumentError: it is no XML, has a document type, or is too large or too deep.
    """
    where = f"{name}: " if name else ""
    for mark, limit, kind in ((b"<", _MAX_TAGS, "tags"), (b"=", _MAX_ATTRIBUTES, "attributes")):
        if (count := data.count(mark)) > limit:
            raise bad_document(f"{where}up to {count:,} {kind}, the limit is {limit:,}")
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
        raise bad_document(f"{where}has a document type (<!DOCTYPE>), which is not read")
    return root


def write_xml(root: Element, source: bytes) -> bytes:
    """The document as bytes, with the encoding and the declaration of its source.

    Args:
        root: as `parse_xml` returned it, changed.
        source: the bytes that it was parsed from.
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
