"""Translates in this process, without a server: with a bundle or a checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.exits import fail, fail_without, require_runtime

if TYPE_CHECKING:
    from model.bundle.bundle import Bundle
    from model.bundle.directions import Directions
    from model.bundle.tokenizer import Tokenizer
    from service.domain.requests import SearchOptions
    from service.runtime.cpu.runner import OnnxRunner

OnProgress = Callable[[int], None]


@dataclass(frozen=True)
class OfflineOptions:
    """Options of translations without a server.

    Attributes:
        beam_size: hypotheses per sentence, 1 is greedy; None for the bundle's own (else 1).
        length_penalty: exponent of a beam search's length penalty; None for the bundle's own.
        batch_tokens: source tokens in a batch (checkpoints only).
        device: "auto", "cpu" or "cuda".
        threads: CPU threads; 0 uses all cores for a bundle, and measures for a checkpoint.
        source, target: language codes, which choose a direction; "" where only one is possible.
    """

    beam_size: int | None = None
    length_penalty: float | None = None
    batch_tokens: int = 4096
    device: str = "auto"
    threads: int = 0
    source: str = ""
    target: str = ""


@dataclass(frozen=True)
class OfflineTranslations:
    """Translations of a model.

    Attributes:
        kind: "bundle" or "checkpoint".
        beam_size: hypotheses per sentence.
        target_language: ISO 639-1 code.
        num_cut: sentences that were too long for the model, and were cut off.
    """

    kind: str
    beam_size: int
    target_language: str
    sentences: list[str]
    num_cut: int


Translator = Callable[[Path, Sequence[str], OfflineOptions, OnProgress], OfflineTranslations]


def translator_for(model: Path, options: OfflineOptions) -> Translator:
    """The function that translates with `model`, a bundle or a checkpoint; else fails."""
    if options.device not in ("auto", "cpu", "cuda"):
        fail(f"--device must be auto, cpu or cuda, not {options.device!r}")
    if (model / "bundle.json").is_file():
        require_runtime(options.device)
        return _translate_with_bundle
    if (model / "config.json").is_file():
        return _translate_with_checkpoint
    fail(f"{model} is neither a bundle (no bundle.json) nor a checkpoint (no config.json)")


def _direction(directions: Directions, options: OfflineOptions) -> tuple[str, str]:
    """The direction that the options mean; fails with the choices if there are several, or none."""
    from model.bundle.directions import DirectionError

    try:
        return directions.choose(options.source, options.target)
    except DirectionError as exc:
        fail(f"--{'from' if exc.side == 'source' else 'to'}: {exc}")


def _translate_with_checkpoint(
    path: Path, sentences: Sequence[str], options: OfflineOptions, on_progress: OnProgress
) -> OfflineTranslations:
    from cli.progress import log_to_standard_error

    try:
        from model.bundle.directions import Directions
        from model.evaluation.evaluation import choose_search_threads, translate_sentences
        from model.evaluation.search import BeamOptions
        from model.network.checkpoint import CheckpointError, load_checkpoint
    except ModuleNotFoundError:
        fail_without("PyTorch, which checkpoints need and bundles don't,", "train")

    try:
        checkpoint = load_checkpoint(path)
        network = checkpoint.model.to(_torch_device(options.device))
    except CheckpointError as exc:
        fail(str(exc))
    languages = checkpoint.languages
    _, target = _direction(Directions.one(languages["source"], languages["target"]), options)
    limit, eos_id = checkpoint.config.num_source_positions - 1, checkpoint.config.eos_id
    few = [(*ids[:limit], eos_id) for ids in checkpoint.tokenizer.encode_batch(sentences[:8])]
    log_to_standard_error("%(message)s")
    choose_search_threads(network, few, options.threads)
    beam_size, penalty = options.beam_size or 1, options.length_penalty
    beam = BeamOptions(beam_size, length_penalty=1.0 if penalty is None else penalty)
    translations = translate_sentences(
        network,
        checkpoint.tokenizer,
        sentences,
        options=beam if beam_size > 1 else None,
        batch_tokens=options.batch_tokens,
        on_progress=on_progress,
    )
    num_cut = _num_longer(checkpoint.tokenizer, sentences, limit)
    return OfflineTranslations("checkpoint", beam_size, target, translations, num_cut)


def _num_longer(tokenizer: Tokenizer, sentences: Sequence[str], max_tokens: int) -> int:
    return sum(len(ids) > max_tokens for ids in tokenizer.encode_batch(sentences))


def _torch_device(name: str) -> str:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        fail("--device cuda: PyTorch finds no CUDA device here")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"


def _translate_with_bundle(
    path: Path, sentences: Sequence[str], options: OfflineOptions, on_progress: OnProgress
) -> OfflineTranslations:
    import asyncio

    from model.bundle.bundle import Bundle
    from model.bundle.manifest import BundleError
    from model.bundle.piece_tokenizer import PieceTokenizer
    from model.bundle.sessions import SessionSettings
    from model.bundle.tokenizer import TokenizerError
    from service.errors import DragomanError, InvalidArgumentError
    from service.runtime.cpu.runner import OnnxRunner
    from service.translation.default_search import default_search
    from service.translation.options import after

    try:
        bundle = _with_whole_position_table(Bundle.load(path))
        directions, tokenizer = bundle.directions, bundle.tokenizer()
        source, target = _direction(directions, options)
        if isinstance(tokenizer, PieceTokenizer) and not directions.is_one:
            prefix_ids = directions.prefix_ids(source, target)
            tokenizer = tokenizer.between(prefix_ids, directions.start_ids(target))
        given = {"beam_size": options.beam_size, "length_penalty": options.length_penalty}
        chosen: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
        search = after(tokenizer.target.start_ids, replace(default_search(bundle), **chosen))
        runner = OnnxRunner(
            bundle,
            # Enough for a beam of any size, and for several of usual size.
            max_rows=max(64, search.beam_size),
            sessions=SessionSettings(
                "cpu" if options.device == "auto" else options.device, options.threads or None
            ),
        )
        indices = [index for index, text in enumerate(sentences) if text.strip()]
        longest = bundle.max_source_positions - 1
        sources = [
            (*ids[:longest], bundle.config.eos_id)
            for ids in tokenizer.encode_batch([sentences[index] for index in indices])
        ]
        outputs = asyncio.run(_generate(runner, bundle, sources, search, on_progress))
    except InvalidArgumentError as exc:
        fail(f"--{exc.field.replace('_', '-')}: {exc.description}")
    except (BundleError, TokenizerError, DragomanError) as exc:
        fail(str(exc))
    translations = list(sentences)
    for index, ids in zip(indices, outputs, strict=True):
        translations[index] = tokenizer.target.decode(ids)
    num_cut = _num_longer(tokenizer, sentences, longest)
    return OfflineTranslations("bundle", search.beam_size, target, translations, num_cut)


def _with_whole_position_table(bundle: Bundle) -> Bundle:
    """The bundle with the checkpoint's limit; the server splits at a shorter one, this doesn't."""
    longest = bundle.config.num_source_positions
    limits = {**bundle.manifest["limits"], "max_source_positions": longest}
    return replace(bundle, manifest={**bundle.manifest, "limits": limits})


async def _generate(
    runner: OnnxRunner,
    bundle: Bundle,
    sources: Sequence[tuple[int, ...]],
    search: SearchOptions,
    on_progress: OnProgress,
) -> list[list[int]]:
    """Token ids for every source, from the serving engine in this process."""
    if not sources:
        return []
    from service.domain.requests import GenerationRequest
    from service.engine.engine import Engine, EngineConfig
    from service.errors import InternalError

    config = EngineConfig(
        bos_id=bundle.config.bos_id,
        eos_id=bundle.config.eos_id,
        # In rows; half of the queue is reserved for other clients.
        max_waiting=2 * len(sources) * search.beam_size,
    )
    engine = Engine.of_runner(runner, config)
    await engine.start()
    try:
        # Long sentences first: the last ones are short, so that few rows step alone.
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        requests = [GenerationRequest(sources[index], search) for index in order]
        outputs: list[list[int]] = [[] for _ in sources]
        with contextlib.closing(engine.admit(len(requests), requests[0])) as call:
            generations = [await call.submit(request) for request in requests]
            for index, generation in zip(order, generations, strict=True):
                result = await generation.result()
                if result.error is not None:
                    raise InternalError(str(result.error))
                outputs[index] = result.token_ids
                on_progress(1)
        return outputs
    finally:
        await engine.stop()
