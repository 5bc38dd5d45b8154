"""Decides which sentences are copied instead of translated.

A sentence is translated if it has a word (between white space) that has a letter of the source
language and is not code: a URL, an e-mail address, a path or an identifier. For anything else, a
model that was trained on sentences invents a translation.
"""

from __future__ import annotations

import functools
import re
import unicodedata

_LATIN = "LATIN"
# The languages of each script; the keys are words in Unicode's names of characters. For a language
# that is not in this table or has several scripts, any letter counts.
_LANGUAGES = {
    _LATIN: "af br ca cs cy da de en eo es et eu fi fil fo fr fy ga gd gl ha hr ht hu id ig is it"
    " jv la lb lt lv mg mi mt nb nl nn no oc pl pt qu rm ro sk sl sm sn so sq st su sv sw tl tn tr"
    " vi wo xh yo zu",
    "CYRILLIC": "be bg ky mk ru tg uk",
    "GREEK": "el",
    "ARMENIAN": "hy",
    "GEORGIAN": "ka",
    "HEBREW": "he iw yi",
    "ARABIC": "ar fa ps ur",
    "DEVANAGARI": "hi mr ne",
    "BENGALI": "as bn",
    "GUJARATI": "gu",
    "TAMIL": "ta",
    "TELUGU": "te",
    "KANNADA": "kn",
    "MALAYALAM": "ml",
    "SINHALA": "si",
    "THAI": "th",
    "LAO": "lo",
    "KHMER": "km",
    "MYANMAR": "my",
    "ETHIOPIC": "am ti",
    "CJK": "ja ko yue zh",
    "HANGUL": "ko",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
}
# Scripts in a language code, as in "sr-Latn". For other scripts, any letter counts.
_SCRIPT_SUBTAGS = {"latn": _LATIN, "cyrl": "CYRILLIC", "arab": "ARABIC", "deva": "DEVANAGARI"}
_CHINESE_SUBTAGS = ("hans", "hant")

# Languages in which no letter but these is a word: one alone stands in a table.
_WITHOUT_LETTERS = frozenset(["de", "en"])
_LATIN_LETTER = re.compile("[A-Za-z]")
_PLAIN_WORD = re.compile(r"[A-Za-z][a-z]*+(?:['’][a-z]++)?[,.!?]?(?!\S)")  # begins nearly all texts

# Endings of hosts and files with a single dot; "Stop.it" only lacks a space.
_SUFFIXES = (
    "ai|app|at|be|ca|ch|co|com|de|dev|edu|es|eu|fr|gov|info|io|net|nl|org|pl|ru|se|uk|us"
    "|bash|bin|cfg|conf|cpp|css|csv|dll|doc|docx|exe|gif|git|go|gz|html?|ini|java|jpe?g|json|js|log"
    "|md|pdf|png|pptx?|py|rs|sh|sql|svg|tar|toml|ts|txt|xlsx?|xml|ya?ml|zip"
)

# A whole word, with quotation marks, brackets and punctuation around it. Possible words of a
# language don't match, and neither do words with letters other than Latin: Chinese continues
# without a space after a URL. A repeated part can't match the beginning of the next part, so that
# matching takes linear time on any input.
_CODE = re.compile(
    r"""
    (?=[!-\u024f\u2010-\u205e]*+\Z)
    [("'«»„“”‚‘<\[]*+
    (?: [A-Za-z][A-Za-z0-9+.-]*+://\S+                      # https://example.com/a?b=1
      | (?:mailto:|www\.)\S+
      | [\w.+-]++@[\w-]++(?:\.[\w-]++)*+                    # tom@example.com
      | @\w[\w.-]*+                                         # @tom
      | (?:[A-Za-z]:|~|\.{1,2})?[/\\][^\s"'»“”’>)\]]*+       # /etc/hosts  C:\temp  ./run.sh
      | [\w.-]++(?:\\[\w.-]++)++                            # temp\file
      | [\w.-]+(?:/[\w.-]+)*/[\w-]*+\.[A-Za-z]\w*+          # src/main.py
      | [\w-]{2,}+(?:\.[a-z][\w-]++)++(?::\d++(?:/\S*)?|/\S*)  # example.com/a  localhost.local:80
      | [\w-]{2,}+(?:\.[a-z][\w-]++){2,}+                    # www.example.com  os.path.join
      | [\w-]{2,}+\.(?:SUFFIX)                              # example.com  README.md
      | _*+[^\W_]++_++[^\W_]\w*+                            # foo_bar
      | [a-z]++(?:[A-Z][a-z0-9]++)++                        # getName
      | \w++(?:(?:\.|::)\w++)*+\(\)                         # run()  Path.open()
      | \w++(?:::\w++)++                                    # std::string
      | --[a-z][\w-]*+(?:=\S+)?                             # --help  --port=80
      | [$%]?\{++[^\s{}]++\}++ | %[\d$.+-]*+[A-Za-z] | \$[A-Za-z_]\w*+  # {name}  %s  $HOME
      | v\d++(?:\.\d++)*+                                   # v1.2
      | [A-Z]{1,3}(?=[-./:]?\d)(?:\d|[-./:]|(?<![A-Z])[A-Z]{1,4}(?![A-Z]))++   # A4  ISO-8859-1
      | (?=\D*\d\D*\d)[\da-fA-F]{7,}+(?:-[\da-fA-F]{4,}+)*+    # 3fa85f64-5717-4562-b3fc-2c96
    )
    [)"'«»„“”’‘>\].,;:!?…]*
    """.replace("SUFFIX", _SUFFIXES),
    re.VERBOSE,
)


def is_translatable(text: str, language: str) -> bool:
    """Whether a sentence has anything that a model of this language can translate.

    Args:
        text: a sentence.
        language: BCP-47 code of the source language.
    """
    if len(text) == 1 and text not in "aI" and language[:2] in _WITHOUT_LETTERS:
        return False
    scripts = scripts_of(language)
    if _LATIN in scripts and _PLAIN_WORD.match(text):
        return True
    return any(_has_letter(word, scripts) and not _CODE.fullmatch(word) for word in text.split())


@functools.lru_cache(64)
def scripts_of(language: str) -> tuple[str, ...]:
    """Words in the Unicode names of a language's letters; empty if any letter counts."""
    subtag, *others = language.lower().split("-")
    for other in others:
        if len(other) == 4 and other.isalpha() and other not in _CHINESE_SUBTAGS:
            return (_SCRIPT_SUBTAGS[other],) if other in _SCRIPT_SUBTAGS else ()
    return tuple(script for script, codes in _LANGUAGES.items() if subtag in codes.split())


def _has_letter(word: str, scripts: tuple[str, ...]) -> bool:
    if _LATIN in scripts and _LATIN_LETTER.search(word):
        return True  # the most common case
    return any(character.isalpha() and _is_of(character, scripts) for character in word)


@functools.lru_cache(4096)
def _is_of(letter: str, scripts: tuple[str, ...]) -> bool:
    if not scripts:
        return True
    plain = unicodedata.normalize("NFKC", letter)  # wide, bold and similar forms
    return any(script in unicodedata.name(part, "") for part in plain for script in scripts)
