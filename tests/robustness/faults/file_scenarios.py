"""Faults of files that a server reads and writes: bundles, certificates, keys, log, disk."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import trustme

from bench.server_process import environment
from dragoman.tls import Tls
from dragoman.v1 import admin_pb2, admin_pb2_grpc
from tests.integration.replacing import put
from tests.robustness.faults.account import RETRIED
from tests.robustness.faults.load import FaultLoad
from tests.robustness.faults.round import CLIENTS, FaultRound, FaultSetting, Scenario, nothing

_LOOK_SECONDS = 1.5  # a server looks at its files every second
_QUOTA = 100_000_000


# --- bundles --------------------------------------------------------------------------------------


def with_version(bundle: Path, version: str, copy: Path) -> Path:
    """A copy of a bundle with another version in its manifest."""
    shutil.copytree(bundle, copy)
    manifest = copy / "bundle.json"
    fields = {**json.loads(manifest.read_text(encoding="utf-8")), "version": version}
    manifest.write_text(json.dumps(fields), encoding="utf-8")
    return copy


async def _reload(played: FaultRound) -> str:
    """Ask for a reload; returns "replaced", or why the model was not replaced."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{played.server.admin_port}") as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        try:
            response = await stub.ReloadModel(admin_pb2.ReloadModelRequest())
        except grpc.aio.AioRpcError as exc:
            return exc.details() or exc.code().name
    return "replaced" if all(model.was_replaced for model in response.models) else "unchanged"


async def replace_bundle(played: FaultRound) -> None:
    """Another version takes over, twice; no call is lost."""
    original = played.live.resolve()
    played.live.unlink()
    for version in ("1", "2"):
        put(with_version(original, version, played.folder / version), played.live)
        await played.some_time(0.0, 0.5)
        answer = await _reload(played)
        played.must(answer == "replaced", f"the new version takes over: {answer}")


async def replace_by_damaged_bundle(played: FaultRound) -> None:
    """A damaged version is refused, and the old one goes on."""
    original = played.live.resolve()
    damaged = with_version(original, "2", played.folder / "2")
    file = played.rng.choice(sorted(path for path in damaged.iterdir() if path.is_file()))
    content = bytearray(file.read_bytes())
    for _ in range(100):
        content[played.rng.randrange(len(content))] ^= 255
    file.write_bytes(content[: played.rng.randrange(1, len(content))])
    played.live.unlink()
    put(damaged, played.live)
    answer = await _reload(played)
    played.must(answer not in ("replaced", "unchanged"), f"{file.name} is refused: {answer}")


# --- certificates and keys ------------------------------------------------------------------------


@contextmanager
def _with_tls(folder: Path) -> Iterator[FaultSetting]:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "authority.key").write_bytes(authority.private_key_pem.bytes())
    _issue(authority, folder)
    tls = Tls(ca=str(folder / "ca.pem"))
    yield FaultSetting(
        ("--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key")),
        lambda place: dataclasses.replace(place, tls=tls),
    )


def _issue(authority: trustme.CA, folder: Path) -> None:
    leaf = authority.issue_cert("127.0.0.1", "localhost", key_type=trustme.KeyType.ECDSA)
    pem = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    _replace(folder / "server.key", leaf.private_key_pem.bytes())
    _replace(folder / "server.pem", pem)


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_name(f"{path.name}.new")
    partial.write_bytes(content)
    partial.replace(path)


