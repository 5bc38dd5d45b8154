"""The sections of a recipe: their fields, limits and defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from model.bundle.tokenizer import MAX_SENTINELS


class Section(BaseModel):
    """A table of a recipe. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Corpus(Section):
    """One pair of aligned files, relative to the data root.

    Attributes:
        name: name in reports.
        source: file with the source text.
        target: file with the target text.
        repeat: passes over the corpus in one epoch.
        weight: factor on the corpus's share of a mixture (`data.mixture`).
    """

    name: str
    source: Path
    target: Path
    repeat: int = Field(default=1, ge=1, le=100)
    weight: float = Field(default=1.0, gt=0.0, le=1000.0)

    @property
    def alignment(self) -> Path:
        """The links of its words (`model.data.word_alignment`), if there are any."""
        return self.source.with_suffix(".align")


class Languages(Section):
    """The two sides.

    Attributes:
        source, target: ISO 639-1 code, such as "en", perhaps with a region, as in "pt-BR".
    """

    source: str = Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]+)*$")
    target: str = Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]+)*$")


class Mixture(Section):
    """Corpora by temperature instead of by size; see `model.data.mixture`.

    Attributes:
        temperature: 1 draws corpora in proportion to their text, a high value draws all equally.
        epoch_pairs: pairs that one epoch draws. It need not be a pass over the text: every
            corpus is gone through at a pace of its own, over several epochs or in less than one.
    """

    temperature: float = Field(ge=1.0, le=100.0)
    epoch_pairs: int = Field(ge=1)


class Data(Section):
    """The corpora and their filters.

    Attributes:
        root: folder that the files are relative to. The variable
            DRAGOMAN_DATA_ROOT and the option --data-root override it.
        train: corpora for training.
        valid: corpora for validation, each measured by itself.
        lowercase: whether both sides are lower-cased, to compare with published results.
        max_tokens: longest side in tokens; longer pairs are left out of training.
        drop_validation_sources: whether to leave out training pairs with a source that is in a
            validation corpus.
        mixture: share of each training corpus in an epoch; without it, an epoch has all text.
    """

    root: Path = Path(".")
    train: tuple[Corpus, ...] = Field(min_length=1)
    valid: tuple[Corpus, ...] = Field(min_length=1)
    lowercase: bool = False
    max_tokens: int = Field(default=256, ge=8)
    drop_validation_sources: bool = True
    mixture: Mixture | None = None

    @model_validator(mode="after")
    def _check_mixture(self) -> Data:
        for corpus in self.train:
            if self.mixture is None and corpus.weight != 1.0:
                raise ValueError(f"the weight of {corpus.name} needs data.mixture")
            if self.mixture is not None and corpus.repeat != 1:
                raise ValueError(
                    f"{corpus.name} has a repeat, which data.mixture does not use; give a weight"
                )
        return self

    def mixture_fields(self) -> dict[str, Any] | None:
        """The mixture and its weights as plain JSON values; None without one."""
        if self.mixture is None:
            return None
        return {**self.mixture.model_dump(), "weights": [c.weight for c in self.train]}


class Vocabulary(Section):
    """The joint SentencePiece vocabulary; see `model.bundle.tokenizer.train_tokenizer`.

    Attributes:
        vocab_size: number of pieces, with 4 special ones and 256 bytes.
        kind: algorithm: "unigram" (Kudo, 2018) or "bpe" (Sennrich et al., 2016).
        character_coverage: share of the characters that get a piece; bytes spell the others.
        sampling_alpha: draws a random segmentation of the training text every epoch (Kudo, 2018):
            the smaller, the more random. 0 always uses the best one.
        sentinels: private characters that are pieces. The prepared text has some in place of names,
            numbers and codes, so that the model learns to copy them.
    """

    vocab_size: int = Field(default=8000, ge=300, le=256_000)
    kind: Literal["unigram", "bpe"] = "unigram"
    character_coverage: float = Field(default=0.9999, gt=0.9, le=1.0)
    sampling_alpha: float = Field(default=0.0, ge=0.0, le=10.0)
    sentinels: int = Field(default=0, ge=0, le=MAX_SENTINELS)


