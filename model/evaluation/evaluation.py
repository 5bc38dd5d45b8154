"""Whole test sets through the PyTorch reference: in batches, in order, greedy or with a beam."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from model.bundle.limits import default_max_new_tokens
from model.bundle.padding import pad_right
from model.bundle.threads import choose_threads
from model.bundle.tokenizer import Tokenizer
from model.evaluation.search import BeamOptions, beam_search, greedy_search
from model.network.transformer import Transformer

DEFAULT_BATCH_TOKENS = 4096
_TIMED_SENTENCES = 8


def choose_search_threads(
    model: Transformer, sources: Sequence[Sequence[int]], threads: int = 0
) -> int:
    """Set the number of PyTorch's threads that is fastest for the model on some of the sources.

    Args:
        model: the network, in evaluation mode.
        sources: token ids, each ending with EOS.
        threads: the number that was asked for; 0 measures, on a CPU.

    Returns:
        The number of threads.
    """
    few = torch.from_numpy(pad_right(sources[:_TIMED_SENTENCES], model.config.pad_id))

    @torch.inference_mode()
    def step() -> None:
        model(few, few)

    if not threads and model.target_embedding.weight.device.type != "cpu":
        return torch.get_num_threads()
    return choose_threads(step, "a batch", threads)


def translate_sentences(
    model: Transformer,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    options: BeamOptions | None = None,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
    on_progress: Callable[[int], None] | None = None,
) -> list[str]:
    """Translate sentences independently of each other, in batches, and keep their order.

    Args:
        model: the network, in evaluation mode; its device is used.
        sentences: blank ones come back as they are, as the service does it. One with more tokens
            than the model has positions is cut.
        options: a beam search; None is greedy.
        batch_tokens: source tokens in a batch, hypotheses and padding counted.
        on_progress: called after each batch with the number of sentences that it had.
    """
    asked = [index for index, text in enumerate(sentences) if text.strip()]
    longest = model.config.num_source_positions - 1
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
        translations[index] = tokenizer.target.decode(ids)
    return translations


def translate_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    *,
    options: BeamOptions | None = None,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
    on_progress: Callable[[int], None] | None = None,
    start_ids: Sequence[int] = (),
) -> list[tuple[int, ...]]:
    """The best translation of every source, as token ids without BOS and EOS.

    Args:
        model: the network, in evaluation mode; its device is used.
        sources: token ids, each ending with EOS.
        options: a beam search; None is greedy.
        batch_tokens: source tokens in a batch, hypotheses and padding counted.
        on_progress: called after each batch with the number of sentences that it had.
        start_ids: token ids that every translation of a greedy search begins with.

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
            default_max_new_tokens(len(sources[index]), model.config.num_target_positions)
            for index in batch
        ]
        if options is None:
            found = greedy_search(model, source_ids, mask, limits, start_ids)
        else:
            found = [best[0] for best in beam_search(model, source_ids, mask, options, limits)]
        for index, hypothesis in zip(batch, found, strict=True):
            outputs[index] = hypothesis.token_ids
        if on_progress is not None:
            on_progress(len(batch))
    return outputs


def _batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Batches of indices, shortest sources first, for little padding; each has at least one."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > token_budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
