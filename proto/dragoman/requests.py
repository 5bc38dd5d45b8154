"""Converts the caller's arguments to the contract's messages.

An argument of the wrong type raises TypeError, and one that no server accepts raises ValueError;
the message names it. A text that is a str but not Unicode (with a lone surrogate) fails alone, as a
bad text does on the server: an empty text is sent in its place, and the result has its error.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dragoman.addresses import server_address
from dragoman.conversions import CLIENT_ID, ENUMS, REQUEST_ID, VALID_ID
from dragoman.options import Glossary, Sampling, Search, VerbatimKinds
from dragoman.results import TranslationError
from dragoman.v1 import translation_pb2 as pb

_NUMBERS: dict[int, tuple[Any, str]] = {
    FieldDescriptor.CPPTYPE_BOOL: (bool, "True or False"),
    FieldDescriptor.CPPTYPE_DOUBLE: (numbers.Real, "a number"),
    FieldDescriptor.CPPTYPE_INT32: (numbers.Integral, "an int"),
    FieldDescriptor.CPPTYPE_UINT64: (numbers.Integral, "an int"),
}
# About thirty years: gRPC treats a deadline centuries away as one that has passed.
_LONGEST_SECONDS = 1e9
_API_KEY = re.compile(r"[!-~]{1,8192}")
_Kind = TypeVar("_Kind", bound=Message)


def translate_request(
    texts: Iterable[str],
    source: str,
    target: str,
    model: str,
    mime_type: str,
    options: pb.TranslateOptions,
    glossary: Glossary | None = None,
) -> tuple[pb.TranslateRequest, dict[int, TranslationError]]:
    """The request to translate `texts`, and the errors of texts that it can't hold, by index."""
    request = pb.TranslateRequest(
        options=options,
        mime_type=string("mime_type", mime_type),
        **_languages(source, target, model),
    )
    _add_glossary(request, glossary)
    return request, _add_texts(request.contents, texts)


def _add_texts(contents: Any, texts: Iterable[str]) -> dict[int, TranslationError]:
    """Add texts to a message, and return the errors of invalid texts by index."""
    unsent: dict[int, TranslationError] = {}
    for index, text in enumerate(_several("texts", texts, "texts")):
        field = f"contents[{index}]"
        if not isinstance(text, str):
            raise TypeError(f"texts: {field} must be a str, not {type(text).__name__}")
        if error := _not_unicode(field, text):
            unsent[index] = error
        contents.append("" if error else text)
    return unsent


def stream_request(
    text: str,
    source: str,
    target: str,
    model: str,
    options: pb.TranslateOptions,
    glossary: Glossary | None = None,
) -> pb.StreamTranslateRequest:
    """The request to translate `text` as a stream.

    Raises:
        TranslationError: `text` is not Unicode.
    """
    _require("text", text, str, "a str")
    if error := _not_unicode("content", text):
        raise error
    request = pb.StreamTranslateRequest(
        content=text, options=options, **_languages(source, target, model)
    )
    _add_glossary(request, glossary)
    return request


def _add_glossary(
    request: pb.TranslateRequest | pb.StreamTranslateRequest | pb.TranslateDocumentRequest,
    glossary: Glossary | None,
) -> None:
    if glossary is None:
        return
    _require("glossary", glossary, Glossary, "a Glossary")
    _require("glossary.entries", glossary.entries, Mapping, "a mapping of terms")
    request.glossary.name = string("glossary.name", glossary.name)
    for index, (source, target) in enumerate(glossary.entries.items()):
        place = f"glossary.entries[{index}]"
        request.glossary.entries.add(
            source_term=string(f"{place}.source_term", source),
            target_term=string(f"{place}.target_term", target),
        )


def add_memory(
    request: pb.TranslateRequest | pb.StreamTranslateRequest | pb.TranslateDocumentRequest,
    name: str,
    threshold: float | None,
) -> None:
    """Add the translation memory to a request."""
    request.memory = string("memory", name)
    if threshold is not None and not isinstance(request, pb.TranslateDocumentRequest):
        _require("memory_threshold", threshold, numbers.Real, "a number")
        request.memory_threshold = float(threshold)


