"""Validation in training: loss, BLEU and chrF on held-out text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import sacrebleu
import torch

from model.data.corpus import EncodedText, plan_batches
from model.data.training_data import TrainingData, ValidationSet
from model.evaluation.evaluation import translate_ids
from model.evaluation.search import BeamOptions
from model.network.transformer import Transformer

_BATCH_TOKENS = 2048
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class CorpusScore:
    """sacreBLEU's BLEU (13a, mixed case) and chrF2 of one validation corpus, in percent."""

    bleu: float
    chrf: float


@dataclass(frozen=True)
class Sample:
    """A validation sentence and its translation."""

    source: str
    reference: str
    output: str

    def __str__(self) -> str:
        # A model that has learnt little repeats itself to the length limit.
        return "\n".join(
            f"{name + ':':<10} {text[:_SHOWN_CHARACTERS]}{'...' * (len(text) > _SHOWN_CHARACTERS)}"
            for name, text in asdict(self).items()
        )


@dataclass(frozen=True)
class Scores:
    """One validation.

    Attributes:
        loss: negative log-likelihood a target token, not smoothed, in nats.
        corpora: BLEU and chrF by corpus.
        samples: some sentences, the same ones at every validation.
    """

    loss: float
    corpora: Mapping[str, CorpusScore]
    samples: Sequence[Sample] = ()

    def score(self, metric: str) -> float:
        """The number to maximise: mean BLEU over the corpora, or minus the loss."""
        if metric == "loss":
            return -self.loss
        return sum(c.bleu for c in self.corpora.values()) / len(self.corpora)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values."""
        return {"loss": self.loss, "corpora": {n: asdict(c) for n, c in self.corpora.items()}}

    def summary(self) -> str:
        """One line for a log."""
        each = ", ".join(f"{name} {c.bleu:.1f}/{c.chrf:.1f}" for name, c in self.corpora.items())
        return f"loss {self.loss:.3f}, BLEU/chrF {each}"


@torch.no_grad()
def validate(model: Transformer, data: TrainingData, *, device: torch.device) -> Scores:
    """Judge `model` on every validation corpus of `data`. Leaves random state untouched."""
    model.eval()
    outputs = {part.name: _translate(model, data, part) for part in data.validation}
    corpora = {part.name: _score(outputs[part.name], part) for part in data.validation}
    losses = [summed_loss(model, part.encoded, device) for part in data.validation]
    loss = sum(s for s, _ in losses) / sum(n for _, n in losses)
    return Scores(loss, corpora, _samples(data, outputs))


def _translate(model: Transformer, data: TrainingData, part: ValidationSet) -> list[str]:
    limit = model.config.num_source_positions - 1
    beam_size = data.recipe.validation.beam_size
    outputs = translate_ids(
        model,
        [[*ids[:limit], model.config.eos_id] for ids in part.encoded.sources],
        options=BeamOptions(beam_size) if beam_size > 1 else None,
        batch_tokens=_BATCH_TOKENS,
    )
    return [data.tokenizer.decode(ids) for ids in outputs]


def _score(hypotheses: Sequence[str], part: ValidationSet) -> CorpusScore:
    references = [list(part.text.targets)]
    return CorpusScore(
        sacrebleu.corpus_bleu(hypotheses, references).score,
        sacrebleu.corpus_chrf(hypotheses, references).score,
    )


def _samples(data: TrainingData, outputs: Mapping[str, Sequence[str]]) -> list[Sample]:
    """`validation.samples` sentences, evenly spread over all corpora."""
    everything = [
        Sample(*texts)
        for part in data.validation
        for texts in zip(part.text.sources, part.text.targets, outputs[part.name], strict=True)
    ]
    count = min(data.recipe.validation.samples, len(everything))
    # From the middle of each share: the first sentence of a file is often a title.
    return [everything[(2 * i + 1) * len(everything) // (2 * count)] for i in range(count)]


@torch.no_grad()
def summed_loss(model: Transformer, text: EncodedText, device: torch.device) -> tuple[float, int]:
    """The cross-entropy of a text's target tokens in nats, summed, and their number.

    Pairs that are longer than the network's limits are left out.
    """
    config = model.config
    longest = min(config.num_source_positions, config.num_target_positions)
    text = text.at(text.not_longer_than(longest))
    total, count = 0.0, 0
    for indices in plan_batches(text.lengths(), _BATCH_TOKENS, None):
        batch = text.batch(
            indices, pad_id=config.pad_id, bos_id=config.bos_id, eos_id=config.eos_id
        )
        source = torch.from_numpy(batch.source_ids).to(device)
        target = torch.from_numpy(batch.target_ids).to(device)
        log_probabilities = model(source, target[:, :-1]).float().log_softmax(-1)
        labels = target[:, 1:]
        chosen = log_probabilities.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        valid = labels != config.pad_id
        total -= float(chosen[valid].double().sum())
        count += int(np.sum(valid.cpu().numpy()))
    return total, count
