"""Envoy accepts its configuration, and names in the configuration exist."""

from typing import Any

import yaml

from service.fronts.dragoman.servicer import SERVICE
from tests.containers.tools import DOCKER, run, tool
from tests.robustness.envoy import CONFIGURATION


def test_envoy_accepts_it_without_a_warning() -> None:
    envoy = tool("envoy")
    output = run(envoy, "--mode", "validate", "--config-path", CONFIGURATION)
    assert "OK" in output
    assert [line for line in output.splitlines() if "[warning]" in line] == []


def test_compose_opens_every_port_that_it_asks() -> None:
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    opened = {int(port) for port in services["dragoman"]["expose"]}
    clusters = yaml.safe_load(CONFIGURATION.read_text())["static_resources"]["clusters"]
    asked = {
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"][
            "socket_address"
        ]["port_value"]
        for cluster in clusters
        if cluster["name"].startswith("dragoman")
    }
    assert asked == {50051, int(services["dragoman"]["environment"]["DRAGOMAN_HTTP_PORT"])}
    assert asked <= opened


def filters() -> dict[str, Any]:
    listener = yaml.safe_load(CONFIGURATION.read_text())["static_resources"]["listeners"][0]
    manager: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return {item["name"]: item["typed_config"] for item in manager["http_filters"]} | {
        "routes": manager["route_config"]["virtual_hosts"][0]
    }


def test_only_what_is_safe_is_tried_again() -> None:
    host = filters()["routes"]
    causes = set(host["retry_policy"]["retry_on"].split(","))
    calls_that_reached_nobody = {"connect-failure", "refused-stream", "reset"}
    assert causes - {"retriable-status-codes"} == {
        *calls_that_reached_nobody,
        *("unavailable", "cancelled"),
    }
    # The same two over HTTP.
    assert host["retry_policy"]["retriable_status_codes"] == [503, 499]
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
