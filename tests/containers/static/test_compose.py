"""The compose file: hardened, on loopback, and everything that it names exists."""

import re
from typing import Any

import pytest
import yaml

from service.settings import Settings
from tests.containers.tools import DOCKER

COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVERS = ("dragoman", "dragoman-gpu")


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    assert "mem_limit" in service
    if not service["image"].startswith(("dragoman:", "${DRAGOMAN_")):
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), "a version, not `latest`"


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_published_beyond_this_machine(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("name", SERVICES)
def test_files_that_are_mounted_exist(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = re.sub(r"^\$\{\w+:-([^}]+)\}", r"\1", volume).split(":")[0]
        assert (DOCKER / source).exists() or source in COMPOSE["volumes"], volume


@pytest.mark.parametrize("name", SERVERS)
def test_servers_have_time_to_drain(name: str) -> None:
    service = SERVICES[name]
    drain = int(service["environment"]["DRAGOMAN_DRAIN_SECONDS"])
    # What server.py adds at most around the drain, and Docker's own delay.
    assert int(service["stop_grace_period"].removesuffix("s")) >= drain + 5
    known = {f"DRAGOMAN_{field.upper()}" for field in Settings.__dataclass_fields__}
    assert set(service["environment"]) <= known


def test_two_replicas_and_both_profiles() -> None:
    assert SERVICES["dragoman"]["scale"] == 2
    assert SERVICES["load"]["profiles"] == ["load"]
    assert SERVICES["dragoman-gpu"]["profiles"] == ["gpu"]
    assert SERVICES["dragoman-gpu"]["build"]["target"] == "gpu"


def test_prometheus_scrapes_what_there_is() -> None:
    configuration = yaml.safe_load((DOCKER / "prometheus/prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in configuration["scrape_configs"]}
    (names,) = jobs["dragoman"]["dns_sd_configs"]
    for server in SERVERS:
        assert SERVICES[server]["networks"]["default"]["aliases"] == names["names"]
    assert names["port"] == Settings.metrics_port
    assert str(Settings.metrics_port) in SERVICES["dragoman"]["expose"]
    (envoy,) = jobs["envoy"]["static_configs"]
    host, port = envoy["targets"][0].split(":")
    assert port in SERVICES[host]["expose"]