def score_request(
    pairs: Iterable[tuple[str, str]], source: str, target: str, model: str, options: pb.ScoreOptions
) -> tuple[pb.ScoreRequest, dict[int, TranslationError]]:
    """The request to score `pairs`, and the errors of pairs that it can't hold, by index."""
    request = pb.ScoreRequest(options=options, **_languages(source, target, model))
    unsent: dict[int, TranslationError] = {}
    for index, pair in enumerate(_several("pairs", pairs, "pairs of a text and its translation")):
        place = f"pairs[{index}]"
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"{place}: must be a text and its translation, not {pair!r:.80}")
        for part, text in zip(("source_text", "translated_text"), pair, strict=True):
            _require(f"{place}.{part}", text, str, "a str")
            if error := _not_unicode(f"{place}.{part}", text):
                unsent[index] = error
        text, translation = ("", "") if index in unsent else pair
        request.pairs.add(source_text=text, translated_text=translation)
    return request, unsent


def attention_request(
    source_text: str,
    translation: str,
    source: str,
    target: str,
    model: str,
    options: pb.AttentionOptions,
) -> pb.AttentionRequest:
    """The request for the attention weights of a text and its translation."""
    return pb.AttentionRequest(
        source_text=string("source_text", source_text),
        translated_text=string("translation", translation),
        options=options,
        **_languages(source, target, model),
    )


def detect_request(texts: Iterable[str]) -> pb.DetectLanguageRequest:
    """The request to detect languages. A text that it can't hold is sent as an empty one."""
    message = pb.DetectLanguageRequest()
    _add_texts(message.contents, texts)
    return message


def document_request(
    content: bytes,
    file_name: str,
    source: str,
    target: str,
    model: str,
    options: pb.TranslateOptions,
    glossary: Glossary | None = None,
) -> pb.TranslateDocumentRequest:
    """The request to translate a document."""
    _require("content", content, bytes, "bytes")
    request = pb.TranslateDocumentRequest(
        content=content,
        file_name=string("file_name", file_name),
        options=options,
        **_languages(source, target, model),
    )
    _add_glossary(request, glossary)
    return request


def get_model_request(name: str) -> pb.GetModelRequest:
    """The request for a model's description."""
    return pb.GetModelRequest(name=string("name", name))


def options(
    search: Search | None = None,
    *,
    verbatim: VerbatimKinds | None = None,
    ignore_tags: Iterable[str] = (),
    **chosen: str | int | None,
) -> pb.TranslateOptions:
    """The options of a translation; None leaves the choice to the server."""
    message = _filled(pb.TranslateOptions(), chosen)
    for index, name in enumerate(_several("ignore_tags", ignore_tags, "names of elements")):
        message.ignore_tags.append(string(f"ignore_tags[{index}]", name))
    if verbatim is not None:
        _require("verbatim", verbatim, VerbatimKinds, "a VerbatimKinds")
        message.verbatim.CopyFrom(_filled(pb.VerbatimOptions(), _fields(verbatim)))
    if search is not None:
        message.search.CopyFrom(_search(search))
    return message


def score_options(**chosen: str | int | None) -> pb.ScoreOptions:
    """The options of a score; None leaves the choice to the server."""
    return _filled(pb.ScoreOptions(), chosen)


def attention_options(
    search: Search | None = None,
    *,
    kinds: Iterable[str] = (),
    layers: Iterable[int] = (),
    heads: Iterable[int] = (),
    **chosen: str | int | None,
) -> pb.AttentionOptions:
    """The options of a request for attention weights; None leaves the choice to the server."""
    message = _filled(pb.AttentionOptions(), chosen)
    for kind in _several("kinds", kinds, "kinds of attention"):
        number: Any = _number("kinds", kind, "ATTENTION_KIND", pb.AttentionKind)
        message.kinds.append(number)
    for name, numbers_ in (("layers", layers), ("heads", heads)):
        for value in _several(name, numbers_, "ints"):
            getattr(message, name).append(_value(name, value, FieldDescriptor.CPPTYPE_INT32))
    if search is not None:
        message.search.CopyFrom(_search(search))
    return message


def metadata(request_id: str, client_id: str) -> tuple[tuple[str, str], ...]:
    """The metadata of a call; an empty id is left out."""
    named = {"request_id": (REQUEST_ID, request_id), "client_id": (CLIENT_ID, client_id)}
    for argument, (_, value) in named.items():
        if string(argument, value) and not VALID_ID.fullmatch(value):
            raise ValueError(
                f"{argument}: must be 1 to 128 letters, digits, and any of -_.:/+=@, not {value!r}"
            )
    return tuple((key, value) for key, value in named.values() if value)


