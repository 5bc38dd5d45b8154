"""Compares a student's network with fxtranslate, an engine that reads the same files.

fxtranslate multiplies 8-bit integers, activations too. For the comparison, our network rounds its
activations in the same way, and chooses from the same shortlist, if there is one. It adds up in
another order, which changes a rounding now and then: so translations may differ where two tokens
are nearly equal, and nowhere else. On x86, fxtranslate's sums of two products saturate, too. A
sentence that differs is translated again with such sums, and with noise of the size that another
order of sums has. In a student that was trained, noise decided between tokens 0.3 nats apart, in 4
of 1,000 sentences. Many sentences that only noise explains are taken for a network that is wrong.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from export.arithmetic import FixedSteps
from export.errors import ExportError
from export.rounding import rounded_inputs, saturated_sums
from export.students.files import StudentFiles
from model.bundle.piece_tokenizer import PieceTokenizer
from model.bundle.shortlist import Shortlist
from model.network.transformer import DecoderCache, Transformer

_ENGINE = "fxtranslate"
# Nats between two tokens that are nearly equal, to an engine with 8-bit activations. In a trained
# student it preferred one that was worse by 0.13.
_NEAR_TIE = 0.2
_MOST_STEPS = 2000  # of the search for one translation
NUM_SENTENCES = 200  # of a whole comparison
_MOST_WORDS = 12  # of a sentence that is drawn
_MOST_DRAWN = 1000  # some may be too long
_NUM_NOISY, _NUM_NOISY_SATURATED = 8, 2  # tries with noise
_MOST_NOISY = 0.02  # share of the sentences that only noise explains
_LEAST_NOISY = 2  # sentences that it may explain in any case
_LEAST_LIMIT = 2  # times the source's tokens, after which the engine may cut a translation


@dataclass(frozen=True)
class StudentAgreement:
    """Outcome of the comparison.

    Attributes:
        fxtranslate: the engine's version.
        num_sentences: compared sentences.
        num_identical: sentences with the same greedy translation.
        num_ties: other sentences, which differ in near ties alone.
        num_saturated: sentences, of either kind, that only saturated 8-bit sums explain.
        num_noisy: sentences, of either kind, that only noise explains.
        first_difference: the first sentence that differs, or "".
    """

    fxtranslate: str
    num_sentences: int
    num_identical: int
    num_ties: int
    first_difference: str
    num_saturated: int = 0
    num_noisy: int = 0

    def __str__(self) -> str:
        """The agreement in words."""
        text = (
            f"of {self.num_sentences} sentences, {self.num_identical} are translated as by "
            f"{_ENGINE} {self.fxtranslate}"
        )
        if self.num_ties:
            text += (
                f"; {self.num_ties} differ where two tokens are nearly equal, the first of them "
                f"{self.first_difference!r:.80}"
            )
        if self.num_saturated:
            text += f"; {self.num_saturated} agree with 8-bit sums that saturate"
        if self.num_noisy:
            text += f"; {self.num_noisy} agree with the noise of another order of sums"
        return text


@dataclass(frozen=True)
class _Changes:
    """Changes to our network's arithmetic for one translation."""

    saturated: bool = False
    noisy: bool = False


