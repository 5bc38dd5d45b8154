"""The configuration of Envoy that is in docker/, with every address on this machine."""

from __future__ import annotations

from pathlib import Path

import yaml

from bench.suite.systems import ROOT

CONFIGURATION = ROOT / "docker" / "envoy" / "envoy.yaml"
DESCRIPTOR = ROOT / "proto" / "dragoman.binpb"


def local_text() -> str:
    """The configuration, naming the files that it reads where they lie here."""
    text = CONFIGURATION.read_text().replace("/etc/envoy/dragoman.binpb", str(DESCRIPTOR))
    return text.replace("/etc/envoy/", f"{CONFIGURATION.parent}/")


def local_configuration(
    ports: list[int], check_interval: str | None = None, longest: str | None = None
) -> str:
    """The configuration with every address on this machine: free ports, replicas on `ports`."""
    text = local_text()
    if longest:
        text = text.replace("max_stream_duration: 300s", f"max_stream_duration: {longest}")
        assert longest in text
    plan = yaml.safe_load(text)
    listeners, clusters = (plan["static_resources"][key] for key in ("listeners", "clusters"))
    for place in (plan["admin"], *listeners):
        place["address"] = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    (cluster,) = [item for item in clusters if item["name"] == "dragoman"]
    cluster["load_assignment"]["endpoints"] = [
        {
            "lb_endpoints": [
                {
                    "endpoint": {
                        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}
                    }
                }
                for port in ports
            ]
        }
    ]
    if check_interval:
        cluster["health_checks"][0]["interval"] = check_interval
    return str(yaml.safe_dump(plan))


def running_command(program: str, configuration: Path, admin: Path) -> list[str]:
    """The command that runs Envoy, which writes the address of its admin port to a file."""
    command = [program, "--config-path", str(configuration), "--admin-address-path", str(admin)]
    command += ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
    return [*command, "--file-flush-interval-msec", "50"]
