"""A request of a front while it runs: the contract's calls, as its handler makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dragoman.v1 import translation_pb2 as pb
from model.bundle.languages import Language, LanguageError, find_language
from service.calls.call_context import Context
from service.calls.status import error_of
from service.fronts.dragoman.servicer import TranslationServicer
from service.text.detection import UNDETERMINED
from service.text.glossaries.store import GlossaryStore


@dataclass(frozen=True)
class FrontCall:
    """What a handler works with.

    Attributes:
        servicer: answers the contract's calls.
        context: of the request.
        path: the parameters in the path.
        origin: the beginning of URLs of this server, over HTTP.
    """

    servicer: TranslationServicer
    context: Context
    path: Mapping[str, str]
    origin: str = ""

    @property
    def max_characters(self) -> int:
        """The limit of a text."""
        return self.servicer.limits.max_characters

    @property
    def glossaries(self) -> GlossaryStore:
        """Those that clients make."""
        return self.servicer.glossary_store

    async def translate(self, request: pb.TranslateRequest) -> pb.TranslateResponse:
        """Translate texts, all of them: other APIs have no errors of single texts.

        Returns:
            The contract's answer, but a text that shows nothing of its language and was translated
            has the language that it was translated from: other APIs name one for each text. Texts
            that were copied stay undetermined.

        Raises:
            DragomanError: the call failed, or a text.
        """
        response, detected = await self.servicer.translate(request, self.context)
        for translation in response.translations:
            if translation.status.code:
                raise error_of(translation.status)
        for translation, text in zip(response.translations, detected, strict=False):
            is_undetermined = translation.detected_language_code == UNDETERMINED
            if is_undetermined and text.route is not None and translation.source_token_count:
                translation.detected_language_code = text.route.legs[0].source
        return response

    async def translate_or_copy(self, request: pb.TranslateRequest) -> pb.TranslateResponse:
        """As `translate`, but texts in the target language come back as they are.

        Raises:
            DragomanError: the call failed, or a text.
        """
        if self._is_of_one_language(request.source_language_code, request.target_language_code):
            return await self.servicer.copy(request)
        return await self.translate(request)

    def _is_of_one_language(self, source: str, target: str) -> bool:
        """Whether two codes are one language that the caller is served, without a model for it."""
        if Language.parse(source).code != Language.parse(target).code:
            return False  # nearly always, and the languages need not be collected
        targets = self.targets()
        served = dict.fromkeys((*targets, *(code for each in targets.values() for code in each)))
        try:
            language, other = find_language(source, served), find_language(target, served)
        except LanguageError:
            return False
        return language == other and language not in targets.get(language, ())

    async def translate_document(
        self, request: pb.TranslateDocumentRequest
    ) -> pb.TranslateDocumentResponse:
        """Translate a file. Raises DragomanError."""
        return await self.servicer.TranslateDocument(request, self.context)

    async def detect(self, texts: Sequence[str]) -> list[pb.LanguageDetection]:
        """The languages that each text may be in. Raises DragomanError."""
        request = pb.DetectLanguageRequest(contents=texts)
        response = await self.servicer.DetectLanguage(request, self.context)
        return list(response.detections)

    def targets(self, model: str = "") -> Mapping[str, Sequence[str]]:
        """The languages that texts can be translated into, by the language that they are in.

        Args:
            model: that translates; "" for any, or two through a pivot language.

        Raises:
            NotFoundError: there is no such model.
            UnavailableError: the models are not loaded yet.
        """
        return self.servicer.reachable_targets(model)
