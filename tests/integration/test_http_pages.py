"""The server's own page, and pages of other origins."""

from typing import Any

import pytest

from model.bundle.tokenizer import Tokenizer
from service.fronts.http.call_endpoint import CallEndpoint
from service.fronts.http.front_endpoint import FrontEndpoint
from service.ports.http.contract_server import ContractServer
from tests.integration.http_client import ask, post
from tests.integration.http_serving import STREAM, TEXT, TRANSLATE, serving, unserved

SAME, OTHER = "localhost:1", "evil.example:1"


@pytest.mark.parametrize(
    ("allowed", "host", "origin", "status"),
    [
        ((), SAME, None, 200),
        ((), "[::1]evil.example", None, 400),
        ((), OTHER, None, 403),
        ((), SAME, f"http://{OTHER}", 403),
        (("public.example",), "public.example", "https://public.example", 200),
    ],
)
async def test_pages_of_other_sites_are_refused(
    allowed: tuple[str, ...], host: str, origin: str | None, status: int
) -> None:
    server = ContractServer(*unserved(), "127.0.0.1", 0, allowed_hosts=allowed)
    await server.start()
    made: Any = type("", (), {"server": type("", (), {"http_port": server.port})})
    headers = {"host": host} | ({"origin": origin} if origin else {})
    answer = await ask(made, "GET", "/style.css", **headers)
    assert answer.status == status
    if status == 403:
        assert "--http-allowed-hosts" in answer.json["message"]
    assert (await ask(made, "GET", "/readyz", **headers)).status == 503  # probes may use any
    await server.close()


async def test_a_page_of_another_site_makes_no_call(tokenizer: Tokenizer) -> None:
    """This holds for all paths and methods: browsers request the URL of any image."""
    async with serving(tokenizer) as made:
        http = made.server._http
        assert http is not None
        calls = [
            (method, route.path)
            for route in http.app._app.routes  # type: ignore[attr-defined]
            if isinstance(route.endpoint, CallEndpoint | FrontEndpoint)
            for method in sorted(route.methods)
        ]
        assert {("GET", "/language/translate/v2"), ("POST", TRANSLATE)} <= {*calls}
        for method, path in calls:
            for further in ({}, {"referer": "https://evil.example/"}, {"x_api_key": "invented"}):
                refused = await ask(made, method, path, sec_fetch_site="cross-site", **further)
                assert refused.status == 403, (method, path)
        asked = "/language/translate/v2?q=A%20dog.&target=de&source=en"
        assert (await ask(made, "GET", asked)).status == 200  # a program, or a typed URL
        assert (await ask(made, "GET", asked, sec_fetch_site="same-origin")).status == 200
        for path in ("/", "/docs", "/openapi.json", "/health", "/readyz"):
            assert (await ask(made, "GET", path, sec_fetch_site="cross-site")).status == 200


APP = "https://app.example.org"


async def test_pages_of_allowed_origins_may_ask(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, http_allow_origin=(APP.upper(),)) as made:
        asked = {
            "access_control_request_method": "POST",
            "access_control_request_headers": "authorization,content-type",
        }
        preflight = await ask(made, "OPTIONS", TRANSLATE, origin=APP, **asked)
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-origin"] == APP
        assert "POST" in preflight.headers["access-control-allow-methods"]
        for bad in (
            {"access_control_request_method": "TRACE"},
            {**asked, "access_control_request_headers": "cookie"},
        ):
            assert (await ask(made, "OPTIONS", TRANSLATE, origin=APP, **bad)).status == 400
        for path, body, status in (
            (TRANSLATE, {"contents": [TEXT]}, 200),
            (TRANSLATE, {}, 400),
            ("/v2/translate", {"text": [TEXT], "target_lang": "de"}, 200),
            ("/nowhere", {}, 404),
        ):
            answer = await post(made, path, body, origin=APP)
            assert answer.status == status
            assert answer.headers["access-control-allow-origin"] == APP
            assert "x-request-id" in answer.headers["access-control-expose-headers"]
            assert "access-control-allow-credentials" not in answer.headers
            assert "Origin" in answer.headers["vary"]
        streamed = await post(made, STREAM, {"content": TEXT}, origin=APP)
        assert streamed.headers["access-control-allow-origin"] == APP
        assert streamed.events[-1][0] == "message"
        for origin in ("https://evil.example", f"{APP}.evil.example", "null"):
            for method in ("OPTIONS", "POST"):
                refused = await ask(made, method, TRANSLATE, {}, origin=origin, **asked)
                assert refused.status == 403
                assert "access-control-allow-origin" not in refused.headers


async def test_any_origin_or_none(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer, http_allow_origin=("*",)) as made:
        answer = await post(made, TRANSLATE, {"contents": [TEXT]}, origin="null")
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
        # A site's name that resolves to loopback is still refused.
        assert (await post(made, TRANSLATE, {}, origin=APP, host=OTHER)).status == 403
    async with serving(tokenizer) as made:
        answer = await post(made, TRANSLATE, {"contents": [TEXT]})
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_all_answers_have_a_policy(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        for answer in (
            await ask(made, "GET", "/nowhere"),
            await ask(made, "GET", "/readyz"),
            await ask(made, "GET", "/v1/models"),
            await ask(made, "GET", TRANSLATE),
            await post(made, STREAM, {"content": TEXT}),
            await post(made, TRANSLATE, {}),
        ):
            policy = "default-src 'none'; frame-ancestors 'none'"
            assert answer.headers["content-security-policy"] == policy
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_page_brings_everything_along(tokenizer: Tokenizer) -> None:
    async with serving(tokenizer) as made:
        page = await ask(made, "GET", "/")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "unsafe" not in page.headers["content-security-policy"]
        text = page.body.decode()
        assert "style=" not in text
        assert "onclick" not in text
        assert "//" not in text.replace("http://www.w3.org", "")  # no other server
        names = [
            part.split('"')[0] for mark in ('src="', 'href="') for part in text.split(mark)[1:]
        ]
        assert {"main.js", "style.css", "icon.svg"} == set(names)
        for name in names:
            file = await ask(made, "GET", f"/{name}")
            assert file.status == 200
            again = await ask(made, "GET", f"/{name}", if_none_match=file.headers["etag"])
            assert (again.status, again.body) == (304, b"")
