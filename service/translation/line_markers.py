"""What stands at the beginning of a line before its sentences: indentation and markers.

A marker (bullet, number, check box, heading, quote) is kept as it stands, like white space: a model
that was trained on sentences drops it or makes words of it. A marker is followed by white space or
by the end of the line, so "-5 degrees", "1.5 litres", "*emphasis*", "#1" and "I. Newton" have none.
"""

from __future__ import annotations

import re

# Possessive quantifiers: linear time on any input. No capturing groups: repeated possessively they
# fail in Python 3.11.
_MARK = r"""
      >(?=[\s>"'„“]|[^\W\d_]|\Z)                   # block quote, with or without a space after it
    | (?: -++|–++|—++|\*++|\+++|=++|\#++|~++|_++   # bullet, dash of a dialogue, heading, rule
        | [•‣⁃∙·◦▪▫●○■□►▶▸➤✓✔✗✘☐☑☒]              # bullet, check box
        | \[[ xX]?\]                              # check box
        | \d{1,3}(?:\.\d{1,3})*+\.?\)             # 1)  1.)  1.2)
        | \((?:\d{1,3}|[a-z]|[ivx]{2,5})\)         # (1)  (a)  (iv), but no word: "(I) think so"
        | (?:[^\W\d_]|[ivx]{2,5})\.?\)            # a)  a.)  iv)
        | NUMBER
      )(?=\s|\Z)
"""
_SPACE = r"[\s\ufeff]*+"  # files can begin with U+FEFF
_NUMBER = r"\d{1,3}(?:\.\d{1,3})*+\."  # 1.  1.2.  but no year


def _compiled(number: str) -> re.Pattern[str]:
    mark = _MARK.replace("NUMBER", number)
    return re.compile(rf"{_SPACE}(?:(?:{mark}){_SPACE})*+", re.VERBOSE)


_OPENING = _compiled(_NUMBER)

# Languages of which "1." is an ordinal too, as in "1. Mai" (by CLDR). There it is left to the
# splitter, which knows months: a number that it cuts off is copied.
_ORDINAL_LANGUAGES = re.compile(
    r"(?:bs|cs|da|de|et|eu|fi|fo|hr|hu|is|lb|lv|nb|nn|no|pl|sk|sl|sr|tr)(?:-|\Z)", re.IGNORECASE
)
_OPENING_OF_ORDINALS = _compiled("(?!)")


def opening_length(line: str, language: str) -> int:
    """How many characters of a line come before its sentences.

    Args:
        line: a line, or a text.
        language: BCP-47 code.
    """
    has_ordinals = _ORDINAL_LANGUAGES.match(language)
    opening = (_OPENING_OF_ORDINALS if has_ordinals else _OPENING).match(line)
    assert opening is not None, "the pattern matches nothing as well"
    return opening.end()