class Optimization(Section):
    """The training of the weights (Vaswani et al., 2017, section 5).

    Attributes:
        batch_tokens: tokens on each side of a batch of one process, with padding.
        accumulate: batches for one update; their gradients are added.
        max_updates: updates until training ends, unless it stops early.
        learning_rate: peak of the learning rate, reached after `warmup_updates`; then it falls with
            the inverse square root of the update number (section 5.3).
        warmup_updates: updates in which the learning rate rises; fewer than `max_updates`.
        cooldown_updates: last updates, in which the learning rate falls to zero; 0 for none.
        optimizer: "adamw" for all weights; or "muon" for the matrices of the layers (Jordan et al.,
            2024), and AdamW for embeddings, the output projection, norms and biases.
        muon_learning_rate: Muon's learning rate at its peak; by default `learning_rate`.
        muon_momentum: share of the average in Muon's average of gradients.
        adam_beta1, adam_beta2, adam_epsilon: coefficient of AdamW (section 5.3).
        weight_decay: weight decay of AdamW and Muon; with 0, AdamW is plain Adam.
        label_smoothing: probability that label smoothing spreads over the vocabulary (section 5.4).
        clip_norm: largest gradient norm; 0 does not clip.
        precision: "auto" uses bf16 where the hardware has it and it is measured to be faster.
        seed: seed of weights, batches and dropout.
        init_from: checkpoint of the same network to start from; its vocabulary is used too.
    """

    batch_tokens: int = Field(default=4096, ge=16)
    accumulate: int = Field(default=1, ge=1)
    max_updates: int = Field(ge=1)
    learning_rate: float = Field(gt=0.0)
    warmup_updates: int = Field(default=4000, ge=1)
    cooldown_updates: int = Field(default=0, ge=0)
    optimizer: Literal["adamw", "muon"] = "adamw"
    muon_learning_rate: float | None = Field(default=None, gt=0.0)
    muon_momentum: float = Field(default=0.95, ge=0.0, lt=1.0)
    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    adam_beta2: float = Field(default=0.98, ge=0.0, lt=1.0)
    adam_epsilon: float = Field(default=1e-9, gt=0.0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    clip_norm: float = Field(default=1.0, ge=0.0)
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    seed: int = Field(default=1, ge=0)
    init_from: Path | None = None

    @model_validator(mode="after")
    def _check_optimizer(self) -> Optimization:
        if self.optimizer != "muon" and self.muon_learning_rate is not None:
            raise ValueError('muon_learning_rate needs optimizer = "muon"')
        return self


class GuidedAlignment(Section):
    """One head of the decoder's cross-attention learns to align words (guided alignment).

    The alignments stand beside the training corpora: `python -m model.data.word_alignment` makes
    them.

    Attributes:
        weight: factor on this part of the loss; 0 is off, 0.05 is usual (Garg et al., 2019).
        from_update: update after which alignment begins; a phase at the end is enough. The final
            checkpoint names the head only if all checkpoints that it averages came after it.
        layer: decoder layer, from 0; by default the last but one, or the last of one or two.
        head: head of that layer, from 0.
    """

    weight: float = Field(default=0.0, ge=0.0)
    from_update: int = Field(default=0, ge=0)
    layer: int | None = Field(default=None, ge=0)
    head: int = Field(default=0, ge=0)


class Validation(Section):
    """The validation of the model in training.

    Attributes:
        every_updates: updates between two validations.
        beam_size: width of the beam for validation translations.
        max_sentences: sentences of each corpus, evenly spread; 0 takes all.
        patience: validations without a better score before training stops; 0 never stops early.
        metric: score to improve: mean BLEU of the validation corpora, or loss.
        samples: number of sentences shown with reference and translation.
    """

    every_updates: int = Field(default=1000, ge=1)
    beam_size: int = Field(default=1, ge=1, le=64)
    max_sentences: int = Field(default=300, ge=0)
    patience: int = Field(default=0, ge=0)
    metric: Literal["bleu", "loss"] = "bleu"
    samples: int = Field(default=3, ge=0, le=100)


class Saving(Section):
    """The files that a run leaves behind.

    Attributes:
        every_updates: updates between two saved states, from which a killed run continues. Each
            is also a checkpoint for averaging.
        average_last: number of last checkpoints that the final model averages.
        dtype: data type of the final weights.
    """

    every_updates: int = Field(default=500, ge=1)
    average_last: int = Field(default=5, ge=1, le=100)
    dtype: Literal["fp32", "fp16"] = "fp32"
