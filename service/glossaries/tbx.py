"""Reads TBX, the exchange format of term bases (ISO 30042): version 2, version 3 and TBX-Min.

A concept has terms in several languages. Each term is translated by the terms that its concept has
in another language, preferred ones first. Deprecated ones are translated, but are no translations.

https://www.tbxinfo.net
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from lxml import etree

from model.bundle.languages import is_language_code, primary_subtag, without_region
from service.errors import StartupError
from service.glossaries.glossary import (
    MAX_FORMS,
    MAX_SOURCE_CHARACTERS,
    MAX_TARGET_CHARACTERS,
    Entry,
)

_Element: TypeAlias = etree._Element
Entries: TypeAlias = dict[tuple[str, str], dict[str, list[str]]]
"""The accepted translations of each term, by languages: BCP-47 codes without regions."""

_ROOTS = ("martif", "tbx")
_CONCEPTS = ("termEntry", "conceptEntry", "entry")
_LANGUAGES = ("langSet", "langSec", "langGroup")
_TERMS = ("tig", "ntig", "termSec", "termGroup")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_STATUS = "administrativeStatus"
# With the suffix -admn-sts in version 2 and 3; the last two are TBX-Min's.
_FORBIDDEN = re.compile("(?:deprecated|superseded|forbidden|notRecommended|obsolete)", re.I)
_PREFERRED = re.compile("preferred", re.I)


def read_tbx(path: Path, max_entries: int, languages: tuple[str, ...] = ()) -> Entries:
    """Read the terms of a TBX file, in all directions between its languages.

    Args:
        max_entries: most terms, where each direction counts.
        languages: source and target language, to read only this direction.

    Raises:
        StartupError: it can't be read, is no TBX file, or has too many terms.
    """
    found: Entries = {}
    num_entries = 0
    for concept in _concepts(path):
        for source, target, term, forms in _directions(_terms(concept)):
            if not _are_wanted((source, target), languages):
                continue
            entries = found.setdefault((source, target), {})
            num_entries += term not in entries
            if num_entries > max_entries:
                raise StartupError(
                    f"{path}: more than {max_entries:,} entries in all directions, the limit: name "
                    f"the languages of one, as in NAME.en-de.tbx"
                )
            known = entries.setdefault(term, [])
            known += [form for form in forms if form not in known]
    return {(_short(a, found), _short(b, found)): terms for (a, b), terms in found.items()}


def _are_wanted(codes: tuple[str, str], languages: tuple[str, ...]) -> bool:
    return all(
        wanted.lower() in (code.lower(), primary_subtag(code))
        for code, wanted in zip(codes, languages, strict=False)
    )


def _short(code: str, found: Entries) -> str:
    """A code without its script, if the file has the language in one script."""
    same = {each for pair in found for each in pair if primary_subtag(each) == primary_subtag(code)}
    return primary_subtag(code) if len(same) == 1 else code


def entries_of(terms: dict[str, list[str]]) -> Iterator[Entry]:
    """The entries of a glossary, with as many translations as one may have."""
    for term, forms in terms.items():
        kept: list[str] = []
        for form in forms[:MAX_FORMS]:
            if len("|".join([*kept, form])) <= MAX_TARGET_CHARACTERS:
                kept.append(form)
        if kept:
            yield Entry(term, tuple(kept))


def _concepts(path: Path) -> Iterator[_Element]:
    """The concepts of a file, each of which is forgotten when the next one is read."""
    try:
        root: _Element | None = None
        for event, element in etree.iterparse(
            str(path), events=("start", "end"), resolve_entities=False, no_network=True
        ):
            if root is None:
                root = element
                if etree.QName(root).localname.lower() not in _ROOTS:
                    raise StartupError(f"{path}: is no TBX file: its first tag is {root.tag!r:.80}")
            if event == "end" and _name(element) in _CONCEPTS:
                yield element
                parent = element.getparent()
                element.clear(keep_tail=False)
                if parent is not None:
                    del parent[:-1]
    except etree.XMLSyntaxError as exc:
        raise StartupError(f"{path}: is no well-formed XML: {exc.msg}") from exc
    except OSError as exc:
        raise StartupError(f"{path}: can't be read: {exc}") from exc


def _terms(concept: _Element) -> dict[str, tuple[list[str], list[str]]]:
    """The terms of a concept by language: all, and those that are translations, the best first."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for section in concept:
        code = section.get(_LANGUAGE) or section.get("lang") or ""
        if _name(section) not in _LANGUAGES or not is_language_code(code):
            continue
        every, accepted = found.setdefault(without_region(code), ([], []))
        preferred: list[str] = []
        for group in section:
            term = group.find(".//{*}term") if _name(group) in _TERMS else None
            text = "" if term is None else " ".join("".join(term.itertext()).split())
            if not any(map(str.isalnum, text)) or len(text) > MAX_SOURCE_CHARACTERS:
                continue
            every.append(text)
            status = _status(group)
            if _PREFERRED.match(status):
                preferred.append(text)
            elif not _FORBIDDEN.match(status):
                accepted.append(text)
        accepted[:0] = preferred
    return found


def _directions(
    terms: dict[str, tuple[list[str], list[str]]],
) -> Iterator[tuple[str, str, str, list[str]]]:
    """Source and target language, a term, and its translations."""
    for source, (every, _) in terms.items():
        for target, (_, accepted) in terms.items():
            if source != target and accepted:
                for term in every:
                    yield source, target, term, accepted


def _status(group: _Element) -> str:
    """The status of a term, by an attribute (`style="dca"`) or an element of its own."""
    for note in group.iter():
        name = _name(note)
        if name in (_STATUS, "termStatus") or (name == "termNote" and note.get("type") == _STATUS):
            return (note.text or "").strip()
    return ""


def _name(element: _Element) -> str:
    """The name of an element without its namespace; "" for comments and instructions."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
