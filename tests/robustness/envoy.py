"""Envoy with the configuration that is in docker/, with every address on this machine."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

import yaml

from bench.server_process import ROOT
from tests.containers.waiting import eventually

CONFIGURATION = ROOT / "docker" / "envoy" / "envoy.yaml"


def local_configuration(
    ports: list[int],
    check_interval: str | None = None,
    longest: str | None = None,
    http_ports: Sequence[int] = (),
) -> str:
    """The configuration with every address on this machine, and Envoy on free ports.

    Args:
        ports: gRPC ports of the replicas.
        check_interval: time between health checks over gRPC, such as "1s"; None for the
            configured one.
        longest: limit of a call without a deadline; None for the configured one.
        http_ports: HTTP ports of the replicas.
    """
    text = CONFIGURATION.read_text()
    if longest:
        text = text.replace("max_stream_duration: 300s", f"max_stream_duration: {longest}")
        assert longest in text
    plan = yaml.safe_load(text)
    listeners, clusters = (plan["static_resources"][key] for key in ("listeners", "clusters"))
    for place in (plan["admin"], *listeners):
        place["address"] = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    named = {cluster["name"]: cluster for cluster in clusters}
    for name, on in (("dragoman", ports), ("dragoman_http", http_ports)):
        places = [{"socket_address": {"address": "127.0.0.1", "port_value": port}} for port in on]
        replicas = [{"endpoint": {"address": place}} for place in places]
        named[name]["load_assignment"]["endpoints"] = [{"lb_endpoints": replicas}]
    if check_interval:
        named["dragoman"]["health_checks"][0]["interval"] = check_interval
    return str(yaml.safe_dump(plan))


def envoy_program() -> str | None:
    """The path of Envoy, beside this interpreter or on PATH; None if it is not installed."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which("envoy", path=places)


@dataclass(frozen=True)
class Envoy:
    """Envoy, and where it says how it does."""

    address: str
    ask: Callable[[str], Any]
    log: Path

    def figure(self, name: str, cluster: str = "dragoman") -> int:
        """One of the figures of a cluster."""
        (found,) = self.ask(f"/stats?format=json&filter=^cluster.{cluster}.{name}$")["stats"]
        return int(found["value"])

    def calls(self) -> list[dict[str, Any]]:
        """Logged calls so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]

    def post(
        self, path: str, body: Any = None, method: str = "POST", **headers: str
    ) -> tuple[int, Message, Any]:
        """Status, headers and JSON of the answer to a request.

        Args:
            path: and query.
            body: bytes as they are, or what is sent as JSON.
            method: of HTTP.
            headers: names with "_" instead of "-".
        """
        host, port = self.address.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        sent = body if body is None or isinstance(body, bytes) else encoded(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(connection):
            connection.request(method, path, sent, {"content-type": "application/json", **named})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, answer.headers, json.loads(text) if text else None


def encoded(body: Any) -> bytes:
    """As JSON, without escapes that it can do without."""
    return json.dumps(body, ensure_ascii=False).encode()


@contextlib.contextmanager
def running_envoy(
    program: str,
    directory: Path,
    ports: list[int],
    check_interval: str | None = None,
    longest: str | None = None,
    http_ports: Sequence[int] = (),
) -> Iterator[Envoy]:
    """Run Envoy before replicas, from when it knows that all are healthy.

    Args:
        program: path of Envoy.
        directory: directory for its files.
        ports, check_interval, longest, http_ports: arguments of `local_configuration`.
    """
    configuration, admin = directory / "envoy.yaml", directory / "envoy.admin"
    configuration.write_text(local_configuration(ports, check_interval, longest, http_ports))

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"http://{admin.read_text()}{path}", timeout=10) as response:
            return json.load(response)

    command = [program, "--config-path", str(configuration), "--admin-address-path", str(admin)]
    command += ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
    command += ["--file-flush-interval-msec", "50"]
    with (
        (directory / "envoy.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            eventually(lambda: admin.exists() and admin.read_text(), "Envoy runs")
            (listener,) = [
                item
                for item in ask("/listeners?format=json")["listener_statuses"]
                if item["name"] == "translation"
            ]
            place = listener["local_address"]["socket_address"]
            made = Envoy(f"{place['address']}:{place['port_value']}", ask, directory / "envoy.log")
            for cluster, on in (("dragoman", ports), ("dragoman_http", http_ports)):
                eventually(
                    lambda: made.figure("membership_healthy", cluster) == len(on),  # noqa: B023
                    "all are healthy",
                )
            yield made
        finally:
            process.terminate()
