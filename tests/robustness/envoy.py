"""The configuration of Envoy that is in docker/, with every address on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from bench.server_process import ROOT

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


def running_command(program: str, configuration: Path, admin: Path) -> list[str]:
    """The command that runs Envoy, which writes the address of its admin port to a file."""
    command = [program, "--config-path", str(configuration), "--admin-address-path", str(admin)]
    command += ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
    return [*command, "--file-flush-interval-msec", "50"]
