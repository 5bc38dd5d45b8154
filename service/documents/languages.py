"""The language that a document says it is in: set to that of the translation."""

from __future__ import annotations

import enum

from model.bundle.languages import (
    LanguageError,
    find_language,
    is_common_code,
    primary_subtag,
)
from service.documents.document import bad_document


class Script(enum.Enum):
    """The kinds of scripts for which office programs have languages of their own."""

    WESTERN = enum.auto()
    ASIAN = enum.auto()
    COMPLEX = enum.auto()


# The most common region of a language, of which office programs look for a spelling checker.
_REGIONS = dict(
    pair.split(":")
    for pair in """
    ar:EG bg:BG bs:BA ca:ES cs:CZ cy:GB da:DK de:DE el:GR en:US es:ES et:EE eu:ES fa:IR fi:FI fr:FR
    ga:IE gl:ES he:IL hi:IN hr:HR hu:HU id:ID is:IS it:IT ja:JP ko:KR lt:LT lv:LV mk:MK nb:NO nl:NL
    nn:NO pl:PL pt:PT ro:RO ru:RU sk:SK sl:SI sq:AL sr:RS sv:SE tr:TR uk:UA vi:VN zh:CN
    """.split()  # noqa: SIM905
)


# Languages that office programs name beside the others, by their script.
_SCRIPTS = {
    **dict.fromkeys(("ja", "ko", "zh"), Script.ASIAN),
    **dict.fromkeys(("ar", "fa", "he", "hi", "km", "my", "ps", "th", "ur", "yi"), Script.COMPLEX),
}


def script_of(language: str) -> Script:
    """The kind of script that office programs count a language as."""
    return _SCRIPTS.get(primary_subtag(language), Script.WESTERN)


def with_region(language: str) -> tuple[str, str]:
    """The code of a language without its region, and the region, or the most common one; or ""."""
    code, *others = language.split("-")
    region = next((each for each in others if len(each) == 2), _REGIONS.get(code, ""))
    return code, region.upper()


def check_target(found: str, language: str, name: str) -> None:
    """Check the target language of a file, in its attribute `name`, against the call's.

    Raises:
        InvalidArgumentError: they differ, regions aside.
    """
    code = primary_subtag(found.replace("_", "-"))
    if not is_common_code(code):  # unknown here
        return
    try:
        find_language(code, [primary_subtag(language)])
    except LanguageError:
        raise bad_document(
            f"is into {found[:40]!r}, by its {name}; the call is into {language!r}"
        ) from None
