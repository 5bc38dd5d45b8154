"""Collects the results of a text's sentences, as a whole text or as parts of a stream."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Sequence

from model.bundle.calibration import Calibration
from model.bundle.tokenizer import Tokenizer
from service.common.fairness import checkpoint
from service.domain.requests import AlignmentKind, GenerationResult, ScoringRequest
from service.engine.generation import Generation
from service.errors import DragomanError, InvalidArgumentError
from service.translation.alignments import SoftWeights
from service.translation.blank_retries import BlankRetries, has_word
from service.translation.confidence import SentenceConfidence, sentence_confidence
from service.translation.detokenizer import Detokenizer
from service.translation.engine_call import EngineCall, SubmittedSentence, result_of
from service.translation.look_ups import ended_together
from service.translation.options import TranslateOptions
from service.translation.preparation import TextError
from service.translation.results import PendingText, TextResult, sentence_result, untranslated


class ResultCollector:
    """Collects the results of one direction of a model.

    Args:
        tokenizer: the model's tokenizer for the direction.
        calibration: converts log-probabilities to expected quality; None without one.
    """

    def __init__(self, tokenizer: Tokenizer, calibration: Calibration | None) -> None:
        self._tokenizer = tokenizer
        self._num_hidden = tokenizer.num_hidden
        self._calibration = calibration

    async def submit_alignments(
        self,
        pending: Sequence[PendingText | TextError],
        call: EngineCall,
        kind: AlignmentKind,
        most: int | None,
    ) -> None:
        """Submit hypotheses for scoring when their search ends, while other searches run.

        Args:
            pending: texts of the request.
            call: engine call of the request.
            kind: kind of the alignments.
            most: most hypotheses of each sentence, best first; None for all.
        """
        weights = SoftWeights()
        hidden_source, hidden_target = self._num_hidden
        texts = (text for text in pending if isinstance(text, PendingText))
        submitted = itertools.chain.from_iterable(text.submitted for text in texts)
        async for together in ended_together(submitted):
            requests = [
                (each, request)
                for each in together
                for request in self._score_requests(each, call, kind, most)
            ]
            for _, request in requests if kind == "soft" else ():
                num_source, num_target = len(request.source_ids), len(request.target_ids)
                weights.add(num_source - hidden_source, num_target - hidden_target)
            await call.look_up_requests([request for _, request in requests])
            for each, request in requests:
                each.scorings.append(await call.submit_score(request))

    def _score_requests(
        self, submitted: SubmittedSentence, call: EngineCall, kind: AlignmentKind, most: int | None
    ) -> Iterator[ScoringRequest]:
        """The hypotheses of a sentence that has ended, to be scored."""
        generation = submitted.generation
        if generation is None or (result := generation.ended_as) is None or result.error:
            return
        for hypothesis in result.hypotheses[:most]:
            end = (self._tokenizer.eos_id,) if hypothesis.ended else ()
            target_ids = (*hypothesis.token_ids, *end)
            yield call.score_request(generation.request.source_ids, target_ids, kind)

    async def deltas(
        self, submitted: SubmittedSentence, pending: PendingText, retries: BlankRetries
    ) -> AsyncIterator[str]:
        """Yield the translation of a sentence as it is generated, and add its result to the text.

        Nothing is yielded before the first word: without words, the sentence is translated again.
        """
        if copied := submitted.copied:
            yield copied
        generation = submitted.generation
        if generation is None:
            return
        text = Detokenizer(self._tokenizer.target)
        held, is_shown = "", retries.has_prefix(generation)
        async for token_ids in generation:
            if delta := text.add(token_ids):
                held += delta
                is_shown = is_shown or has_word(held)
                if is_shown:
                    yield held
                    held = ""
        result = await self.result_of(generation)
        if result.error is not None:
            raise result.error
        held += text.finish()
        if not is_shown and retries.is_due(generation, result, held):
            retry = await retries.of(generation)
            pending.add(generation, result)
            if retry is None or not retry.is_better:
                pending.warnings.append(untranslated(submitted.sentence.text))
                yield submitted.sentence.text
                return
            if retry.result.error is not None:
                raise retry.result.error
            generation, result, held = retry.generation, retry.result, retry.text
        self._add(pending, generation, result)
        if held:
            yield held

    async def result_of(self, generation: Generation) -> GenerationResult:
        """The result of a sentence, without the language tokens at the beginning."""
        return (await result_of(generation)).without(self._num_hidden[1])

    def _add(
        self, pending: PendingText, generation: Generation, result: GenerationResult
    ) -> SentenceConfidence | None:
        """Add the result of a sentence to its text, and return its confidence."""
        pending.add(generation, result)
        num_given = len(generation.request.options.prefix_ids) - self._num_hidden[1]
        confidence = sentence_confidence(self._calibration, result, num_given)
        if confidence is not None:
            pending.confidences.append(confidence)
        return confidence

    async def finish(
        self,
        pending: PendingText | TextError,
        field: str,
        options: TranslateOptions,
        retries: BlankRetries,
    ) -> TextResult:
        """Wait for all sentences of a text, and join them."""
        if isinstance(pending, TextError):
            return TextResult("", None, error=InvalidArgumentError(field, str(pending)))
        error: DragomanError | None = None
        for submitted in pending.submitted:
            await checkpoint()
            if options.links:
                pending.linked.copy(submitted.copied)
            if submitted.generation is None:
                pending.outputs.append(submitted.copied)
                continue
            generation, scorings = submitted.generation, submitted.scorings
            result = await self.result_of(generation)
            output = self._tokenizer.target.decode(result.token_ids)
            # Not with alignments, which are for the sentence's own tokens and first translation.
            if retries.is_due(generation, result, output) and not options.return_alignments:
                retry = await retries.of(generation)
                if retry is not None and retry.is_better:
                    pending.add(generation, result)
                    generation, result, output = retry.generation, retry.result, retry.text
                    scorings = []
                elif not options.returns_sentences:
                    pending.add(generation, result)
                    pending.warnings.append(untranslated(submitted.sentence.text))
                    pending.outputs.append(submitted.copied + submitted.sentence.text)
                    pending.linked.copy(submitted.sentence.text if options.links else "")
                    continue
            confidence = self._add(pending, generation, result)
            scores = [await result_of(scoring) for scoring in scorings]
            for failed in (result, *scores):
                error = failed.error or error
            pending.outputs.append(submitted.copied + output)
            if error is not None:
                continue
            scored = [hypothesis for score in scores for hypothesis in score.hypotheses]
            if options.links:
                pending.link(submitted.sentence, output, result, scored, self._tokenizer)
            if options.returns_sentences:
                value = confidence.value if confidence else None
                pending.sentences.append(
                    sentence_result(
                        submitted.sentence, result, self._tokenizer, options, scored, value
                    )
                )
        return pending.result("" if error else "".join(pending.outputs), error)
