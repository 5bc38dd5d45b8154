"""Parsers of requests: messages of the contract, JSON, forms, and their fields."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from urllib.parse import quote_plus, urlencode

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from dragoman.v1 import translation_pb2
from service.calls.request_parsing import RequestParser
from service.errors import InvalidArgumentError
from service.fronts.http.fields import parse_form
from service.fronts.http.message_json import to_json
from service.fronts.http.request_json import JsonRequestParser
from tests.robustness.fuzz.messages import json_bytes, json_of, wire_bytes
from tests.robustness.fuzz.mutations import changed_bytes, odd_text, random_bytes
from tests.robustness.fuzz.target import expect

SERVICE = translation_pb2.DESCRIPTOR.services_by_name["TranslationService"].full_name
_ENTRIES = {"contents": 1024, "pairs": 1024, "entries": 1000}


def methods() -> dict[str, Any]:
    """The methods of the contract with the types of their requests."""
    contract: ServiceDescriptor = descriptor_pool.Default().FindServiceByName(SERVICE)
    return {method.name: method.input_type for method in contract.methods}


class WireMessages:
    """Requests on the wire."""

    name: ClassVar[str] = "messages"
    share: ClassVar[float] = 8
    what: ClassVar[str] = "requests of every method on the wire, parsed under limits"

    def __init__(self) -> None:
        self._methods = methods()
        self._parser = RequestParser(SERVICE, _ENTRIES)

    def generate(self, rng: random.Random) -> tuple[str, bytes]:
        """Generate a method and the bytes of a request."""
        method = rng.choice(list(self._methods))
        data = wire_bytes(rng, self._methods[method])
        if rng.random() < 0.01:
            data *= rng.choice((100, 1_000)) if len(data) < 1_000 else 10
        if rng.random() < 0.001:
            data = rng.choice((b"\x0a\x00", b"\x0a\x02\x0a\x00", b"\xf8\x7f\x00")) * 1_000_000
        return method, data

    def run(self, given: tuple[str, bytes]) -> str:
        """Parse the request; serialising it again must give the same bytes."""
        method, data = given
        try:
            message = self._parser.parse(method, data)
        except InvalidArgumentError as exc:
            expect(bool(exc.description), "a refusal without a reason", given)
            return "refused"
        again = self._parser.parse(method, message.SerializeToString())
        same = again.SerializeToString() == message.SerializeToString()
        expect(same, "a message that changes when it is written", given)
        return "parsed"


class JsonRequests:
    """Requests in JSON."""

    name: ClassVar[str] = "json"
    share: ClassVar[float] = 8
    what: ClassVar[str] = "requests of every method in JSON, parsed under limits, written again"

    def __init__(self) -> None:
        self._methods = methods()
        self._parser = JsonRequestParser(RequestParser(SERVICE, _ENTRIES))

    def generate(self, rng: random.Random) -> tuple[str, bytes]:
        """Generate a method and a body."""
        method = rng.choice(list(self._methods))
        return method, json_bytes(rng, json_of(rng, self._methods[method]))

    def run(self, given: tuple[str, bytes]) -> str:
        """Parse the body, and write the parsed message."""
        try:
            message = self._parser.parse(*given)
        except InvalidArgumentError as exc:
            expect(
                bool(exc.description) and len(str(exc)) < 5_000, "a refusal of any length", given
            )
            str(exc).encode()
            return "refused"
        again = self._parser.parse(given[0], to_json(message).encode())
        same = again.SerializeToString(deterministic=True) == message.SerializeToString(
            deterministic=True
        )
        expect(same, "a message that changes when it is written", given)
        return "parsed"


class Forms:
    """Parameters in URLs and forms."""

    name: ClassVar[str] = "forms"
    share: ClassVar[float] = 5
    what: ClassVar[str] = "forms and URLs' parameters, and their fields of every type"

    def generate(self, rng: random.Random) -> bytes:
        """Generate a form."""
        names = ("q", "text", "text[]", "source", "target_lang", "format", "key", "api_key", "q[]")
        pairs = [(rng.choice(names), odd_text(rng, 4)) for _ in range(rng.choice((0, 1, 2, 5)))]
        quoted = [(name, quote_plus(value, errors="replace")) for name, value in pairs]
        data = rng.choice(
            (urlencode([(n, v.encode("utf-8", "replace")) for n, v in pairs]),
             "&".join(f"{name}={value}" for name, value in quoted))
        ).encode()  # fmt: skip
        if rng.random() < 0.5:
            signs = (
                b"&",
                b"=",
                b"%",
                b"%zz",
                b"%ff",
                b"%ed%a0%80",
                b"+",
                b";",
                b"%00",
                b"&&",
                b"\xff",
            )
            data = changed_bytes(rng, data, signs)
        if rng.random() < 0.002:
            data = rng.choice((b"&", b"q=&", b"%41", b"a=%ff&")) * 200_000
        return data if rng.random() < 0.97 else random_bytes(rng)

    def run(self, given: bytes) -> str:
        """Parse the form, and read fields of each type."""
        try:
            fields = parse_form(given, 10_000)
        except InvalidArgumentError as exc:
            expect(bool(exc.description), "a refusal without a reason", given)
            return "refused"
        outcome = "parsed"
        for name in ("q", "text", "source", "format", "key"):
            readers: Sequence[Callable[[], Any]] = (
                lambda name=name: fields.texts(name),  # type: ignore[misc]
                lambda name=name: fields.needed_texts(name),  # type: ignore[misc]
                lambda name=name: fields.text_or_flag(name, ""),  # type: ignore[misc]
                lambda name=name: fields.flag(name),  # type: ignore[misc]
                lambda name=name: fields.number(name, 0, 0, 31),  # type: ignore[misc]
                lambda name=name: fields.choice(name, ("text", "html"), "text"),  # type: ignore[misc]
            )
            for read in readers:
                try:
                    read()
                except InvalidArgumentError:
                    outcome = "a field refused"
        return outcome


TARGETS: Sequence[Callable[[], Any]] = (WireMessages, JsonRequests, Forms)
