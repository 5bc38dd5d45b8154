"""The language that a document says it is in: set to that of the translation."""

from __future__ import annotations

from model.bundle.languages import primary_subtag
from service.documents.document import bad_document

# The most common region of a language, of which office programs look for a spelling checker.
_REGIONS = dict(
    pair.split(":")
    for pair in """
    ar:EG bg:BG bs:BA ca:ES cs:CZ cy:GB da:DK de:DE el:GR en:US es:ES et:EE eu:ES fa:IR fi:FI fr:FR
    ga:IE gl:ES he:IL hi:IN hr:HR hu:HU id:ID is:IS it:IT ja:JP ko:KR lt:LT lv:LV mk:MK nb:NO nl:NL
    nn:NO pl:PL pt:PT ro:RO ru:RU sk:SK sl:SI sq:AL sr:RS sv:SE tr:TR uk:UA vi:VN zh:CN
    """.split()  # noqa: SIM905
)


def with_region(language: str) -> str:
    """A BCP-47 code with its most common region, if it is a bare code of a known language."""
    region = _REGIONS.get(language)
    return f"{language}-{region}" if region else language


def check_target(found: str, language: str, name: str) -> None:
    """Check the target language of a file, in its attribute `name`, against the call's.

    Raises:
        InvalidArgumentError: they differ, regions aside.
    """
    if primary_subtag(found) != primary_subtag(language):
        raise bad_document(f"is into {found[:40]!r}, by its {name}; the call is into {language!r}")
