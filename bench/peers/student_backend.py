"""fxtranslate and slimt, which read Firefox's models, as backends of the batch engine.

Both take and return text, so tokens are decoded for them and encoded again: some microseconds.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.machinery
import importlib.util
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench.peers.batch_engine import Output
from model.bundle.bundle import Bundle
from service.domain.requests import GenerationRequest

TranslateTexts = Callable[[Sequence[str]], list[str]]
"""Translates sentences, in the calling thread."""


def fxtranslate(directory: Path, bundle: Bundle) -> TranslateTexts:
    """The engine fxtranslate with the files of a student; it translates sentence by sentence."""
    engine: Any = importlib.import_module("fxtranslate")
    vocabularies = [file.read_bytes() for file in sorted(directory.glob("*vocab.*.spm"))]
    weights, lexicon = (_only(directory, name).read_bytes() for name in ("model.*", "lex.*"))
    translator = engine.Translator(weights, vocabularies[0], vocabularies[-1], lexicon)
    return lambda texts: [translator.translate(text) for text in texts]


def slimt(directory: Path, bundle: Bundle) -> TranslateTexts:
    """The engine slimt with the files of a student; it makes batches by itself, in one thread."""
    engine = _slimt_library()
    config = engine.Config()
    config.encoder_layers = bundle.config.num_encoder_layers
    config.decoder_layers = bundle.config.num_decoder_layers
    config.num_heads = bundle.config.num_heads
    config.feed_forward_depth = 2
    files = (str(_only(directory, name)) for name in ("model.*", "vocab.*", "lex.*"))
    model, service = engine.Model(config, engine.Package(*files)), engine.Service(1, 0)

    def translate(texts: Sequence[str]) -> list[str]:
        return [found.target.text for found in service.translate(model, list(texts), False)]

    return translate


ENGINES: dict[str, Callable[[Path, Bundle], TranslateTexts]] = {
    "fxtranslate": fxtranslate,
    "slimt": slimt,
}


def installed() -> list[str]:
    """The names of the engines that are installed."""
    return [name for name in ENGINES if importlib.util.find_spec(name) is not None]


class StudentBackend:
    """One of `ENGINES` in processes of its own, since fxtranslate holds Python's lock.

    Args:
        directory: the files of a student, as `dragoman export --format marian` writes them.
        bundle: the same model as a bundle.
        num_processes: batches at the same time.
    """

    def __init__(self, name: str, directory: Path, bundle: Bundle, num_processes: int) -> None:
        self._tokenizer, self._num_processes = bundle.tokenizer(), num_processes
        self._pool = ProcessPoolExecutor(
            num_processes,
            multiprocessing.get_context("spawn"),
            _load,
            (name, directory, bundle.path),
        )

    async def start(self) -> None:
        """Start the processes."""
        await asyncio.gather(*(self._run(["A."]) for _ in range(4 * self._num_processes)))

    async def translate(
        self, requests: Sequence[GenerationRequest], max_new_tokens: Sequence[int]
    ) -> list[Output]:
        """Translate a batch; limits are the engine's own."""
        found = await self._run([self._tokenizer.decode(one.source_ids) for one in requests])
        return [Output(ids, True) for ids in self._tokenizer.target.encode_batch(found)]

    async def stop(self) -> None:
        """End the processes."""
        self._pool.shutdown()

    async def _run(self, texts: list[str]) -> list[str]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, _translate, texts)


_loaded: list[TranslateTexts] = []  # the engine of a process


def _load(name: str, directory: Path, bundle: Path) -> None:
    _loaded.append(ENGINES[name](directory, Bundle.load(bundle)))


def _translate(texts: list[str]) -> list[str]:
    return _loaded[0](texts)


def _only(directory: Path, pattern: str) -> Path:
    (file,) = directory.glob(pattern)
    return file


def _slimt_library() -> Any:
    """slimt's extension module alone, since the package downloads lists of models on import."""
    package = importlib.util.find_spec("slimt")
    assert package is not None
    assert package.submodule_search_locations is not None
    found = importlib.machinery.PathFinder.find_spec("_slimt", package.submodule_search_locations)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