def key_metadata(api_key: str) -> tuple[tuple[str, str], ...]:
    """The metadata that carries an API key or a token; empty for none."""
    # The message does not repeat it.
    if string("api_key", api_key) and not _API_KEY.fullmatch(api_key):
        raise ValueError("api_key: must be 1 to 8192 visible ASCII characters, without spaces")
    return (("authorization", f"Bearer {api_key}"),) if api_key else ()


def seconds(argument: str, value: Any) -> float | None:
    """A timeout, checked."""
    if value is None:
        return None
    _require(argument, value, numbers.Real, "a number of seconds or None")
    if math.isnan(value):
        raise ValueError(f"{argument}: must be a number of seconds or None, not nan")
    return min(float(value), _LONGEST_SECONDS)


def string(argument: str, value: str) -> str:
    """Any other text, checked."""
    _require(argument, value, str, "a str")
    if error := _not_unicode(argument, value):
        raise ValueError(error.message)
    return value


def server(value: str) -> str:
    """A server's address, checked, with a port."""
    string("server", value)
    try:
        return server_address(value)
    except ValueError as exc:
        raise ValueError(f"server: {exc}") from None


def _require(argument: str, value: Any, kind: Any, what: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{argument}: must be {what}, not {type(value).__name__}")


def _languages(source: str, target: str, model: str) -> dict[str, Any]:
    return {
        "source_language_code": string("source", source),
        "target_language_code": string("target", target),
        "model": string("model", model),
    }


def _several(argument: str, values: Any, what: str) -> Iterable[Any]:
    """`values`, unless they are a single text, which would be read letter by letter."""
    if isinstance(values, str):
        raise TypeError(f"{argument}: must be a list of {what}, not one text")
    if isinstance(values, bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{argument}: must be a list of {what}, not {type(values).__name__}")
    return values


def _not_unicode(field: str, text: str) -> TranslationError | None:
    """The error of a text that no message can hold, in the server's words; else None."""
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        why = f"the character at position {exc.start} is not Unicode"
        code = grpc.StatusCode.INVALID_ARGUMENT
        return TranslationError(code, f"{field}: {why}", field=field, description=why)
    return None


def _search(search: Search) -> pb.SearchOptions:
    _require("search", search, Search, "a Search")
    given = _fields(search)
    pieces, sampling = given.pop("suppressed_tokens"), given.pop("sampling")
    message = _filled(pb.SearchOptions(), given)
    for index, piece in enumerate(_several("suppressed_tokens", pieces or (), "pieces")):
        message.suppressed_tokens.append(string(f"suppressed_tokens[{index}]", piece))
    if sampling is not None:
        _require("sampling", sampling, Sampling, "a Sampling")
        message.sampling.CopyFrom(_filled(pb.Sampling(), _fields(sampling)))
    return message


def _fields(options: Search | Sampling | VerbatimKinds) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}


def _filled(message: _Kind, given: dict[str, Any]) -> _Kind:
    """`message` with the given fields; None leaves a field to the server."""
    for name, value in given.items():
        if value is not None:
            field = message.DESCRIPTOR.fields_by_name[name]
            setattr(message, name, _value(name, value, field.cpp_type))
    return message


def _value(name: str, value: Any, kind: int) -> Any:
    if name in ENUMS:
        return _number(name, value, *ENUMS[name])
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return string(name, value)
    wanted, what = _NUMBERS[kind]
    _require(name, value, wanted, what)
    low, high = (0, 2**64) if kind == FieldDescriptor.CPPTYPE_UINT64 else (-(2**31), 2**31)
    if wanted is numbers.Integral and not low <= value < high:
        raise ValueError(f"{name}: {value} is out of range")
    return value


def _number(field: str, name: str, prefix: str, enum: Any) -> int:
    names = [known.removeprefix(f"{prefix}_").lower() for known in enum.keys()[1:]]
    if name not in names:
        raise ValueError(f"{field} must be one of {', '.join(names)}, not {name!r}")
    number: int = enum.Value(f"{prefix}_{name.upper()}")
    return number
