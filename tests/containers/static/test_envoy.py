"""Envoy accepts its configuration, and the configuration names what there is."""

import re
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import descriptor_pb2

from dragoman.v1 import translation_pb2
from service.fronts.dragoman.servicer import SERVICE
from tests.containers.tools import DOCKER, run, tool
from tests.robustness.envoy import CONFIGURATION, DESCRIPTOR, local_text


def test_envoy_accepts_it_without_a_warning(tmp_path: Path) -> None:
    envoy = tool("envoy")
    local = tmp_path / "envoy.yaml"
    local.write_text(local_text())
    output = run(envoy, "--mode", "validate", "--config-path", local)
    assert "OK" in output
    assert [line for line in output.splitlines() if "[warning]" in line] == []


def test_compose_gives_it_every_file_that_it_names() -> None:
    named = set(re.findall(r"/etc/envoy/\S+\b", CONFIGURATION.read_text()))
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    mounted = {volume.split(":")[1] for volume in services["envoy"]["volumes"]}
    assert mounted == named | {"/etc/envoy/envoy.yaml"}
    assert len(named) == 2


def filters() -> dict[str, Any]:
    listener = yaml.safe_load(CONFIGURATION.read_text())["static_resources"]["listeners"][0]
    manager: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return {item["name"]: item["typed_config"] for item in manager["http_filters"]} | {
        "routes": manager["route_config"]["virtual_hosts"][0]
    }


def test_the_transcoder_knows_every_method() -> None:
    transcoder = filters()["envoy.filters.http.grpc_json_transcoder"]
    assert transcoder["services"] == [SERVICE]
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTOR.read_bytes()).file
    (contract,) = [file for file in files if file.name.endswith("translation.proto")]
    (service,) = contract.service
    assert f"{contract.package}.{service.name}" == SERVICE
    methods = translation_pb2.DESCRIPTOR.services_by_name["TranslationService"].methods
    assert [method.name for method in service.method] == [method.name for method in methods]
    # What an error's details hold, to be written as JSON too.
    assert any(file.name == "google/rpc/error_details.proto" for file in files)


def test_only_what_is_safe_is_tried_again() -> None:
    host = filters()["routes"]
    causes = set(host["retry_policy"]["retry_on"].split(","))
    calls_that_reached_nobody = {"connect-failure", "refused-stream", "reset"}
    assert causes == {*calls_that_reached_nobody, "unavailable", "cancelled"}
    assert all("retry_policy" not in route.get("route", {}) for route in host["routes"])


def test_the_callers_deadline_is_the_limit() -> None:
    (route,) = [
        route["route"]
        for route in filters()["routes"]["routes"]
        if route["match"].get("prefix") == f"/{SERVICE}/"
    ]
    assert route["timeout"] == "0s"
    assert route["max_stream_duration"]["grpc_timeout_header_max"] == "0s"


def test_health_checks_ask_for_a_service_of_the_server() -> None:
    clusters = yaml.safe_load(CONFIGURATION.read_text())["static_resources"]["clusters"]
    (cluster,) = [item for item in clusters if item["name"] == "dragoman"]
    (check,) = cluster["health_checks"]
    assert check["grpc_health_check"]["service_name"] == SERVICE
