"""The OpenAPI document of a server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import dragoman
from service.fronts.http.front_endpoint import Front, Operation
from service.fronts.http.multipart import MULTIPART

_CONTRACT = Path(__file__).with_name("contract.json")
_FORM = "application/x-www-form-urlencoded"
# Of LibreTranslate's API: no calls of the contract, and so no operations of the front.
_PLAIN_PATHS = {
    "/health": "Tell whether the server accepts requests",
    "/spec": "Describe all paths, in the form of OpenAPI",
}
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def document(fronts: Iterable[Front], needs_keys: bool) -> dict[str, Any]:
    """Describe all paths of a server over HTTP."""
    contract = json.loads(_CONTRACT.read_text(encoding="utf-8"))
    paths = contract["paths"]
    for operations in paths.values():
        for operation in operations.values():
            operation["tags"] = ["Dragoman"]
    for front in fronts:
        for (verb, path), operation in front.operations().items():
            paths.setdefault(path, {})[verb.lower()] = _described(front, verb, path, operation)
    for path, summary in _PLAIN_PATHS.items():
        described = _head("libretranslate", "LibreTranslate", "GET", path, summary)
        paths[path] = {"get": {**described, "security": []}}
    if needs_keys:
        contract["components"]["securitySchemes"] = _SCHEMES
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Dragoman",
            "version": dragoman.__version__,
            "description": "Machine translation: the contract, as JSON over HTTP, and the APIs of "
            "other services for programs that were written for those.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": contract["components"],
        "security": [{name: []} for name in _SCHEMES] if needs_keys else [],
    }


def _described(front: Front, verb: str, path: str, operation: Operation) -> dict[str, Any]:
    found = _head(front.name, front.title, verb, path, operation.summary)
    names = re.findall(r"{(\w+)}", path)
    place = {"in": "path", "required": True, "schema": {"type": "string"}}
    found["parameters"] = [{"name": name, **place} for name in names]
    if verb == "GET":
        found["parameters"] += [
            {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
            for name, text in operation.parameters.items()
        ]
    elif operation.file:
        schema = _schema(operation.parameters)
        schema["properties"][operation.file] |= {"type": "string", "format": "binary"}
        found["requestBody"] = {"content": {MULTIPART: {"schema": schema}}}
    elif operation.parameters:
        schema = _schema(operation.parameters)
        content = {kind: {"schema": schema} for kind in ("application/json", _FORM)}
        found["requestBody"] = {"content": content}
    if not operation.needs_key:
        found["security"] = []
    return found


def _head(name: str, title: str, verb: str, path: str, summary: str) -> dict[str, Any]:
    """The common part of the descriptions of all paths, for a front with a name and a title."""
    return {
        "operationId": re.sub(r"\W+", "-", f"{name}-{verb.lower()}{path}").strip("-"),
        "tags": [title],
        "summary": summary,
        "responses": {"200": _answer("The answer"), "default": _answer("An error")},
    }


def _schema(parameters: Mapping[str, str]) -> dict[str, Any]:
    properties: dict[str, dict[str, str]] = {
        name: {"description": text} for name, text in parameters.items()
    }
    return {"type": "object", "properties": properties}


def _answer(text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": {"type": "object"}}}}
