"""Reads TMX, the exchange format of translation memories, of any version.

Foreign files are read in a worker process, as documents are. A document type may declare nothing.
Tags within segments are left out, and their text if it is code (bpt, ept, it, ph, ut). A code that
breaks the line is a space. Of the white space on both sides of a code, one side stays.

https://www.gala-global.org/tmx-14b
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from model.bundle.languages import is_language_code
from service.documents.document import DocumentCounts, DocumentLimits, bad_document
from service.documents.work import MAX_CHARACTER_RATIO, MemoryPairs
from service.documents.xliff_states import is_break
from service.documents.xml_parts import Element, local_name, parse_xml
from service.errors import InvalidArgumentError
from service.memory.pairs import TextPair, languages_key

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = ("bpt", "ept", "it", "ph", "ut")
_ALL = "*all*"
_CODE = "\0"  # stands for a code; no XML has it
_SPACES = re.compile(rf"[\s{_CODE}]+")


def read_tmx(data: bytes, limits: DocumentLimits, languages: tuple[str, str]) -> MemoryPairs:
    """Read the pairs of a TMX file.

    Args:
        languages: source and target language of the pairs; "" for those of the file.

    Raises:
        InvalidArgumentError: the file is not TMX, or exceeds a limit.
    """
    limits.check_bytes(len(data))
    root = parse_xml(data, DocumentCounts(limits), has_doctype=True)
    if local_name(root) != "tmx":
        raise bad_document("is no TMX file: its first tag is not <tmx>")
    header = root.find("{*}header")
    usual = "" if header is None else header.get("srclang", "")
    pairs: list[TextPair] = []
    num_skipped = num_characters = 0
    for unit in root.iter("{*}tu"):
        source = languages[0] or unit.get("srclang") or usual
        if source.lower() == _ALL or not is_language_code(source):
            raise bad_document("names no source language: name it in source_language_code")
        found = list(_pairs_of(unit, source, languages[1]))
        num_skipped += not found
        for pair in found:
            try:
                pair.check()
            except InvalidArgumentError:  # too long, for example: the others are good
                num_skipped += 1
                continue
            pairs.append(pair)
            limits.check_segments(len(pairs))
            num_characters += len(pair.source) + len(pair.target)
            if num_characters > MAX_CHARACTER_RATIO * len(data):
                raise bad_document(
                    f"its pairs have more than {MAX_CHARACTER_RATIO} characters for each byte of "
                    "the file, the limit"
                )
    return MemoryPairs.of(pairs, num_skipped)


def _pairs_of(unit: Element, source: str, target: str) -> Iterator[TextPair]:
    """The pairs of a unit: its text in the source language, with each translation."""
    variants = [
        (variant.get(_LANGUAGE) or variant.get("lang") or "", variant)
        for variant in unit.findall("{*}tuv")
    ]
    variants = [each for each in variants if is_language_code(each[0])]
    own = [each for each in variants if _is_of(each[0], source)]
    if not own:
        return
    code, variant = own[0]
    text = _text_of(variant)
    for other, translation in variants:
        if translation is variant or _is_of(other, source):
            continue
        if not target or _is_of(other, target):
            yield TextPair(text, _text_of(translation).strip(), code, other)


def _is_of(code: str, wanted: str) -> bool:
    return languages_key(code, code) == languages_key(wanted, wanted)


def _text_of(variant: Element) -> str:
    """The text of a variant's segment, without codes; "" if there is no segment."""
    segment = variant.find("{*}seg")
    if segment is None:
        return ""
    return _SPACES.sub(_one_space, "".join(_content(segment)))


def _one_space(match: re.Match[str]) -> str:
    """White space; of that around codes that were left out, one side's."""
    return next(filter(None, match[0].split(_CODE)), "")


def _content(element: Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        name = local_name(child)
        if name not in (*_CODES, ""):  # "" is a comment
            yield from _content(child)
        elif name:
            is_space = is_break(child.get("type", ""), child.text or "")
            yield f"{_CODE} {_CODE}" if is_space else _CODE
        yield child.tail or ""
