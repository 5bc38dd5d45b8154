"""How good a model is: translate a test set and score it with sacreBLEU (Post, 2018)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from model.corpus import CorpusError, read_lines
from model.limits import default_max_new_tokens
from model.search import BeamOptions, beam_search, greedy_search
from model.tokenizer import Tokenizer
from model.transformer import Transformer

DEFAULT_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class TestSet:
    """Source sentences and one reference for each, in order.

    Raises:
        CorpusError: from `read`, as it says.
    """

    __test__ = False  # pytest: this is no test, for all its name

    sources: Sequence[str]
    references: Sequence[str]

    @classmethod
    def read(cls, source: Path, reference: Path) -> TestSet:
        """Reads two aligned files, one sentence a line. Empty lines are kept: order is what counts.

        Raises:
            CorpusError: unreadable, not UTF-8, without a line, or of unequal line counts.
        """
        sources, references = read_lines(source), read_lines(reference)
        if len(sources) != len(references):
            raise CorpusError(
                f"{source} has {len(sources)} lines but {reference} has {len(references)}"
            )
        if not sources:
            raise CorpusError(f"{source}: no line to translate")
        return cls(sources, references)


@dataclass(frozen=True)
class Score:
    """A figure in percent, and sacreBLEU's signature: all that one needs to compute it again."""

    score: float
    signature: str


@dataclass(frozen=True)
class Report:
    """What a set of translations is worth.

    Attributes:
        num_sentences: lines that were compared.
        bleu: sacreBLEU on plain text, tokenised by its 13a rules.
        chrf: chrF2 on plain text.
        moses_bleu: lower-cased BLEU on Moses-tokenised text, as papers before sacreBLEU give it;
            only to be put beside such papers.
    """

    num_sentences: int
    bleu: Score
    chrf: Score
    moses_bleu: Score | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; what was not asked for is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    moses_language: str | None = None,
) -> Report:
    """Score translations against one reference each.

    Args:
        hypotheses: plain text, one a reference.
        references: plain text.
        lowercase: compare without regard to case ("case:lc" in the signature).
        moses_language: target language code; adds `moses_bleu`.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} translations for {len(references)} references")
    bleu = sacrebleu.BLEU(lowercase=lowercase, tokenize="13a")
    chrf = sacrebleu.CHRF(lowercase=lowercase)
    moses = moses_language and _moses_bleu(hypotheses, references, moses_language)
    return Report(
        num_sentences=len(references),
        bleu=_score(bleu, hypotheses, references),
        chrf=_score(chrf, hypotheses, references),
        moses_bleu=moses or None,
    )


def translate_sentences(
    model: Transformer,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    options: BeamOptions | None = None,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
    on_progress: Callable[[int], None] | None = None,
) -> list[str]:
    """Translate sentences one by one in meaning, in batches in fact; order is kept.

    Args:
        model: in evaluation mode; its device is used.
        tokenizer: the model's.
        sentences: blank ones come back as they are, as the service does it. One with more tokens
            than the model has positions is cut.
        options: a beam search; None is greedy.
        batch_tokens: source tokens in a batch, hypotheses and padding counted.
        on_progress: called after each batch with the number of sentences that it had.
    """
    asked = [index for index, text in enumerate(sentences) if text.strip()]
    longest = model.config.max_positions - 1
    sources = [
        [*ids[:longest], model.config.eos_id]
        for ids in tokenizer.encode_batch([sentences[index] for index in asked])
    ]
    outputs = translate_ids(
        model,
        sources,
        options=options,
        batch_tokens=batch_tokens,
        on_progress=on_progress,
    )
    translations = list(sentences)
    for index, ids in zip(asked, outputs, strict=True):
        translations[index] = tokenizer.decode(ids)
    return translations


def translate_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    *,
    options: BeamOptions | None = None,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
    on_progress: Callable[[int], None] | None = None,
) -> list[tuple[int, ...]]:
    """The best translation of every source, as token ids without BOS and EOS.

    Args:
        model: in evaluation mode; its device is used.
        sources: token ids, each ending with EOS.
        options: a beam search; None is greedy.
        batch_tokens: source tokens in a batch, hypotheses and padding counted.
        on_progress: called after each batch with the number of sentences that it had.

    Raises:
        ValueError: a source is longer than the model's positions.
    """
    device = model.target_embedding.weight.device
    outputs: list[tuple[int, ...]] = [()] * len(sources)
    rows_each = options.beam_size if options else 1
    for batch in _batches([len(ids) for ids in sources], batch_tokens // rows_each):
        width = len(sources[batch[-1]])
        padded = [
            [*sources[index], *[model.config.pad_id] * (width - len(sources[index]))]
            for index in batch
        ]
        source_ids = torch.tensor(padded, device=device)  # [B, S]
        lengths = torch.tensor([len(sources[index]) for index in batch], device=device)
        mask = torch.arange(width, device=device) < lengths.unsqueeze(1)
        limits = [
            default_max_new_tokens(len(sources[index]), model.config.max_positions)
            for index in batch
        ]
        if options is None:
            found = greedy_search(model, source_ids, mask, limits)
        else:
            found = [best[0] for best in beam_search(model, source_ids, mask, options, limits)]
        for index, hypothesis in zip(batch, found, strict=True):
            outputs[index] = hypothesis.token_ids
        if on_progress is not None:
            on_progress(len(batch))
    return outputs


def _batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Indices in batches, shortest first, so that little is padding; at least one a batch."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > token_budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _score(
    metric: sacrebleu.BLEU | sacrebleu.CHRF, hypotheses: Sequence[str], references: Sequence[str]
) -> Score:
    value = metric.corpus_score(hypotheses, [references]).score
    return Score(float(value), str(metric.get_signature()))


def _moses_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """What `multi-bleu.perl` gave on text that was normalised, lower-cased and tokenised."""
    # Imported here: only this figure needs it, and training validates without.
    import sacremoses

    normalizer = sacremoses.MosesPunctNormalizer(lang=language)
    tokenizer = sacremoses.MosesTokenizer(lang=language)

    def tokenize(text: str) -> str:
        return str(tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True))

    # `force`: the text is tokenised on purpose, so no warning that it looks so.
    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    score = _score(bleu, [tokenize(text) for text in hypotheses], [*map(tokenize, references)])
    signature = f"{score.signature}|moses:{language},lc,sacremoses:{sacremoses.__version__}"
    return Score(score.score, signature)
