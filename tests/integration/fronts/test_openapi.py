"""/openapi.json and /docs: the description is complete and matches the answers."""

from __future__ import annotations

import re
from typing import Any

from tests.integration.http_client import ask
from tests.integration.servers import Running


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(each) for each in value.values()))
    if isinstance(value, list):
        return set().union(*(references(each) for each in value))
    return set()


async def test_each_described_call_is_one_and_each_path_is_described(server: Running) -> None:
    described = (await ask(server, "GET", "/openapi.json")).json
    calls = {(verb.upper(), path) for path, verbs in described["paths"].items() for verb in verbs}
    http = server.server._http
    assert http is not None
    routes = http.app._app.routes  # type: ignore[attr-defined]
    answered = {
        (verb, route.path) for route in routes for verb in (route.methods or ()) if verb != "HEAD"
    }
    files = {path for _, path in answered if re.search(r"\.\w+$|^/$|^/docs$", path)}
    assert calls == {pair for pair in answered if pair[1] not in files | {"/readyz"}}
    names = [
        each["operationId"] for verbs in described["paths"].values() for each in verbs.values()
    ]
    assert len(names) == len(set(names))


async def test_the_description_is_whole(server: Running) -> None:
    described = (await ask(server, "GET", "/openapi.json")).json
    schemas = described["components"]["schemas"]
    for reference in references(described):
        assert reference.removeprefix("#/components/schemas/") in schemas
    fields = schemas["TranslateRequest"]["properties"]
    assert "BCP-47" in fields["sourceLanguageCode"]["description"]
    for verbs in described["paths"].values():
        for operation in verbs.values():
            assert operation["summary"]
    assert (await ask(server, "GET", "/spec")).json == described


async def test_the_page_loads_nothing_from_elsewhere(server: Running) -> None:
    page = await ask(server, "GET", "/docs")
    assert page.status == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    text = page.body.decode()
    assert "://" not in text
    for name in re.findall(r'(?:src|href)="([\w.]+)"', text):
        assert (await ask(server, "GET", f"/{name}")).status == 200
