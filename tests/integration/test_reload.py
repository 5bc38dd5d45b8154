"""Models of a running server are replaced, sleep and wake, and no call is lost."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from cli.main import app
from dragoman.client import AsyncClient
from dragoman.v1 import admin_pb2, admin_pb2_grpc
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from model.bundle.bundle import Bundle
from model.bundle.tokenizer import Tokenizer
from service.errors import StartupError
from service.models.lifecycle.metrics import LifecycleMetrics
from service.models.loading import load_models
from service.models.registry import Registry
from service.models.served_model import ServedModel
from service.observability.metrics import ServerMetrics
from service.ports.grpc.admin import AdminServer
from service.server import Server
from service.worker.memory import MIB, SERVER_BYTES, memory_need
from tests.client_errors import status_error_of
from tests.factories import SENTENCES, tiny_bundle
from tests.integration.replacing import SteadyLoad, change, model_processes, put, texts_of
from tests.integration.servers import (
    NO_HURRY,
    Running,
    any_ports,
    fake_runner,
    needs_two_cores,
    running,
    running_bundle,
    served,
    server_process,
    streamed,
)

pytestmark = needs_two_cores


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two versions of one model, with different weights."""
    folder = tmp_path_factory.mktemp("versions")
    for number in (1, 2):
        directory = folder / str(number)
        tiny_bundle(directory, name="tiny", seed=number)
        change(directory, version=str(number))
    return folder / "1", folder / "2"


UNCHANGED = "model tiny was not replaced: its bundle is unchanged, version {}"


async def reload(server: Running, *arguments: str | Path) -> tuple[int, str]:
    """Run `dragoman reload`; returns its status and output."""
    words = ["reload", "--admin", f"127.0.0.1:{server.server.admin_port}", *map(str, arguments)]
    result = await asyncio.to_thread(CliRunner().invoke, app, words)
    return result.exit_code, result.output.strip()


async def test_no_call_of_a_steady_load_fails_while_a_model_is_replaced(
    versions: tuple[Path, Path], tmp_path: Path
) -> None:
    """Each answer is entirely of one version; after a swap, it is of the new one."""
    live = tmp_path / "live"
    put(versions[0], live)
    known = [await texts_of(version) for version in versions]
    assert known[0] != known[1]
    of_version = [{tuple(texts), (texts[0],)} for texts in known]
    async with (
        server_process("--model", live, *NO_HURRY) as server,
        SteadyLoad.on(server.address) as load,
    ):
        for old, new in ((0, 1), (1, 0)):
            assert await load.next_phase() == of_version[old]
            put(versions[new], live)
            assert await load.next_phase() == of_version[old]  # files or not
            server.process.send_signal(signal.SIGHUP)
            await server.read_log_until("reloaded")
            put(versions[new], live)  # moves while the graphs for scores and attention are loaded
            assert await load.next_phase() == of_version[new]
            assert await server.metric("dragoman_model_info", version=str(new + 1)) == 1
            assert await server.metric("dragoman_model_info", version=str(old + 1)) == 0
        # The client retries calls that failed with UNAVAILABLE: the server has seen none.
        for code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL"):
            assert await server.metric("dragoman_requests_total", code=code) == 0
        assert await server.metric("dragoman_model_reloads_total", result="success") == 2
    answers = {texts for phase in load.answers.values() for texts in phase}
    assert answers == of_version[0] | of_version[1]


