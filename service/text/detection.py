"""Detects the languages of texts.

py3langid knows 139 languages and needs some 80 MB, so it is loaded by the first text. It runs in a
thread: loading takes most of a second.
"""

from __future__ import annotations

import functools
import lzma
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model.bundle.languages import LanguageError, find_language
from service.common.fairness import in_thread

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

MAX_LANGUAGES = 5
"""Kept of those that the detector knows: all 139, of a thousand texts, make the garbage collector
stop the server for 0.3 s."""

UNDETERMINED = "und"
"""BCP-47's code for an unknown language."""

# Later characters hardly change the answer. Two thousand take a few milliseconds at the most.
_MAX_CHARACTERS = 2000
# Of these, with markup.
_MAX_RAW_CHARACTERS = 8000
# Detected at a time, before texts of other clients get their turn.
_PORTION = 16
# A language that is not served, and is likelier than all others together, is taken at its word.
# Below that, short texts of a served language would be refused: of two words, every fifth looks
# more like another language.
_CLEAR = 0.5
# So is one of several that are not served, where those that are served are out of the question: in
# Russian, the probability is shared by the languages in Cyrillic. Of 3,000 fragments of one to four
# words of a served language, none was below this, few below a tenth.
_IMPROBABLE = 0.01
# A text without a single known feature gets the same probability for each language (two have it
# twice).
_UNIFORM_RATIO = 2.01
# Languages that are written alike, or nearly so, by the one that a server is likelier to have.
_FAMILIES = {
    **{"yue": "zh", "wuu": "zh", "arz": "ar", "ary": "ar", "nn": "no", "uzs": "uz", "sdh": "ku"},
    **{"hbo": "he", "grc": "el", "pcm": "en"},
}
_NO_LANGUAGE = "zxx"
# Stops at the next "<", so it takes linear time.
_TAG = re.compile(r"</?[A-Za-z!][^<>]*>")


@dataclass(frozen=True)
class LanguageGuess:
    """A language that a text may be in.

    Attributes:
        code: BCP-47; the server's own, if it is served.
        confidence: its probability among all languages that the detector knows.
        is_served: whether it is one of the languages that were asked for.
    """

    code: str
    confidence: float
    is_served: bool


class LanguageDetector:
    """Detects the languages of texts, fairly among clients."""

    async def detect(
        self, texts: Sequence[str], served: Sequence[str]
    ) -> list[Sequence[LanguageGuess]]:
        """The languages that each text may be in, the likeliest first.

        Args:
            texts: texts of any length; the beginning decides.
            served: the BCP-47 codes of the languages that are served.

        Returns:
            The languages of each text; none if the text shows nothing of its language.
        """
        codes = tuple(served)
        found: list[Sequence[LanguageGuess]] = []
        for start in range(0, len(texts), _PORTION):
            portion = texts[start : start + _PORTION]
            found += await in_thread(
                lambda portion=portion: [_rank(text, codes) for text in portion]  # type: ignore[misc]
            )
        return found


def _rank(text: str, served: tuple[str, ...]) -> Sequence[LanguageGuess]:
    beginning = _beginning(text)
    if not any(map(str.isalpha, beginning)):  # the detector has an opinion on digits, too
        return ()
    return ranked(dict(_identifier().rank(beginning)), served)


def ranked(probabilities: Mapping[str, float], served: tuple[str, ...]) -> Sequence[LanguageGuess]:
    """The likeliest languages in the server's codes, best first, and all served languages.

    Args:
        probabilities: probabilities of all languages that the detector knows, by ISO 639 code.
        served: BCP-47 codes.

    Returns:
        The languages; none if all are equally likely.
    """
    if max(probabilities.values()) <= _UNIFORM_RATIO * min(probabilities.values()):
        return ()
    codes = _codes(tuple(probabilities), served)
    sums: dict[str, float] = {}
    for label, probability in probabilities.items():
        if label != _NO_LANGUAGE:
            sums[codes[label]] = sums.get(codes[label], 0.0) + probability
    order = sorted(sums, key=lambda code: -sums[code])
    order = order[:MAX_LANGUAGES] + [code for code in order[MAX_LANGUAGES:] if code in served]
    return [LanguageGuess(code, sums[code], code in served) for code in order]


def chosen(languages: Sequence[LanguageGuess]) -> LanguageGuess:
    """The language that a text is taken to be in, of those that `LanguageDetector.detect` returns.

    This is the likeliest served language. If another language is clearly likelier than all others,
    or than the served ones together, it is that one, which the server has to refuse. `UNDETERMINED`
    if the text shows nothing of its language.
    """
    if not languages:
        return LanguageGuess(UNDETERMINED, 0.0, False)
    best = languages[0]
    if best.is_served or best.confidence >= _CLEAR:
        return best
    served = [language for language in languages if language.is_served]
    if sum(language.confidence for language in served) < _IMPROBABLE * best.confidence:
        return best
    return served[0] if served else best


def _beginning(text: str) -> str:
    """The beginning of a text, without tags, which is enough to detect its language."""
    return _TAG.sub(" ", text[:_MAX_RAW_CHARACTERS])[:_MAX_CHARACTERS]


@functools.lru_cache(64)
def _codes(labels: tuple[str, ...], served: tuple[str, ...]) -> Mapping[str, str]:
    """The served code for each of the detector's codes; codes without one stay as they are."""
    found = {}
    for label in labels:
        names = (label, _FAMILIES.get(label, label))
        found[label] = next((code for name in names if (code := _served(name, served))), names[-1])
    return found


def _served(label: str, served: tuple[str, ...]) -> str:
    """The served language with this code; of several variants, the first. "" if there is none."""
    try:
        return find_language(label, served)
    except LanguageError as exc:
        return exc.choices[0] if exc.choices else ""


@functools.cache
def _identifier() -> LanguageIdentifier:
    """The detector, loaded once in a process.

    Like `from_model_file`, which copies 39 MB in one call that holds Python's lock.
    """
    import numpy as np
    from py3langid.langid import MODEL_DIR, MODEL_FILE, LanguageIdentifier

    with tempfile.TemporaryFile() as file:
        with lzma.open(MODEL_DIR / MODEL_FILE) as packed:
            shutil.copyfileobj(packed, file, length=1 << 20)
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            return LanguageIdentifier(
                arrays["ptc"],
                arrays["pc"],
                arrays["classes"].tolist(),
                memoryview(arrays["nextmove"]),
                arrays["out_feat"].tolist(),
                norm_probs=True,
                tk_row=memoryview(arrays["nextmove_row"]),
            )
