"""The parameters of a request, from JSON, a form, or the URL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor

from service.errors import InvalidArgumentError
from service.fronts.http.url_escapes import unescaped

_TRUE = ("1", "true")
_FALSE = ("0", "false")
_INDEXED = re.compile(r"\[(\d{1,6})\]\.(\w+)")


@dataclass(frozen=True)
class NamedFile:
    """A file in a form, or in an answer.

    Attributes:
        name: name from the sender, which can be any text, or name for the download.
        content: its bytes.
    """

    name: str
    content: bytes


class _FormValues(list[str | NamedFile]):
    """The values of one name in a form: at least one."""


class Fields:
    """Parameters by name, with checks of their types."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[str, str | NamedFile]]) -> Fields:
        """Fields of a form or a URL, in which a name may end in [] and occur several times."""
        values: dict[str, _FormValues] = {}
        for name, value in pairs:
            values.setdefault(name.removesuffix("[]"), _FormValues()).append(value)
        return cls(values)

    def __contains__(self, name: str) -> bool:
        """Whether there is a value."""
        return self._values.get(name) not in (None, [])

    def over(self, other: Fields) -> Fields:
        """These parameters, and those of `other` that are not among them."""
        return Fields({**other._values, **self._values})

    def is_list(self, name: str) -> bool:
        """Whether a value was given as a list; in a form, several times."""
        value = self._values.get(name)
        is_single = isinstance(value, _FormValues) and len(value) == 1
        return isinstance(value, list) and not is_single

    def text(self, name: str, default: str = "") -> str:
        """A string. Raises InvalidArgumentError for another value, as all methods do."""
        value = self._single(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InvalidArgumentError(name, "must be a string")
        return value

    def needed(self, name: str) -> str:
        """A string that must not be missing or empty."""
        if not (value := self.text(name)):
            raise InvalidArgumentError(name, "is missing")
        return value

    def objects(self, name: str) -> list[Fields]:
        """A list of JSON objects; of a form, those of names such as `name[0].field`."""
        values = self._values.get(name)
        if values is None:
            return self._objects_of_form(name)
        if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
            raise InvalidArgumentError(name, "must be a list of objects")
        return [Fields(each) for each in values]

    def texts(self, name: str) -> list[str]:
        """A list of strings, or one string; none if there is no value."""
        value = self._values.get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        for index, each in enumerate(values):
            if not isinstance(each, str):
                raise InvalidArgumentError(f"{name}[{index}]", "must be a string")
        return values

    def needed_texts(self, name: str) -> list[str]:
        """A list of strings, which must not be missing or empty, or one string."""
        if not (texts := self.texts(name)):
            raise InvalidArgumentError(name, "is missing")
        return texts

    def file(self, name: str) -> NamedFile:
        """A file, which must not be missing."""
        value = self._single(name)
        if value is None:
            raise InvalidArgumentError(name, "is missing")
        if not isinstance(value, NamedFile):
            raise InvalidArgumentError(name, "must be a file, in multipart/form-data")
        return value

    def text_or_flag(self, name: str, default: str) -> str:
        """A string; a truth value or number is converted as a form would send it."""
        value = self._single(name)
        if isinstance(value, bool | int):
            return str(int(value))
        return self.text(name) or default

    def flag(self, name: str) -> bool:
        """A truth value, which can be written as 0, 1, true or false; False by default."""
        value = self._single(name)
        if value is None:
            return False
        written = str(value).lower()
        if written not in (*_TRUE, *_FALSE):
            raise InvalidArgumentError(name, "must be true or false")
        return written in _TRUE

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number."""
        value = self._single(name)
        if value is None:
            return default
        problem = InvalidArgumentError(name, f"must be a whole number from {least} to {most}")
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise problem
        try:
            found = int(value) if len(str(value)) < 20 else most + 1
        except ValueError:
            raise problem from None
        if not least <= found <= most:
            raise problem
        return found

    def choice(self, name: str, choices: Iterable[str], default: str = "") -> str:
        """One of some strings."""
        value = self.text(name, default) or default
        if value not in (known := list(choices)):
            raise InvalidArgumentError(name, f"must be one of {', '.join(filter(None, known))}")
        return value

    def of_message(self, kind: Descriptor) -> dict[str, Any]:
        """The values of a message's fields, by their names in JSON; others are left out."""
        names = {name for field in kind.fields for name in (field.name, field.json_name)}
        return {name: self._plain(name) for name in self._values if name in names}

    def _objects_of_form(self, name: str) -> list[Fields]:
        found: dict[int, dict[str, Any]] = {}
        for each, value in self._values.items():
            if match := _INDEXED.fullmatch(each.removeprefix(name)):
                found.setdefault(int(match[1]), {})[match[2]] = value
        return [Fields(found[index]) for index in sorted(found)]

    def _plain(self, name: str) -> Any:
        value = self._single(name)
        return value if value is None or not self.is_list(name) else self._values[name]

    def _single(self, name: str) -> Any:
        """One value; of several in a form, the first."""
        value = self._values.get(name)
        return value[0] if isinstance(value, _FormValues) else value


def parse_form(data: bytes, max_fields: int) -> Fields:
    """The parameters of a URL or of a body like one, as `urllib.parse.parse_qsl` reads them.

    Takes some tenths of a second for ten megabytes: to be called in a thread.

    Raises:
        InvalidArgumentError: it is not in UTF-8, or has more than `max_fields`.
    """
    if data.count(b"&") >= max_fields:
        raise InvalidArgumentError("body", f"more than {max_fields:,} values")
    try:
        if not data.isascii():
            data.decode("ascii")
        parts = (part.replace(b"+", b" ").partition(b"=") for part in data.split(b"&") if part)
        pairs = [(unescaped(name).decode(), unescaped(value).decode()) for name, _, value in parts]
    except UnicodeDecodeError as exc:
        raise InvalidArgumentError("body", f"not UTF-8 in a form's escapes: {exc.reason}") from exc
    return Fields.of_pairs(pairs)
