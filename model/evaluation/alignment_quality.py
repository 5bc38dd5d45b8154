"""How well attention aligns words: the share of anchor words that are linked to their translation.

    python -m model.evaluation.alignment_quality --model CHECKPOINT --source TEST.en --reference
    TEST.de \
        --corpus TRAIN.en --corpus-target TRAIN.de

Anchors are words whose translation is certain without an aligner: words that stand once on either
side and are the same on both (numbers, names), and pairs of a dictionary, which is made from a
corpus: words that nearly always occur together, by the Dice coefficient (Dice, 1945; for
translations Smadja et al., 1996). Every target token of an anchor counts; it is right if it is
linked to a token of the anchor's source word. The translation is the reference, which the decoder
is given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import typer

from model.bundle.spans import Span
from model.bundle.tokenizer import Tokenizer
from model.data.corpus import EncodedText, make_batch, plan_batches, read_parallel
from model.network.checkpoint import Checkpoint, load_checkpoint
from model.network.layers import AttentionWeights

_WORD = re.compile(r"\w+(?:[.,:'’-]\w+)*")
_BATCH_TOKENS = 2048
_LONGEST_SENTENCE = 20  # words, for the dictionary: in longer ones too much occurs together
_MIN_COUNT = 15
_MIN_DICE = 0.6


@dataclass(frozen=True)
class Anchor:
    """A source word and its translation: their places in the two texts."""

    kind: str
    source: Span
    target: Span


@dataclass
class AnchorCounts:
    """Numbers of the anchors' target tokens by kind: all, and the correctly linked ones."""

    tokens: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)

    def percent(self, kind: str) -> float:
        """The share that is right."""
        return 100.0 * self.right[kind] / max(1, self.tokens[kind])