async def replace_certificate(played: FaultRound) -> None:
    """A new certificate, a broken one, and a new one again have no effect on calls."""
    folder = played.folder
    authority = trustme.CA.from_pem(
        (folder / "ca.pem").read_bytes(), (folder / "authority.key").read_bytes()
    )
    await played.some_time()
    _issue(authority, folder)
    await asyncio.sleep(_LOOK_SECONDS)
    good = (folder / "server.pem").read_bytes()
    _replace(folder / "server.pem", good[: played.rng.randrange(len(good) // 2)])
    await asyncio.sleep(_LOOK_SECONDS)
    _issue(authority, folder)
    await asyncio.sleep(_LOOK_SECONDS)


@contextmanager
def _with_keys(folder: Path) -> Iterator[FaultSetting]:
    key = _keys(folder, "add", "load", "--characters-per-day", str(_QUOTA))
    (folder / "other").write_text(_keys(folder, "add", "other"), encoding="ascii")
    yield FaultSetting(
        ("--keys", str(folder / "keys.jsonl")),
        lambda place: dataclasses.replace(place, api_key=key),
    )


def _keys(folder: Path, *arguments: str) -> str:
    """The output of `dragoman keys`."""
    command = [sys.executable, "-m", "cli.main", "keys", *arguments]
    command += ["--keys", str(folder / "keys.jsonl")]
    done = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True)
    return done.stdout.split()[-1] if done.stdout else ""


async def damage_keys(played: FaultRound) -> None:
    """A file of keys that is wrong changes nothing; then the good one is back."""
    keys = played.folder / "keys.jsonl"
    good = keys.read_bytes()
    await played.some_time()
    for bad in (good[: played.rng.randrange(1, 20)], b"\xff\xfe", good + b"{}\n"):
        _replace(keys, bad)
        await asyncio.sleep(_LOOK_SECONDS)
    _replace(keys, good)
    await asyncio.sleep(_LOOK_SECONDS)


async def revoke_key(played: FaultRound) -> None:
    """Calls with the key are refused within two seconds; calls with other keys continue."""
    other = dataclasses.replace(
        played.place, api_key=(played.folder / "other").read_text(encoding="ascii")
    )
    async with FaultLoad(other, played.account, 1, ("unary", "stream")).running() as load:
        await load.calls(10)
        await asyncio.to_thread(_keys, played.folder, "revoke", "other")
        await asyncio.sleep(2 * _LOOK_SECONDS)
        before = played.account.refused["UNAUTHENTICATED"]
        await played.load.calls(20)
        played.must(played.account.refused["UNAUTHENTICATED"] > before, "a revoked key is refused")


# --- disk and log ---------------------------------------------------------------------------------


async def fill_disk(played: FaultRound) -> None:
    """No file of the server can grow, so that neither quotas can be saved nor lines logged."""
    await played.some_time()
    server = played.server.pid
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(server, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    await played.some_time(2.0, 4.0)
    resource.prlimit(server, resource.RLIMIT_FSIZE, unlimited)


@contextmanager
def _with_pipe(folder: Path) -> Iterator[FaultSetting]:
    read, write = os.pipe()
    try:
        yield FaultSetting(log_pipe=(read, write), clients=(*CLIENTS, "unary", "unary"))
    finally:
        os.close(write)
        with suppress(OSError):  # the scenario has closed it
            os.close(read)


async def close_log(played: FaultRound) -> None:
    """The reader of the log ends: writing to the log fails from now on."""
    await played.some_time()
    assert played.log_pipe is not None
    os.close(played.log_pipe[0])
    await played.load.calls(200)


async def leave_log_unread(played: FaultRound) -> None:
    """The log is not read, so that its pipe is full after some hundred calls."""
    await played.load.calls(400)


FILE_SCENARIOS = (
    Scenario("bundle-replaced", "the model is replaced twice", replace_bundle, nothing, lost=False),
    Scenario(
        "bundle-damaged",
        "a damaged version is to replace the model",
        replace_by_damaged_bundle,
        nothing,
        lost=False,
    ),
    Scenario(
        "certificate-replaced",
        "the certificate is replaced by a new, a broken and a new one",
        replace_certificate,
        _with_tls,
        lost=False,
    ),
    Scenario(
        "keys-damaged",
        "the file of keys is damaged in three ways, and mended",
        damage_keys,
        _with_keys,
        lost=False,
    ),
    Scenario(
        "key-revoked",
        "the key of another client is revoked",
        revoke_key,
        _with_keys,
        refusals=RETRIED | {"UNAUTHENTICATED"},
    ),
    Scenario(
        "disk-full",
        "none of the server's files can grow, with quotas to save",
        fill_disk,
        _with_keys,
        lost=False,
    ),
    Scenario(
        "log-reader-gone", "the reader of the log goes away", close_log, _with_pipe, lost=False
    ),
    Scenario("log-not-read", "nobody reads the log", leave_log_unread, _with_pipe, lost=False),
)
