"""Describes the contract's HTTP calls in the form of OpenAPI, with the contract's comments.

https://spec.openapis.org/oas/v3.1.1 and https://protobuf.dev/programming-guides/json/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.api import annotations_pb2
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)

_MESSAGE, _ENUM, _SERVICE = 4, 5, 6  # fields of FileDescriptorProto, in paths of comments
_FIELD = _VALUE = _METHOD = 2  # of DescriptorProto and the others
_REPEATED = FieldDescriptorProto.LABEL_REPEATED
_INTEGER, _NUMBER, _STRING = {"type": "integer"}, {"type": "number"}, {"type": "string"}
_SCALARS: dict[int, dict[str, Any]] = {
    FieldDescriptorProto.TYPE_DOUBLE: _NUMBER,
    FieldDescriptorProto.TYPE_FLOAT: _NUMBER,
    FieldDescriptorProto.TYPE_INT32: _INTEGER,
    FieldDescriptorProto.TYPE_UINT64: {**_STRING, "description": "A whole number of 64 bits."},
    FieldDescriptorProto.TYPE_INT64: {**_STRING, "description": "A whole number of 64 bits."},
    FieldDescriptorProto.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptorProto.TYPE_STRING: _STRING,
    FieldDescriptorProto.TYPE_BYTES: {**_STRING, "description": "In base64."},
}
_STATUS = ".google.rpc.Status"
_FOREIGN: dict[str, dict[str, Any]] = {
    ".google.protobuf.Duration": {**_STRING, "examples": ["0.25s"]},
    _STATUS: {"$ref": "#/components/schemas/Status"},
}
_STATUS_SCHEMA = {
    "type": "object",
    "description": "An error: https://github.com/googleapis/googleapis/blob/master/google/rpc",
    "properties": {
        "code": {**_INTEGER, "description": "Of gRPC: 3 is INVALID_ARGUMENT, 8 overload."},
        "message": _STRING,
        "details": {"type": "array", "items": {"type": "object"}},
    },
}


def describe(files: descriptor_pb2.FileDescriptorSet, package: str) -> dict[str, Any]:
    """The parts `paths` and `components` of an OpenAPI document.

    Args:
        files: descriptors with comments.
    """
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {"Status": _STATUS_SCHEMA}
    for file in files.file:
        if file.package == package:
            _File(file).describe(paths, schemas)
    return {"paths": paths, "components": {"schemas": dict(sorted(schemas.items()))}}


class _File:
    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._prefix = f".{file.package}."
        self._comments = {
            tuple(location.path): _flowing(location.leading_comments)
            for location in file.source_code_info.location
            if location.leading_comments
        }

    def describe(self, paths: dict[str, Any], schemas: dict[str, Any]) -> None:
        """Add what is in the file."""
        for index, message in enumerate(self._file.message_type):
            schemas[message.name] = self._message(message, (_MESSAGE, index))
        for index, enum in enumerate(self._file.enum_type):
            schemas[enum.name] = self._enum(enum, (_ENUM, index))
        for index, service in enumerate(self._file.service):
            for number, method in enumerate(service.method):
                comment = self._comments.get((_SERVICE, index, _METHOD, number), "")
                for verb, path, operation in self._operation(method, comment):
                    paths.setdefault(path, {})[verb] = operation

    def _operation(
        self, method: MethodDescriptorProto, comment: str
    ) -> Iterator[tuple[str, str, dict[str, Any]]]:
        extensions: Any = method.options.Extensions
        if not method.options.HasExtension(annotations_pb2.http):  # type: ignore[arg-type]
            return
        rule = extensions[annotations_pb2.http]
        verb = rule.WhichOneof("pattern")
        path = getattr(rule, verb)
        kind = "text/event-stream" if method.server_streaming else "application/json"
        operation: dict[str, Any] = {
            "operationId": method.name,
            "summary": comment.partition(". ")[0].rstrip("."),
            "description": comment,
            "responses": {
                "200": {
                    "description": f"{method.output_type.rpartition('.')[2]}"
                    + (", one in each event" if method.server_streaming else ""),
                    "content": {kind: {"schema": self._reference(method.output_type)}},
                },
                "default": {
                    "description": "An error",
                    "content": {"application/json": {"schema": _FOREIGN[_STATUS]}},
                },
            },
        }
        if rule.body:
            schema = self._reference(method.input_type)
            content = {"application/json": {"schema": schema}}
            operation["requestBody"] = {"required": True, "content": content}
        if names := re.findall(r"{(\w+)}", path):
            place = {"in": "path", "required": True, "schema": _STRING}
            operation["parameters"] = [{"name": name, **place} for name in names]
        yield verb, path, operation

    def _message(self, message: DescriptorProto, place: tuple[int, ...]) -> dict[str, Any]:
        properties = {}
        for index, field in enumerate(message.field):
            schema = self._type(field)
            if field.label == _REPEATED:
                schema = {"type": "array", "items": schema}
            if comment := self._comments.get((*place, _FIELD, index), ""):
                schema = {**schema, "description": comment}
            properties[field.json_name] = schema
        found = {"type": "object", "properties": properties}
        return {**found, "description": self._comments.get(place, "")}

    def _enum(self, enum: EnumDescriptorProto, place: tuple[int, ...]) -> dict[str, Any]:
        values = [
            f"{value.name}: {self._comments.get((*place, _VALUE, index), '')}"
            for index, value in enumerate(enum.value)
        ]
        comment = "\n\n".join([self._comments.get(place, ""), *values])
        return {**_STRING, "enum": [value.name for value in enum.value], "description": comment}

    def _type(self, field: FieldDescriptorProto) -> dict[str, Any]:
        return self._reference(field.type_name) if field.type_name else _SCALARS[field.type]

    def _reference(self, name: str) -> dict[str, Any]:
        if name in _FOREIGN:
            return _FOREIGN[name]
        return {"$ref": f"#/components/schemas/{name.removeprefix(self._prefix)}"}


def _flowing(comment: str) -> str:
    """A comment without the line breaks within paragraphs."""
    paragraphs = re.split(r"\n\s*\n", comment.strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