def dictionary(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Word pairs, case-folded, of which each is the other's best by the Dice coefficient."""
    sides: list[Counter[str]] = [Counter(), Counter()]
    together: Counter[tuple[str, str]] = Counter()
    sets = [tuple(set(_folded_words(text)) for text in pair) for pair in pairs]
    sets = [pair for pair in sets if max(map(len, pair)) <= _LONGEST_SENTENCE]
    for pair in sets:
        for side, words in zip(sides, pair, strict=True):
            side.update(words)
    for sources, targets in sets:
        frequent = [w for w in targets if sides[1][w] >= _MIN_COUNT]
        together.update((s, t) for s in sources if sides[0][s] >= _MIN_COUNT for t in frequent)
    scores = {(s, t): 2 * n / (sides[0][s] + sides[1][t]) for (s, t), n in together.items()}
    best: list[dict[str, tuple[float, str]]] = [{}, {}]
    for (source, target), score in scores.items():
        best[0][source] = max(best[0].get(source, (0.0, "")), (score, target))
        best[1][target] = max(best[1].get(target, (0.0, "")), (score, source))
    return {
        source: target
        for source, (score, target) in best[0].items()
        if score >= _MIN_DICE and best[1][target][1] == source
    }


def anchors(source: str, target: str, words: Mapping[str, str]) -> Iterator[Anchor]:
    """The anchors of a sentence pair.

    Args:
        words: a dictionary, case-folded.
    """
    left, right = _single_words(source), _single_words(target)
    for word, span in left.items():
        if word in right and (len(word) > 1 or word.isdigit()):
            yield Anchor("identical", span, right[word])
    folded = {word.casefold(): span for word, span in right.items()}
    for word, span in left.items():
        translation = words.get(word.casefold())
        if translation is not None and translation in folded and word not in right:
            yield Anchor("dictionary", span, folded[translation])


def measure(
    checkpoint: Checkpoint, pairs: Sequence[tuple[str, str]], words: Mapping[str, str]
) -> dict[str, AnchorCounts]:
    """The counts of each way to read an alignment out of the decoder.

    Args:
        pairs: sentences and their translations; none longer than the model's positions.
        words: a dictionary, as from `dictionary`.
    """
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    text = EncodedText(
        tokenizer.encode_batch([source for source, _ in pairs]),
        tokenizer.encode_batch([target for _, target in pairs]),
    )
    found: dict[str, AnchorCounts] = {}
    for indices in plan_batches(text.lengths(), _BATCH_TOKENS, None):
        batch = make_batch(
            text, indices, pad_id=config.pad_id, bos_id=config.bos_id, eos_id=config.eos_id
        )
        ids = torch.from_numpy(batch.source_ids), torch.from_numpy(batch.target_ids)
        for way, links in _links(checkpoint, *ids):
            counts = found.setdefault(way, AnchorCounts())
            for row, index in enumerate(indices.tolist()):
                _count(counts, links[row].tolist(), tokenizer, pairs[index], words)
    return found


@torch.inference_mode()
def _links(
    checkpoint: Checkpoint, source_ids: torch.Tensor, target_ids: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """Each way's name, and its links [B, T - 1]."""
    model = checkpoint.model
    mask = source_ids != model.config.pad_id
    record = AttentionWeights()
    model.decode_hidden(target_ids[:, :-1], model.encode(source_ids, mask), mask, record)
    for layer, weights in enumerate(record.decoder_cross):  # [B, H, T - 1, S]
        yield f"layer {layer}", weights.mean(1).argmax(-1)
        for head in range(weights.size(1)):
            yield f"layer {layer}, head {head}", weights[:, head].argmax(-1)
    if checkpoint.alignment_head is not None:
        layer, head = checkpoint.alignment_head.layer, checkpoint.alignment_head.head
        yield "the trained head", record.decoder_cross[layer][:, head].argmax(-1)


def _count(
    counts: AnchorCounts,
    links: Sequence[int],
    tokenizer: Tokenizer,
    pair: tuple[str, str],
    words: Mapping[str, str],
) -> None:
    source_spans, target_spans = (tokenizer.encoded_spans(text) for text in pair)
    for anchor in anchors(*pair, words):
        for position, span in enumerate(target_spans):
            if _overlap(span, anchor.target):
                counts.tokens[anchor.kind] += 1
                link = links[position]
                counts.right[anchor.kind] += 0 <= link < len(source_spans) and _overlap(
                    source_spans[link], anchor.source
                )


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def _folded_words(text: str) -> list[str]:
    return [match[0].casefold() for match in _WORD.finditer(text)]


def _single_words(text: str) -> dict[str, Span]:
    """The words that stand once in the text, whatever their case."""
    counts = Counter(_folded_words(text))
    return {
        match[0]: Span(*match.span())
        for match in _WORD.finditer(text)
        if counts[match[0].casefold()] == 1
    }


def main(
    model: Annotated[Path, typer.Option(help="A checkpoint.")],
    source: Annotated[Path, typer.Option(help="Sentences.")],
    reference: Annotated[Path, typer.Option(help="Their translations.")],
    corpus: Annotated[Path, typer.Option(help="Source side of a corpus for the dictionary.")],
    corpus_target: Annotated[Path, typer.Option(help="Its target side.")],
    heads: Annotated[bool, typer.Option(help="A line for each head, too.")] = False,
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Print a Markdown table: each way to read an alignment, and the share of anchors it has."""
    torch.set_num_threads(threads)
    checkpoint = load_checkpoint(model)
    learnt, text = read_parallel(corpus, corpus_target), read_parallel(source, reference)
    words = dictionary(list(zip(learnt.sources, learnt.targets, strict=True)))
    config = checkpoint.config
    # In words, each of which is few tokens.
    longest = min(config.num_source_positions, config.num_target_positions) // 4
    pairs = [
        pair
        for pair in zip(text.sources, text.targets, strict=True)
        if max(len(side.split()) for side in pair) <= longest
    ]
    found = measure(checkpoint, pairs, words)
    first = next(iter(found.values()))
    typer.echo(f"{len(pairs)} sentence pairs, {len(words)} words in the dictionary\n")
    kinds = ("identical", "dictionary")
    typer.echo(
        "| attention | " + " | ".join(f"{k} ({first.tokens[k]} tokens)" for k in kinds) + " |"
    )
    typer.echo("| --- | ---: | ---: |")
    for way, counts in found.items():
        if heads or ", head" not in way:
            typer.echo(
                f"| {way} | " + " | ".join(f"{counts.percent(k):.1f} %" for k in kinds) + " |"
            )


if __name__ == "__main__":
    typer.run(main)
