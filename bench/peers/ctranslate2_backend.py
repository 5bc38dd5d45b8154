"""CTranslate2 as a backend of the batch engine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.batch_engine import Output
from service.domain.requests import GenerationRequest

ISA_VARIABLE = "CT2_FORCE_CPU_ISA"
VOCABULARY_FILE = "shared_vocabulary.json"
"""File in a converted model's directory with the names of the tokens by id."""


@dataclass(frozen=True)
class CTranslate2Options:
    """CTranslate2's precision, workers and threads.

    Attributes:
        compute_type: "int8", "float32" or another that it knows.
        inter_threads: workers: batches at the same time.
        intra_threads: threads of each worker.
        isa: the instruction set, such as "AVX512"; "" for its own choice.
    """

    compute_type: str = "int8"
    inter_threads: int = 1
    intra_threads: int = 1
    isa: str = ""


class CTranslate2Backend:
    """A converted model (`bench.peers.conversion`, or CTranslate2's converter) in CTranslate2.

    Args:
        directory: the converted model, with one vocabulary for both languages.
    """

    def __init__(self, directory: Path, options: CTranslate2Options) -> None:
        self._directory = directory
        # CTranslate2 receives and returns names.
        file = directory / VOCABULARY_FILE
        self._names: list[str] = json.loads(file.read_text(encoding="utf-8"))
        self._ids = {name: token_id for token_id, name in enumerate(self._names)}
        self._options = options
        self._executor = ThreadPoolExecutor(options.inter_threads, "ctranslate2")
        self._translator: Any = None

    async def start(self) -> None:
        """Load the model."""
        if self._options.isa:
            # Read once, when the library is loaded.
            os.environ[ISA_VARIABLE] = self._options.isa
        import ctranslate2

        self._translator = ctranslate2.Translator(
            str(self._directory),
            device="cpu",
            compute_type=self._options.compute_type,
            inter_threads=self._options.inter_threads,
            intra_threads=self._options.intra_threads,
        )

    @property
    def compute_type(self) -> str:
        """The type that is computed in, once started: unsupported types fall back."""
        return str(self._translator.compute_type)

    async def translate(
        self, requests: Sequence[GenerationRequest], max_new_tokens: Sequence[int]
    ) -> list[Output]:
        """Translate a batch in a thread; CTranslate2 releases Python's lock meanwhile."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._translate, requests, max_new_tokens)

    async def stop(self) -> None:
        """Free the model."""
        self._executor.shutdown()
        self._translator = None

    def _translate(
        self, requests: Sequence[GenerationRequest], max_new_tokens: Sequence[int]
    ) -> list[Output]:
        names = self._names
        results = self._translator.translate_batch(
            [[names[token_id] for token_id in request.source_ids] for request in requests],
            # One beam size for the batch; it always stops a beam at the first `beam_size`.
            beam_size=max(request.options.beam_size for request in requests),
            # One limit for the batch: each sequence is cut to its own limit below, like ours.
            max_decoding_length=max(max_new_tokens),
            min_decoding_length=0,  # its default of 1 forbids an empty translation
            max_input_length=0,  # lengths were checked
            return_end_token=True,
        )
        outputs = []
        for result, most in zip(results, max_new_tokens, strict=True):
            tokens = [self._ids[name] for name in result.hypotheses[0]][:most]
            ended = bool(tokens) and tokens[-1] == self._eos_id(requests)
            outputs.append(Output(tokens[:-1] if ended else tokens, ended))
        return outputs

    @staticmethod
    def _eos_id(requests: Sequence[GenerationRequest]) -> int:
        return requests[0].source_ids[-1]  # every source ends with it
