"""Translating whole test sets, and scoring them."""

from __future__ import annotations

from pathlib import Path

import pytest
import sacrebleu

from model.bundle.tokenizer import Tokenizer
from model.data.corpus import CorpusError
from model.evaluation.evaluation import translate_ids, translate_sentences
from model.evaluation.scoring import TestSet, score_translations
from model.evaluation.search import BeamOptions
from model.network.transformer import Transformer
from tests.factories import SENTENCES, random_model, random_sources, tiny_config, tiny_tokenizer


@pytest.fixture(scope="module")
def model() -> Transformer:
    return random_model(tiny_config()).double()  # batches must not differ by rounding


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize("options", [None, BeamOptions(3)], ids=["greedy", "beam"])
def test_the_size_of_batches_changes_nothing(
    model: Transformer, options: BeamOptions | None
) -> None:
    sources = random_sources(model.config, 12, max_length=9)
    done: list[int] = []
    alone = translate_ids(model, sources, options=options, batch_tokens=1, on_progress=done.append)
    assert done == [1] * 12
    for batch_tokens in (30, 10_000):
        assert translate_ids(model, sources, options=options, batch_tokens=batch_tokens) == alone
    assert translate_ids(model, sources[::-1], options=options) == alone[::-1]
    assert len(set(alone)) > 6  # the order would not show if all were the same


@pytest.mark.parametrize("options", [None, BeamOptions(5)], ids=["greedy", "beam"])
def test_batches_keep_to_their_budget(model: Transformer, options: BeamOptions | None) -> None:
    sources = random_sources(model.config, 20, max_length=9)
    sizes: list[int] = []
    translate_ids(model, sources, options=options, batch_tokens=60, on_progress=sizes.append)
    assert sum(sizes) == 20
    ordered = sorted(map(len, sources))
    hypotheses = options.beam_size if options else 1
    end = 0
    for size in sizes:
        end += size
        assert size == 1 or size * ordered[end - 1] * hypotheses <= 60
    if options is None:
        assert max(sizes) > 1


def test_sentences_keep_their_order_and_blank_ones_stay(
    model: Transformer, tokenizer: Tokenizer
) -> None:
    texts = [*SENTENCES[:3], "", *SENTENCES[3:], "  \t", SENTENCES[0]]
    found = translate_sentences(model, tokenizer, texts)
    for text, translation in zip(texts, found, strict=True):
        if text.strip():
            ids = [*tokenizer.encode(text), model.config.eos_id]
            assert translation == tokenizer.decode(translate_ids(model, [ids])[0])
        else:
            assert translation == text
    assert len(set(found)) > 4  # the order would not show if all were the same


def test_a_sentence_beyond_the_positions_is_cut(model: Transformer, tokenizer: Tokenizer) -> None:
    long = " ".join(SENTENCES * 10)
    assert len(tokenizer.encode(long)) > model.config.max_positions
    (found,) = translate_sentences(model, tokenizer, [long])
    cut = [*tokenizer.encode(long)[: model.config.max_positions - 1], model.config.eos_id]
    assert found == tokenizer.decode(translate_ids(model, [cut])[0])


# --- scores ---------------------------------------------------------------------------------------

REFERENCES = ["Der Hund läuft.", "Zwei Männer spielen Gitarre, und eine Frau liest ein Buch."]


def test_scores_are_sacrebleus() -> None:
    hypotheses = ["Der Hund läuft schnell.", "Zwei Männer spielen Gitarre; eine Frau liest."]
    report = score_translations(hypotheses, REFERENCES)
    assert report.num_sentences == 2
    assert report.bleu.score == sacrebleu.corpus_bleu(hypotheses, [REFERENCES]).score
    assert report.chrf.score == sacrebleu.corpus_chrf(hypotheses, [REFERENCES]).score
    assert 0 < report.bleu.score < report.chrf.score < 100
    assert "|case:mixed|" in report.bleu.signature
    assert "|tok:13a|" in report.bleu.signature
    assert f"version:{sacrebleu.__version__}" in report.bleu.signature
    assert "nc:6|nw:0" in report.chrf.signature
    assert set(report.to_dict()) == {"num_sentences", "bleu", "chrf"}


def test_lowercase_forgives_case_and_says_so() -> None:
    shouted = [text.upper() for text in REFERENCES]
    assert score_translations(shouted, REFERENCES).bleu.score < 50
    forgiving = score_translations(shouted, REFERENCES, lowercase=True)
    assert forgiving.bleu.score == pytest.approx(100)
    assert forgiving.chrf.score == pytest.approx(100)
    assert "|case:lc|" in forgiving.bleu.signature


def test_moses_bleu_compares_lowercased_tokens() -> None:
    tokenized = ["DER Hund läuft .", "zwei Männer spielen Gitarre , und eine Frau liest ein Buch ."]
    report = score_translations(tokenized, REFERENCES, moses_language="de")
    assert report.moses_bleu is not None
    assert report.moses_bleu.score == pytest.approx(100)
    assert report.bleu.score < 100
    assert "tok:none" in report.moses_bleu.signature
    assert "moses:de,lc" in report.moses_bleu.signature
    # By hand: of 8 words against 8, unigrams match 7, bigrams 5, trigrams 3, 4-grams 2.
    report = score_translations(["a b c d e x g h"], ["a b c d e f g h"], moses_language="de")
    by_hand = 100 * (7 / 8 * 5 / 7 * 3 / 6 * 2 / 5) ** 0.25
    assert report.moses_bleu is not None
    assert report.moses_bleu.score == pytest.approx(by_hand)


def test_every_translation_needs_its_reference() -> None:
    with pytest.raises(ValueError, match="1 translations for 2 references"):
        score_translations(["one"], REFERENCES)


def test_a_test_set_keeps_empty_lines_and_counts(tmp_path: Path) -> None:
    source, reference = tmp_path / "s", tmp_path / "r"
    source.write_text("one\n\nthree\n")
    reference.write_text("eins\n\ndrei\n")
    assert TestSet.read(source, reference).sources == ["one", "", "three"]
    reference.write_text("eins\n\n")
    with pytest.raises(CorpusError, match=r"s has 3 lines but .*r has 2"):
        TestSet.read(source, reference)
    source.write_text("")
    reference.write_text("")
    with pytest.raises(CorpusError, match="s: no line"):
        TestSet.read(source, reference)
    reference.write_bytes(b"gut\n\xff\n")
    with pytest.raises(CorpusError, match="r:2: not UTF-8"):
        TestSet.read(source, reference)
    with pytest.raises(CorpusError, match="nowhere"):
        TestSet.read(tmp_path / "nowhere", reference)
