"""The compose file: hardened, on loopback, and all names in it exist."""

import re
from typing import Any

import pytest
import yaml

from service.settings import Settings
from tests.containers.tools import DOCKER, ROOT

TEXT = (DOCKER / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVERS = ("dragoman", "dragoman-gpu")
SETTINGS = {f"DRAGOMAN_{field.upper()}" for field in Settings.__dataclass_fields__}


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    assert "mem_limit" in service
    if not service["image"].startswith(("dragoman:", "${SERVER_IMAGE", "${GPU_IMAGE")):
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
    # The longest time that server.py needs besides the drain, and Docker's own delay.
    assert int(service["stop_grace_period"].removesuffix("s")) >= drain + 5
    assert set(service["environment"]) <= SETTINGS


def test_variables_are_documented() -> None:
    # The file has comments, which name some too.
    variables = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", yaml.safe_dump(COMPOSE)))
    rows = re.findall(
        r"^\| (`[^|]*`) \| ([^|]*) \|", (DOCKER / "README.md").read_text(), re.MULTILINE
    )
    documented: dict[str, str] = {}
    for names, defaults in rows:
        values = defaults.replace("`", "").split(", ")
        documented |= dict(zip(re.findall(r"`(\w+)`", names), values, strict=True))
    # The image's value, where the variable is not passed on.
    assert documented.pop("DRAGOMAN_MODEL") == "the model in the image"
    assert documented == variables
    # A server refuses one that it does not know; and none may mean something else to it.
    assert {name for name in variables if name.startswith("DRAGOMAN_")} <= SETTINGS


def test_replicas_do_not_take_each_other_s_cores() -> None:
    # On two cores; and on more, none has threads that wait for a core.
    scale = SERVICES["dragoman"]["scale"]
    assert SERVICES["dragoman"]["environment"]["DRAGOMAN_THREADS"] == "${DRAGOMAN_THREADS:-1}"
    command = f"DRAGOMAN_THREADS=$(($(nproc) / {scale})) docker compose -f docker/compose.yaml up"
    for text in (TEXT, (DOCKER / "README.md").read_text(), (ROOT / "README.md").read_text()):
        assert command in text


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