@dataclass(frozen=True)
class FxtranslateComparison:
    """The comparison of a student.

    Attributes:
        files: the student's files.
        model: our network.
        tokenizer: our tokenizer.
        unk_id: id of the unknown token, which is never chosen.
        steps: value of `StudentNetwork.steps`.
        lexicon: the shortlist in the student's files; None without one.
    """

    files: StudentFiles
    model: Transformer
    tokenizer: PieceTokenizer
    unk_id: int
    steps: Mapping[str, FixedSteps]
    lexicon: Shortlist | None = None
    engine: str = _ENGINE

    def is_possible(self) -> bool:
        """Whether fxtranslate is installed, and reads such a file."""
        return importlib.util.find_spec(_ENGINE) is not None and ".bin" in self.files.weights.name

    def comparable(self, sentences: Sequence[str], more: bool = False) -> list[str]:
        """The sentences that the vocabulary covers: fxtranslate reads bytes and `<unk>` otherwise.

        With `more`, sentences that are drawn from their words make them `NUM_SENTENCES`.
        """
        covered = [text for text in sentences if self._is_covered(text)]
        if not more or len(covered) >= NUM_SENTENCES:
            return covered
        words = [word for word in " ".join(sentences).split() if self._is_covered(word)]
        draw = np.random.default_rng(0)
        for _ in range(_MOST_DRAWN if words else 0):
            if len(covered) == NUM_SENTENCES:
                break
            chosen = draw.integers(len(words), size=draw.integers(1, _MOST_WORDS + 1))
            text = " ".join(words[i] for i in chosen)
            if len(self.tokenizer.encode(text)) < self.model.config.num_source_positions:
                covered.append(text)
        return covered

    def _is_covered(self, text: str) -> bool:
        tokens = self.tokenizer.encode(text)
        pieces = map(self.tokenizer.id_to_piece, tokens)
        return self.unk_id not in tokens and not any(piece.startswith("<0x") for piece in pieces)

    @torch.inference_mode()
    def compare(
        self, sentences: Sequence[str], on_progress: Callable[[str, int, int], None] | None
    ) -> StudentAgreement:
        """Translate every sentence with both, greedily; they have to be `comparable`.

        Raises:
            ExportError: fxtranslate can't read the files, or a translation differs elsewhere than
                in near ties; names the sentence.
        """
        translator = self._translator()
        identical, saturated, noisy, ties = 0, 0, 0, []
        for done, sentence in enumerate(sentences):
            if on_progress is not None:
                on_progress(f"comparing with {_ENGINE}", done, len(sentences))
            with self._readable():
                theirs = str(translator.translate(sentence))
            num_ties, changes, first_error = self._num_ties(sentence, theirs)
            saturated += changes.saturated
            noisy += changes.noisy
            if first_error is not None and noisy > max(_LEAST_NOISY, _MOST_NOISY * len(sentences)):
                raise ExportError(
                    f"{first_error}; and {noisy} sentences agree only with noise in our network"
                )
            identical += num_ties == 0
            if num_ties:
                ties.append(sentence)
        if on_progress is not None:
            on_progress(f"comparing with {_ENGINE}", len(sentences), len(sentences))
        version = importlib.metadata.version(_ENGINE)
        first = ties[0] if ties else ""
        return StudentAgreement(
            version, len(sentences), identical, len(ties), first, saturated, noisy
        )

    def _num_ties(self, sentence: str, theirs: str) -> tuple[int, _Changes, ExportError | None]:
        """Ties in a translation of fxtranslate's, and what makes our network agree with it.

        The error is that of our network without changes.
        """
        tries = [_Changes()]
        if any(steps.states is not None for steps in self.steps.values()):  # 8-bit inputs
            tries.append(_Changes(saturated=True))
            tries += [_Changes(noisy=True)] * _NUM_NOISY
            tries += [_Changes(saturated=True, noisy=True)] * _NUM_NOISY_SATURATED
        noise = torch.Generator().manual_seed(0)
        plain, changed = (_Retraced(self, sentence, theirs) for _ in range(2))
        first: ExportError | None = None
        for changes in tries:
            with contextlib.ExitStack() as stack:
                inputs = rounded_inputs(self.model, self.steps, noise if changes.noisy else None)
                stack.enter_context(inputs)
                if changes.saturated:
                    stack.enter_context(saturated_sums(self.model, self.steps))
                try:
                    retraced = plain if changes == _Changes() else changed
                    return retraced.num_ties(), changes, first
                except ExportError as exc:
                    first = first or exc
        assert first is not None
        raise first

    def _translator(self) -> Any:
        from export.marian.binary import read_compressed

        engine: Any = importlib.import_module(_ENGINE)
        vocabularies = [self.files.vocabulary(file) for file in self.files.vocabularies]
        file = self.files.lexicon
        lexicon = None if file is None else read_compressed(file)
        with self._readable():
            return engine.Translator(read_compressed(self.files.weights), *vocabularies, lexicon)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """The engine reads files anew, some fields of them with its first sentence."""
        try:
            yield
        except BaseException as exc:  # whatever a field that only it reads leads to
            if not isinstance(exc, Exception) and type(exc).__name__ != "PanicException":
                raise  # Rust's panics are no Exception
            reason = str(exc).strip().partition("\n")[0]
            raise ExportError(f"{_ENGINE} cannot read {self.files.weights}: {reason:.300}") from exc

    def listed(self, source_ids: Sequence[int]) -> list[int]:
        """The tokens that the engine chooses from for a source.

        Where the languages share their vocabulary, the source's own tokens are among them. The
        first unlisted tokens after `first_num` fill the list to a multiple of eight.
        """
        if self.lexicon is None:
            return list(range(self.model.config.vocab_size))
        shared = self.files.vocabularies[0] == self.files.vocabularies[1]
        found = set(self.lexicon.target_ids(source_ids, source_ids if shared else ()).tolist())
        others = (i for i in itertools.count(self.lexicon.first_num) if i not in found)
        return sorted(found | set(itertools.islice(others, -len(found) % 8)))


