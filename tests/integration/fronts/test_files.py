"""LibreTranslate's /translate_file: uploads, the URL in the answer, and the translation there."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from service.documents.formats import READERS
from tests.integration.fronts.conftest import Serving
from tests.integration.http_client import Answer, ask
from tests.integration.keyed import KeyFile
from tests.integration.servers import Running

PATH = "/translate_file"
TEXT = "A dog is running.\n\n- Two men are playing chess.\n"
KIND = "multipart/form-data; boundary=xyz"


def upload(text: str | bytes, name: str = "my notes.txt", **fields: str) -> bytes:
    """The body as browsers and curl send it."""
    content = text.encode() if isinstance(text, str) else text
    head = f'--xyz\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = head.encode() + content
    for field, value in {"source": "en", "target": "de", **fields}.items():
        body += (
            f'\r\n--xyz\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}'.encode()
        )
    return body + b"\r\n--xyz--\r\n"


async def send(server: Running, body: bytes, **headers: str) -> Answer:
    return await ask(server, "POST", PATH, body, **{"content_type": KIND, **headers})


async def test_a_file_is_translated_and_fetched(server: Running) -> None:
    batch = await server.client.translate(TEXT.split("\n\n"), source="en", target="de")
    good = "\n\n".join(each.text for each in batch.translations)
    for source in ("en", "auto"):
        answer = await send(server, upload(TEXT, source=source))
        assert answer.status == 200
        url = urlsplit(answer.json["translatedFileUrl"])
        assert (url.scheme, url.netloc) == ("http", f"127.0.0.1:{server.server.http_port}")
        fetched = await ask(server, "GET", url.path)
        assert fetched.body.decode() == good
        assert "my%20notes_de.txt" in fetched.headers["content-disposition"]
        # An uploaded page must not run as a page of this server.
        assert fetched.headers["content-disposition"].startswith("attachment")
        assert fetched.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in fetched.headers["content-security-policy"]
    behind = await send(server, upload(TEXT), x_forwarded_proto="https")
    assert behind.json["translatedFileUrl"].startswith("https://")
    settings = (await ask(server, "GET", "/frontend/settings")).json
    assert settings["filesTranslation"]
    assert settings["supportedFilesFormat"] == list(READERS)
    assert server.metric("dragoman_requests_total", method="TranslateDocument", code="OK") == 5


async def test_texts_may_be_sent_in_this_form_too(server: Running) -> None:
    body = upload("", q="A dog").replace(b'name="file"; filename="my notes.txt"', b'name="api_key"')
    answer = await ask(server, "POST", "/translate", body, content_type=KIND)
    assert isinstance(answer.json["translatedText"], str)


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (upload(TEXT, "a.pdf"), 400, "file: has an unsupported type: expected .txt"),
        (upload(b"\xff\xfe\xfd"), 400, "file: "),
        (upload(b"PK", "a.docx"), 400, "file: is no zip file"),
        (upload(TEXT, target="xx"), 400, "xx"),
        (upload(TEXT, target=""), 400, "target: is missing"),
        (upload(TEXT).replace(b'name="file"', b'name="files"'), 400, "file: is missing"),
        (upload(TEXT).replace(b"; filename", b"; x"), 400, "file: must be a file"),
        (upload(TEXT)[:-9], 400, "cut off"),
        (upload("x" * 5_000_000), 400, "file: 5,000,000 bytes, the limit is"),
        (json.dumps({"file": TEXT}).encode(), 400, "multipart/form-data"),
        (upload("a\n\n" * 400_000), 400, "parts to translate"),
        (upload("x " * 600_000), 400, "characters"),
    ],
)
async def test_bad_files_have_libretranslates_errors(
    server: Running, body: bytes, status: int, word: str
) -> None:
    answer = await send(server, body)
    assert answer.status == status
    assert list(answer.json) == ["error"]
    assert word in answer.json["error"]


async def test_what_is_not_kept_is_404(server: Running) -> None:
    for path in ("/download_file/x", "/download_file/..%2f..%2fetc%2fpasswd"):
        answer = await ask(server, "GET", path)
        assert answer.status == 404
    assert "10 minutes" in (await ask(server, "GET", "/download_file/x")).json["error"]


async def test_a_body_of_100_megabytes_is_refused_unread(server: Running) -> None:
    answer = await send(server, upload(TEXT), content_length="100000000")
    assert answer.status == 413
    assert "limit" in answer.json["error"]


async def test_a_file_is_for_who_sent_it(serving: Serving, tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    made = {name: file.add(name, characters_per_day=60) for name in "ab"}
    made |= {name: file.add(name, characters_per_day=60, tenant="shop") for name in "cd"}
    async with serving(keys=str(tmp_path / "keys")) as server:

        async def fetch(url: str, key: str) -> int:
            path = urlsplit(url).path
            by_header = await ask(server, "GET", path, x_api_key=key)
            by_parameter = await ask(server, "GET", f"{path}?api_key={key}")
            assert by_header.status == by_parameter.status
            return by_header.status

        assert (await send(server, upload(TEXT))).status == 403
        assert (await send(server, upload(TEXT, api_key="no"))).status == 403
        urls = {
            name: (await send(server, upload(TEXT, api_key=made[name]))).json["translatedFileUrl"]
            for name in ("a", "c")
        }
        assert (await ask(server, "GET", urlsplit(urls["a"]).path)).status == 403
        assert [await fetch(urls["a"], made[name]) for name in "abc"] == [200, 404, 404]
        assert [await fetch(urls["c"], made[name]) for name in "bcd"] == [404, 200, 200]
        used_up = await send(server, upload(TEXT * 2, api_key=made["a"]))
        assert used_up.status == 429
        assert server.metric("dragoman_key_characters_total", key="a") == len(
            TEXT.replace("\n", "")
        )
