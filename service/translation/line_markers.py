"""Line markers: the indentation and markers before the sentences of a line.

A marker (bullet, number, check box, heading, quote) is copied, like white space: a model that was
trained on sentences drops it or turns it into words. White space or the end of the line follows a
marker, so "-5 degrees", "1.5 litres", "*emphasis*" and "#1" have none; but a dash or a bullet may
touch a short first word ("-He"), which the model would leave as it is. Of a name such as
"I. Newton", the initial is copied too.
"""

from __future__ import annotations

import re

# Possessive quantifiers, for linear time on any input. No capturing groups, because with possessive
# repetition they fail in Python 3.11.
_MARK = r"""
      >(?=[\s>"'„“]|[^\W\d_]|\Z)                   # block quote, with or without a space after it
    | [-–—‐−•‣⁃∙·◦▪●■►▶▸➤✓✔✗✘]                     # dash or bullet at a short first word
      (?=(?:[A-ZÀ-ÖØ-ÞΑ-ΩА-ЯЁ][^\W\d_A-Z]{1,2}|I),?[\ '’](?![\s-]))
    | (?: -++|–++|—++|\*++|\+++|=++|\#++|~++|_++   # bullet, dash of a dialogue, heading, rule
        | [•‣⁃∙·◦▪▫●○■□►▶▸➤✓✔✗✘☐☑☒]              # bullet, check box
        | \[[ xX]?\]                              # check box
        | \d{1,3}(?:\.\d{1,3})*+\.?\)             # 1)  1.)  1.2)
        | \((?:\d{1,3}|[a-z]|[ivx]{2,5})\)         # (1)  (a)  (iv), but no word: "(I) think so"
        | (?:[^\W\d_]|[ivx]{2,5})\.?\)            # a)  a.)  iv)
        | (?:[A-Za-z]|[ivx]{2,5}|[IVX]{2,5})\.(?!\s[^\W\d_]\.(?!\)))  # a.  I.  iv.  but no "z. B."
        | NUMBER
      )(?=\s|\Z)
"""
_SPACE = r"[\s\ufeff]*+"  # files can begin with U+FEFF
_NUMBER = r"\d{1,3}(?:\.\d{1,3})*+\."  # 1.  1.2.  but no year


def _compiled(number: str) -> re.Pattern[str]:
    mark = _MARK.replace("NUMBER", number)
    return re.compile(rf"{_SPACE}(?:(?:{mark}){_SPACE})*+", re.VERBOSE)


_OPENING = _compiled(_NUMBER)

# Languages (by CLDR) in which "1." is also an ordinal, as in "1. Mai". For these, the segmenter
# decides, since it knows months: a number that it splits off is copied.
_ORDINAL_LANGUAGES = re.compile(
    r"(?:bs|cs|da|de|et|eu|fi|fo|hr|hu|is|lb|lv|nb|nn|no|pl|sk|sl|sr|tr)(?:-|\Z)", re.IGNORECASE
)
_OPENING_OF_ORDINALS = _compiled("(?!)")


def opening_length(line: str, language: str) -> int:
    """The number of characters before the sentences of a line.

    Args:
        line: a line, or a text.
        language: BCP-47 code of the text.
    """
    has_ordinals = _ORDINAL_LANGUAGES.match(language)
    opening = (_OPENING_OF_ORDINALS if has_ordinals else _OPENING).match(line)
    assert opening is not None, "the pattern matches nothing as well"
    return opening.end()