class _Retraced:
    """Retraces a given translation through the candidates that our network ranks best.

    Best tokens first, and others only within `_NEAR_TIE` of the best; as far as the text agrees.
    All calls together make `_MOST_STEPS` steps at most.
    """

    def __init__(self, comparison: FxtranslateComparison, sentence: str, text: str) -> None:
        self._model, self._tokenizer = comparison.model, comparison.tokenizer
        config = self._model.config
        ids = self._tokenizer.encode(sentence)[: config.num_source_positions - 1]
        self._source = [*ids, config.eos_id]
        listed = set(comparison.listed(self._source)) - {comparison.unk_id, config.bos_id}
        self._never = [i for i in range(config.vocab_size) if i not in listed]
        self._sentence, self._text = sentence, _spaced(text)
        self._steps = _MOST_STEPS

    def num_ties(self) -> int:
        """The number of tokens of the text that are not our best ones, but nearly equal to them.

        Raises:
            ExportError: our network would not translate so.
        """
        config, source = self._model.config, torch.tensor([self._source])
        mask = torch.ones_like(source, dtype=torch.bool)
        cache = self._model.start_cache(self._model.encode(source, mask), mask)
        best: list[int] = []
        waiting: list[tuple[list[int], int, DecoderCache]] = [([], 0, cache)]
        while waiting and self._steps:
            self._steps -= 1
            tokens, ties, cache = waiting.pop()
            if tokens and tokens[-1] == config.eos_id:
                return ties
            best = max(best, tokens, key=len)
            if len(tokens) >= _LEAST_LIMIT * source.size(1) and self._is_whole(tokens):
                return ties  # cut there, at its limit of length
            if len(tokens) >= config.num_target_positions:
                continue
            last = tokens[-1] if tokens else config.bos_id
            for gap, token, after in reversed(self._nearly_best(cache, last)):
                longer = [*tokens, token]
                if self._agrees(longer, token):
                    waiting.append((longer, ties + (gap > 0), after))
        raise ExportError(
            f"the imported network differs from {_ENGINE}, for {self._sentence!r}: after "
            f"{self._tokenizer.target.decode(best)!r:.200}, {_ENGINE} goes on with another token "
            f"than the best ones here, to {self._text!r:.200}"
        )

    def _nearly_best(self, cache: DecoderCache, last: int) -> list[tuple[float, int, DecoderCache]]:
        """Tokens near the best one, with their distance from it, and the cache after `last`."""
        after = cache.select(torch.tensor([0]))
        logits: Tensor = self._model.step(torch.tensor([last]), after)[0]
        logits[self._never] = -torch.inf
        values, tokens = logits.topk(8)
        return [
            (values[0].item() - value, int(token), after)
            for value, token in zip(values.tolist(), tokens.tolist(), strict=True)
            if values[0].item() - value <= _NEAR_TIE
        ]

    def _agrees(self, tokens: list[int], token: int) -> bool:
        """Whether the text can begin with these tokens; at its end, whether it equals these."""
        text = self._written(tokens)
        if token == self._model.config.eos_id:
            return text == self._text
        return self._text.startswith(text)

    def _is_whole(self, tokens: list[int]) -> bool:
        return self._written(tokens) == self._text

    def _written(self, tokens: list[int]) -> str:
        """The text of tokens as the engine writes it: a byte stays <0xC3>.

        Spaces at the ends and beside others are left out, as the engine does with some.
        """
        target, eos_id = self._tokenizer.target, self._model.config.eos_id
        pieces = [target.id_to_piece(token) for token in tokens if token != eos_id]
        return _spaced("".join(pieces).replace("\u2581", " "))


def _spaced(text: str) -> str:
    return " ".join(text.split())
