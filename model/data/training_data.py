"""Makes token ids of a recipe's corpora: reading, filters and the vocabulary."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.bundle.tokenizer import Tokenizer
from model.data.corpus import (
    Batch,
    CorpusError,
    Encoded,
    EncodedText,
    ParallelText,
    concatenated,
    interleave,
    plan_batches,
    read_parallel,
)
from model.data.mixture import Draws, plan_draws
from model.data.recipe import STATE_FILE, Recipe
from model.data.recipe_sections import Corpus
from model.data.vocabulary import describe_text, load_vocabulary
from model.data.word_alignment import link_mask, token_links

logger = logging.getLogger(__name__)

_SKIPPED_LINES_SHOWN = 5
_MEASURED_PAIRS = 20_000
_SHARE_OF_LONG = 0.001  # of the pairs, which are enough to learn from


@dataclass(frozen=True)
class ValidationSet:
    """A validation corpus: its text for BLEU, its token ids for the loss."""

    name: str
    text: ParallelText
    encoded: EncodedText


@dataclass(frozen=True)
class TrainingData:
    """The data that a run learns from, and the validation data.

    Attributes:
        tokenizer: the joint vocabulary.
        train: the training text, repeats included.
        validation: one set a validation corpus, at most `validation.max_sentences` each.
        recipe: the recipe of the run.
        draws: pairs of `train` that each epoch takes; None without a mixture, for all.
    """

    tokenizer: Tokenizer
    train: ParallelText
    validation: Sequence[ValidationSet]
    recipe: Recipe
    draws: Draws | None = None

    def epoch(self, number: int) -> EpochBatches:
        """The batches of epoch `number` (from 0), always the same for the same recipe."""
        recipe = self.recipe
        train = _text_of_epoch(self.train, self.draws, number)
        seed = recipe.optimization.seed
        alpha = recipe.vocabulary.sampling_alpha
        if alpha > 0.0:
            seeds = np.random.SeedSequence([seed, number]).generate_state(2)
            encoded = EncodedText(
                self.tokenizer.sample_batch(train.sources, alpha=alpha, seed=int(seeds[0])),
                self.tokenizer.sample_batch(train.targets, alpha=alpha, seed=int(seeds[1])),
            )
        else:
            encoded = encode(self.tokenizer, train)
        return self.batches(encoded, train, number)

    @property
    def num_pairs(self) -> int:
        """Pairs of the training text, repeats included."""
        return len(self.train)

    def fingerprint(self) -> str:
        """The sha256 of the training text."""
        return str(describe_text(interleave(self.train))["sha256"])

    def batches(self, encoded: Encoded, train: ParallelText, number: int) -> EpochBatches:
        """The pairs of epoch `number` that are short enough, in batches.

        Args:
            encoded: the pairs as token ids.
            train: as text; may be empty.
            number: number of the epoch, from 0.
        """
        recipe = self.recipe
        kept = encoded.not_longer_than(recipe.data.max_tokens)
        if len(kept) < len(encoded) and number == 0:
            logger.info(
                "%d training pairs have a side of over %d tokens and are left out",
                len(encoded) - len(kept),
                recipe.data.max_tokens,
            )
        encoded = encoded.at(kept)
        generator = np.random.default_rng([recipe.optimization.seed, number])
        plan = plan_batches(encoded.lengths(), recipe.optimization.batch_tokens, generator)
        text = train.at(kept) if len(train) else train
        return EpochBatches(encoded, plan, self.tokenizer, text)

    @functools.cached_property
    def trained_length(self) -> int:
        """The source length, EOS counted, that one training pair in a thousand reaches.

        Training has shown enough examples up to this length; longer texts are better split. Counted
        in pairs of the first epoch, evenly spread.
        """
        text = _evenly(_text_of_epoch(self.train, self.draws, 0), _MEASURED_PAIRS)
        lengths = encode(self.tokenizer, text).lengths()
        longest = self.recipe.data.max_tokens
        kept = lengths[lengths.max(axis=1) <= longest, 0]
        rank = max(1, round(_SHARE_OF_LONG * len(kept)))
        return max(2, int(np.sort(kept)[-rank])) if len(kept) else longest


@dataclass(frozen=True)
class EpochBatches:
    """The batches of one epoch, made when they are asked for.

    Attributes:
        encoded: the pairs as token ids.
        plan: indices of each batch's pairs.
        text: the pairs as text, with their alignments where those were read.
    """

    encoded: Encoded
    plan: Sequence[np.ndarray]
    tokenizer: Tokenizer
    text: ParallelText

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, index: int) -> Batch:
        return self.encoded.batch(
            self.plan[index],
            pad_id=self.tokenizer.pad_id,
            bos_id=self.tokenizer.bos_id,
            eos_id=self.tokenizer.eos_id,
        )

    def __iter__(self) -> Iterator[Batch]:
        return (self[i] for i in range(len(self)))

    def with_links(self, index: int) -> Batch:
        """Batch `index` with the alignments of its pairs."""
        batch, text = self[index], self.text.at(self.plan[index])
        lines = zip(text.sources, text.targets, text.alignments, strict=True)
        links = [list(token_links(self.tokenizer, *line)) for line in lines]
        num_steps, num_sources = batch.target_ids.shape[1] - 1, batch.source_ids.shape[1]
        return replace(batch, links=link_mask(links, num_steps, num_sources))


def encode(tokenizer: Tokenizer, text: ParallelText) -> EncodedText:
    """The most likely segmentation of both sides."""
    return EncodedText(tokenizer.encode_batch(text.sources), tokenizer.encode_batch(text.targets))


def load_training_data(recipe: Recipe) -> TrainingData:
    """Read the corpora of `recipe` and its vocabulary, training that first if there is none yet.

    The vocabulary is `tokenizer.model` in the run's output folder, or that of `init_from`.

    Raises:
        CorpusError: a corpus cannot be used.
        TokenizerError: the vocabulary cannot be trained or read.
    """
    lowercase = recipe.data.lowercase
    validation = {corpus.name: _read(corpus, lowercase) for corpus in recipe.data.valid}
    held_out = {s for text in validation.values() for s in text.sources}
    aligned = recipe.alignment.weight > 0.0
    distinct = {corpus.name: _read(corpus, lowercase, aligned) for corpus in recipe.data.train}
    if recipe.data.drop_validation_sources:
        distinct = {name: _without(text, held_out, name) for name, text in distinct.items()}
    repeated = [distinct[c.name] for c in recipe.data.train for _ in range(c.repeat)]
    train = concatenated(repeated)
    draws = _draws(recipe, repeated)
    # The vocabulary is for the text that the model sees.
    texts = distinct.values() if draws is None else [_text_of_epoch(train, draws, 0)]
    tokenizer = _load_tokenizer(recipe, texts)
    limit = recipe.validation.max_sentences
    sampled = {name: _evenly(text, limit) for name, text in validation.items()}
    return TrainingData(
        tokenizer,
        train,
        [ValidationSet(name, text, encode(tokenizer, text)) for name, text in sampled.items()],
        recipe,
        draws,
    )


def _text_of_epoch(train: ParallelText, draws: Draws | None, number: int) -> ParallelText:
    return train if draws is None else train.at(draws.epoch(number))


def _draws(recipe: Recipe, corpora: Sequence[ParallelText]) -> Draws | None:
    mixture = recipe.data.mixture
    if mixture is None:
        return None
    for corpus, text in zip(recipe.data.train, corpora, strict=True):
        if not text:
            raise CorpusError(f"{corpus.source}: every pair is in a validation corpus")
    draws = plan_draws(
        corpora,
        [corpus.weight for corpus in recipe.data.train],
        temperature=mixture.temperature,
        epoch_pairs=mixture.epoch_pairs,
        seed=recipe.optimization.seed,
    )
    for corpus, size, count, share in zip(
        recipe.data.train, draws.sizes, draws.counts, draws.shares, strict=True
    ):
        logger.info(
            "%s: %.1f %% of the text, %d pairs an epoch of its %d",
            corpus.name,
            100.0 * share,
            count,
            size,
        )
    return draws


def _read(corpus: Corpus, lowercase: bool, aligned: bool = False) -> ParallelText:
    alignment = corpus.alignment if aligned else None
    text = read_parallel(corpus.source, corpus.target, lowercase=lowercase, alignment=alignment)
    for line in text.skipped[:_SKIPPED_LINES_SHOWN]:
        logger.warning("left out: %s", line)
    if len(text.skipped) > _SKIPPED_LINES_SHOWN:
        logger.warning("left out of %s in all: %d pairs", corpus.name, len(text.skipped))
    return text


def _without(text: ParallelText, held_out: set[str], name: str) -> ParallelText:
    kept = [i for i, source in enumerate(text.sources) if source not in held_out]
    if len(kept) < len(text):
        logger.info(
            "%s: %d pairs left out, their source is in a validation corpus",
            name,
            len(text) - len(kept),
        )
    return text.at(np.array(kept, np.int64))


def _evenly(text: ParallelText, limit: int) -> ParallelText:
    if not limit or len(text) <= limit:
        return text
    return text.at(np.arange(limit) * len(text) // limit)


def _load_tokenizer(recipe: Recipe, texts: Iterable[ParallelText]) -> Tokenizer:
    has_state = (recipe.output / STATE_FILE).exists()
    return load_vocabulary(recipe, list(texts), has_state=has_state)
