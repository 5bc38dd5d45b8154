"""What models call their languages."""

from __future__ import annotations

import pytest

from model.languages import LanguageError, find_language

NLLB = ["eng_Latn", "deu_Latn", "zho_Hans", "zho_Hant", "arb_Arab", "kas_Arab", "kas_Deva"]
MBART = ["en_XX", "de_DE", "zh_CN", "pt_XX"]
OPUS = [">>deu<<", ">>por<<", ">>pt_BR<<", ">>cmn_Hans<<", ">>cmn_Hant<<"]


@pytest.mark.parametrize(
    ("tag", "names", "found"),
    [
        ("de", NLLB, "deu_Latn"),
        ("deu", NLLB, "deu_Latn"),
        ("de-Latn", NLLB, "deu_Latn"),
        ("zh-Hant", NLLB, "zho_Hant"),
        ("ar", NLLB, "arb_Arab"),
        ("ks-Deva", NLLB, "kas_Deva"),
        ("en", MBART, "en_XX"),
        ("de", MBART, "de_DE"),
        ("zh", MBART, "zh_CN"),
        ("de", OPUS, ">>deu<<"),
        ("pt", OPUS, ">>por<<"),
        ("pt-BR", OPUS, ">>pt_BR<<"),
        ("zh-Hans", OPUS, ">>cmn_Hans<<"),
        ("de-AT", ["__de__", "__en__"], "__de__"),
        ("nso", ["__ns__"], "__ns__"),
    ],
)
def test_a_language_is_found(tag: str, names: list[str], found: str) -> None:
    assert find_language(tag, names) == found


@pytest.mark.parametrize(
    ("tag", "names", "message"),
    [
        ("zh", NLLB, "could be any of zho_Hans, zho_Hant"),
        ("fr", NLLB, "no language 'fr'; there are arb_Arab, deu_Latn"),
        ("de", [], "no language 'de'"),
    ],
)
def test_none_or_several(tag: str, names: list[str], message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        find_language(tag, names)
