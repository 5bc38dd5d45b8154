"""Paths, hosts and clients of requests through a proxy, and terms in LibreTranslate's API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.fronts.calls import LIBRE, TEXT, FrontCase, each_front
from tests.integration.fronts.conftest import Serving, form
from tests.integration.http_client import ask, post
from tests.integration.servers import Running


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "//translate"),
        ("POST", "/translate/"),
        ("POST", "/mt/translate"),
        ("POST", "/mt//translate"),
        ("GET", "//languages"),
        ("GET", "/mt/frontend/settings/"),
        ("GET", "/mt/readyz"),
    ],
)
async def test_slashes_too_many_and_the_prefix_of_a_proxy(
    serving: Serving, verb: str, path: str
) -> None:
    async with serving(http_prefix="/mt") as server:
        body = {"q": TEXT, "source": "en", "target": "de"} if verb == "POST" else None
        answer = await ask(server, verb, path, body)
        assert answer.status == 200


async def test_pages_and_urls_under_a_prefix(serving: Serving) -> None:
    async with serving(http_prefix="/mt/") as server:
        assert (await ask(server, "GET", "/mt/")).status == 200
        for path, location in (
            ("/mt", "/mt/"),
            ("/mt//docs", "/mt/docs"),
            ("/docs/?a=1", "/mt/docs?a=1"),
            ("//docs//", "/mt/docs"),
        ):
            answer = await ask(server, "GET", path)
            assert (answer.status, answer.headers.get("location")) == (308, location)
        pairs = [("source", "en"), ("target", "de")]
        form_data = "".join(
            f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in pairs
        )
        file = (
            '--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nA dog.\r\n'
        )
        answer = await ask(
            server,
            "POST",
            "/mt/translate_file",
            f"{form_data}{file}--x--\r\n".encode(),
            content_type="multipart/form-data; boundary=x",
            x_forwarded_proto="https",
            host="127.0.0.1",
        )
        assert answer.json["translatedFileUrl"].startswith("https://127.0.0.1/mt/download_file/")


async def test_a_trusted_proxy_names_the_client_and_the_host(serving: Serving) -> None:
    async with serving(
        http_trusted_proxies=("127.0.0.0/8",), http_allowed_hosts=("translate.example",)
    ) as server:
        forwarded = {"x_forwarded_for": "192.0.2.7", "x_forwarded_host": "translate.example"}
        body = {"q": TEXT, "source": "en", "target": "de"}
        origin = {"origin": "https://translate.example"}
        assert (await post(server, LIBRE, body, **forwarded, **origin)).status == 200
        behind = {**forwarded, "x_forwarded_prefix": "/mt"}
        for path in ("/mt/translate", "/translate"):  # the proxy may strip the prefix, or not
            assert (await post(server, path, body, **behind)).status == 200
        answer = await ask(server, "GET", "/docs/", **behind)
        assert (answer.status, answer.headers.get("location")) == (308, "/mt/docs")
        other = {**forwarded, "x_forwarded_host": "other.example"}
        assert (await post(server, LIBRE, body, **other)).status == 403


@each_front
async def test_a_refused_host_is_answered_in_the_shape_of_the_front(
    server: Running, front: FrontCase
) -> None:
    answer = await post(server, front.path, front.body, host="attacker.example")
    assert answer.status == 403
    assert "--http-allowed-hosts" in front.error(answer)
    many = {f"x_{number}": "1" for number in range(70)}
    answer = await post(server, front.path, front.body, **many)
    assert answer.status == 431
    assert "headers" in front.error(answer)


async def test_terms_in_libretranslates_api(serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "house.en-de.tsv").write_text("dog\tHündchen\n")
    async with serving(glossary_dir=(tmp_path,)) as server:
        body = {"q": "A dog is running.", "source": "en", "target": "de"}
        named = await post(server, LIBRE, {**body, "glossary": "house"})
        assert "Hündchen" in named.json["translatedText"]
        kept = await post(server, LIBRE, {**body, "do_not_translate": ["running"]})
        assert kept.json["translatedText"].count("running") == 1
        pairs = [("do_not_translate", "running"), ("do_not_translate", "dog")]
        kept = await form(server, LIBRE, *body.items(), *pairs)
        assert kept.status == 200
        for given, message in (
            ({"glossary": "none"}, "glossary: there is no"),
            ({"do_not_translate": ["a|b"]}, "do_not_translate[0]: must not contain |"),
            ({"do_not_translate": ["a", ""]}, "do_not_translate[1].source_term: is empty"),
            ({"do_not_translate": 7}, "do_not_translate[0]: must be a string"),
        ):
            answer = await post(server, LIBRE, {**body, **given})
            assert answer.status == 400
            assert message in answer.json["error"]