async def test_a_version_that_can_t_serve_leaves_the_old_one_serving(
    versions: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = tmp_path / "live"
    put(versions[0], live)
    changed: dict[str, dict[str, Any]] = {
        "damaged": {},
        "french": {"languages": {"source": "en", "target": "fr"}},
        "other": {"name": "other"},
    }
    for name, fields in changed.items():
        shutil.copytree(versions[1], tmp_path / name)
        change(tmp_path / name, **fields)
    (tmp_path / "damaged" / "decoder_step.onnx").write_bytes(b"no graph")
    async with running_bundle(live, admin_port=0) as server:
        expected = (await server.client.translate(["A dog."])).translations
        put(tmp_path / "damaged", live)
        server.server.reload_changed()
        while not server.metric("dragoman_model_reloads_total", model="tiny", result="failure"):
            await asyncio.sleep(0)
        assert server.metric("dragoman_model_last_reload_successful", model="tiny") == 0
        [entry] = [record for record in caplog.records if record.message == "not reloaded"]
        assert entry.levelname == "ERROR"
        assert "decoder_step.onnx is damaged" in entry.__dict__["error"]
        for arguments, part in (
            ((), "decoder_step.onnx is damaged"),
            (("tiny", "--path", tmp_path / "none"), "there is no bundle at"),
            (("tiny", "--path", tmp_path / "other"), "is a bundle of model other, not of tiny"),
            (("tiny", "--path", tmp_path / "french"), "does not translate en to de"),
            (("missing",), "there is no model 'missing'; there are: tiny"),
        ):
            status, said = await reload(server, *arguments)
            assert status == 1
            assert part in said
        assert (await server.client.translate(["A dog."])).translations == expected
        assert len(model_processes(os.getpid())) == 1
        path = ("tiny", "--path", tmp_path / "french", "--allow-fewer-languages")
        assert await reload(server, *path) == (0, "tiny: version 1 -> 2")
        [model] = await server.client.list_models()
        assert (model.language_pairs, model.version) == ((("en", "fr"),), "2")


async def test_a_version_without_room_beside_the_old_one_is_refused_with_the_sum(
    bundle: Bundle,
) -> None:
    need = memory_need(bundle, any_ports(), own_process=True).typical
    mib = (SERVER_BYTES + need * 3 // 2) // MIB
    async with running_bundle(bundle.path, admin_port=0, memory_budget=mib) as server:
        status, said = await reload(server, "tiny")
        assert status == 1
        assert f"--memory-budget {mib}: server" in said
        assert "which runs + the new tiny" in said
        assert len(model_processes(os.getpid())) == 1
        assert (await server.client.translate(["A dog."])).translations[0].error is None
        # Asleep, it needs room for one.
        assert await server.registry.lifecycles["tiny"].sleep()
        assert (await server.client.translate(["A dog."])).translations[0].error is None


async def test_the_command_reloads_what_changed_and_follows_a_symbolic_link(
    versions: tuple[Path, Path], tmp_path: Path
) -> None:
    link, prepared = tmp_path / "current", tmp_path / "next"
    link.symlink_to(versions[0])
    limits = {"max_texts": 1, "max_characters": 5}  # which hold for the warm-up too
    async with running_bundle(link, admin_port=0, **limits) as server:
        assert await reload(server) == (0, UNCHANGED.format(1))
        prepared.symlink_to(versions[1])
        prepared.rename(link)
        assert await reload(server) == (0, "tiny: version 1 -> 2")
        assert await reload(server) == (0, UNCHANGED.format(2))


async def test_only_the_admin_port_has_the_admin_service(bundle_path: Path) -> None:
    async with (
        running_bundle(bundle_path, admin_port=0, in_process=True) as server,
        grpc.aio.insecure_channel(server.address) as public,
    ):
        error = await status_error_of(
            admin_pb2_grpc.AdminServiceStub(public).ReloadModel(admin_pb2.ReloadModelRequest())
        )
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await reload(server) == (0, UNCHANGED.format(1))
        status, said = await reload(server, "tiny")
        assert status == 1
        assert "restart the server to change it" in said
        with pytest.raises(StartupError, match="--admin-port"):
            AdminServer(server.server.admin_port)
    status, said = await reload(server)
    assert status == 1
    assert "no admin port at" in said


async def test_a_model_sleeps_and_the_next_calls_wake_it(bundle_path: Path) -> None:
    async with running_bundle(bundle_path, idle_seconds=0.1, max_queue_seconds=250.0) as server:
        [awake] = await server.client.list_models()
        while server.metric("dragoman_model_state", model="tiny", state="asleep") != 1:
            await asyncio.sleep(0)
        while model_processes(os.getpid()):
            await asyncio.sleep(0)
        [asleep] = await server.client.list_models()
        assert asleep == dataclasses.replace(awake, state="asleep")
        assert server.metric("dragoman_serving") == 1
        calls = [server.client.translate([text]) for text in SENTENCES]
        for batch in await asyncio.gather(*calls):
            assert batch.translations[0].error is None
        assert server.metric("dragoman_model_wakes_total", model="tiny", result="success") == 1


async def test_a_bundle_that_changes_while_the_models_load_is_reloaded(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    settings, metrics = any_ports(), ServerMetrics()
    may_load, is_loading = threading.Event(), threading.Event()

    def model(version: str) -> ServedModel:
        made = served(fake_runner(tokenizer), tokenizer, settings, metrics)
        return dataclasses.replace(
            made, version=version, bundle=tmp_path, manifest_sha256=version, reopen=reopen
        )

    def reopen(path: Path, in_background: bool) -> ServedModel:
        return model("2")

    def load() -> Registry:
        is_loading.set()
        assert may_load.wait(60)
        return Registry([model("1")])

    server = Server(settings, load, metrics)
    starting = asyncio.ensure_future(server.start())
    await asyncio.to_thread(is_loading.wait)
    server.reload_changed()
    may_load.set()
    await starting
    async with AsyncClient(f"127.0.0.1:{server.port}", timeout=60) as client:
        while (await client.get_model("fake")).version != "2":
            pass
        assert (await client.translate(["A dog."])).translations[0].text == "A dog."
    await server.drain()


async def test_calls_wait_for_a_model_that_wakes_until_their_deadline(
    tokenizer: Tokenizer,
) -> None:
    """If the model can't be opened, calls end with UNAVAILABLE; the reason is in the log."""
    settings, metrics = any_ports(), ServerMetrics()
    may_open, is_opening = threading.Event(), threading.Event()
    errors = [StartupError("weights.bin is missing")] * 3  # a wake opens it up to three times

    def model() -> ServedModel:
        return served(fake_runner(tokenizer), tokenizer, settings, metrics)

    def reopen(path: Path, in_background: bool) -> ServedModel:
        is_opening.set()
        assert may_open.wait(250)
        if errors:
            raise errors.pop()
        return model()

    sleeper = dataclasses.replace(model(), reopen=reopen, bundle=Path("/bundle"))
    registry = Registry([sleeper], None, LifecycleMetrics(metrics))
    async with running(settings, metrics, registry) as server:
        assert await registry.lifecycles["fake"].sleep()
        impatient = pb.TranslateRequest(contents=["A dog."])
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub: Any = TranslationServiceStub(channel)
            waking = asyncio.ensure_future(stub.Translate(impatient, timeout=250))
            await asyncio.to_thread(is_opening.wait)
            waking.cancel()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Translate(impatient, timeout=0.2)  # nothing opens before it has passed
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert (await server.client.get_model("fake")).state == "loading"

            async def until_in_flight(num_calls: int) -> None:
                while server.metric("dragoman_requests_in_flight", method="Translate") != num_calls:
                    await asyncio.sleep(0)

            await until_in_flight(0)
            waiting = asyncio.ensure_future(stub.Translate(impatient, timeout=250))
            await until_in_flight(1)
            may_open.set()
            error = await status_error_of(waiting)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert "model fake was asleep and could not be opened" in str(error.details())
            assert "weights.bin" not in str(error.details())
        calls = [server.client.translate(["A dog."]) for _ in range(4)]
        assert (await streamed(server.client, "A dog."))[0] == "A dog."
        for batch in await asyncio.gather(*calls):
            assert batch.translations[0].text == "A dog."
        assert server.metric("dragoman_model_wakes_total", model="fake", result="failure") == 1
        assert server.metric("dragoman_model_wakes_total", model="fake", result="success") == 1


def test_models_in_the_server_s_process_can_t_sleep(bundle_path: Path) -> None:
    settings = any_ports(model=(bundle_path,), in_process=True, idle_seconds=1.0)
    with pytest.raises(StartupError, match="setting idle_seconds"):
        load_models(settings, ServerMetrics())
