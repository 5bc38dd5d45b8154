"""The names that models use for their languages."""

from __future__ import annotations

import pytest

from model.bundle.languages import LanguageError, find_language, language_tags

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


def all_names() -> list[list[str]]:
    from transformers.models.mbart50 import tokenization_mbart50
    from transformers.models.nllb import tokenization_nllb

    from export.huggingface.vocabularies import _M2M_LANGUAGES as M2M_LANGUAGES

    m2m = [f"__{code}__" for code in M2M_LANGUAGES["m2m100"].split()]
    opus = [*OPUS, ">>ara<<", ">>arb<<", ">>srp_Cyrl<<", ">>srp_Latn<<", ">>fil<<", ">>tgl<<"]
    return [
        tokenization_nllb.FAIRSEQ_LANGUAGE_CODES,
        tokenization_mbart50.FAIRSEQ_LANGUAGE_CODES,
        m2m,
        opus,
    ]


def test_every_name_has_a_tag_and_every_tag_a_name() -> None:
    for names in all_names():
        tags = language_tags(names)
        assert list(tags.values()) == names
        for tag, name in tags.items():
            assert find_language(tag, tags) == tag
            assert find_language(name, tags) == tag
            assert find_language(tag, names) == name


@pytest.mark.parametrize(
    ("names", "tags"),
    [
        (NLLB, ["en", "de", "zh-Hans", "zh-Hant", "ar", "ks-Arab", "ks-Deva"]),
        (MBART, ["en", "de", "zh", "pt"]),
        (OPUS, ["de", "pt", "pt-BR", "zh-Hans", "zh-Hant"]),
        ([">>ara<<", ">>arb<<", ">>arb_Latn<<"], ["ar", "arb", "arb-Latn"]),
        (["arb_Latn", "arb_Arab"], ["ar-Latn", "ar"]),
        ([">>pt_BR<<", ">>pt_br<<", ">>pt<<"], ["pt-BR", "pt"]),
        ([">>no code<<", ">>1<<", ">>deu<<"], ["de"]),
        (["__ns__", "__zh__", "__iw__"], ["nso", "zh", "he"]),
    ],
)
def test_tags_are_as_short_as_they_can_be(names: list[str], tags: list[str]) -> None:
    assert list(language_tags(names)) == tags


@pytest.mark.parametrize(
    ("tag", "tags", "found"),
    [
        ("no", ["nb", "nn"], "nb"),
        ("nb", ["no"], "no"),
        ("fil", ["tl"], "tl"),
        ("arb", ["ar", "arb"], "arb"),
        ("ar-EG", ["ar", "ar-Latn"], "ar"),
        ("sr-Latn-RS", ["sr-Cyrl", "sr-Latn"], "sr-Latn"),
        ("ZH-hant", ["zh-Hans", "zh-Hant"], "zh-Hant"),
        ("zh-CN", ["zh-Hans", "zh-Hant"], "zh-Hans"),
        ("zh", ["zh-Hans", "en"], "zh-Hans"),
    ],
)
def test_tags_of_requests(tag: str, tags: list[str], found: str) -> None:
    assert find_language(tag, tags) == found
