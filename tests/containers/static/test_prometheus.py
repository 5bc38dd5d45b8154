"""Rules and dashboards use existing metrics, and every alert can fire."""

import json
import re
from typing import Any

import pytest
import yaml

from service.settings import Settings
from tests.containers.promql import ENVOY, alerts, metric_names, recorded, server_metrics
from tests.containers.tools import DOCKER, ROOT, run, tool

RULES = sorted((DOCKER / "prometheus" / "rules").glob("*.yml"))
ALERT_TESTS = DOCKER / "prometheus" / "tests" / "alerts.yml"
DASHBOARD: dict[str, Any] = json.loads((DOCKER / "grafana/dashboards/dragoman.json").read_text())
RUNBOOK = (DOCKER / "RUNBOOK.md").read_text()
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def test_promtool_accepts_rules_and_configuration() -> None:
    promtool = tool("promtool")
    run(promtool, "check", "rules", *RULES)
    run(promtool, "check", "config", "--syntax-only", DOCKER / "prometheus" / "prometheus.yml")


def test_every_alert_fires_and_stays_silent() -> None:
    run(tool("promtool"), "test", "rules", ALERT_TESTS)
    tests = yaml.safe_load(ALERT_TESTS.read_text())["tests"]
    seen = {case["alertname"] for test in tests for case in test.get("alert_rule_test", [])}
    silent = [
        test["name"]
        for test in tests
        for case in test.get("promql_expr_test", [])
        if case["expr"].startswith("count(ALERTS") and not case["exp_samples"]
    ]
    for test in tests:
        for case in test.get("promql_expr_test", []):
            for sample in case["exp_samples"]:
                seen |= {name for name in alerts() if f'alertname="{name}"' in sample["labels"]}
    assert seen == set(alerts())
    # The first of these has a series for every alert's metrics, so that none is silent for want
    # of data.
    assert silent
    quiet = json.dumps(tests[0]["input_series"])
    for alert in alerts().values():
        for name in _raw_names(alert["expr"]):
            assert name in quiet, f"{alert['alert']}: {name} is not in {tests[0]['name']!r}"


def _raw_names(expression: str) -> set[str]:
    names: set[str] = set()
    for name in metric_names(expression):
        names |= _raw_names(recorded()[name]) if name in recorded() else {name}
    return names


@pytest.mark.parametrize("name", [*recorded(), *alerts()])
def test_rules_read_metrics_that_there_are(name: str) -> None:
    expression = recorded().get(name) or alerts()[name]["expr"]
    assert metric_names(expression)
    assert metric_names(expression) <= server_metrics() | set(recorded()) | ENVOY


def test_alerts_say_what_to_do() -> None:
    for name, alert in alerts().items():
        assert alert["labels"]["severity"] in {"page", "ticket"}, name
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}, name
        assert "for" in alert, name


def test_every_alert_is_in_the_runbook() -> None:
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", RUNBOOK, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(alerts())
    for name, alert in alerts().items():
        assert alert["annotations"]["runbook_url"] == f"docker/RUNBOOK.md#{name.lower()}"
        for part in ("**Means**: ", "**Look**: ", "**Do**: "):
            assert sections[name].count(f"\n{part}") == 1, (name, part)


def test_what_the_runbook_names_exists() -> None:
    metrics = set(re.findall(r"\b(?:job\w*:)?(?:dragoman|envoy|process)_[\w:]+", RUNBOOK))
    assert len(metrics) > 15
    there = server_metrics() | ENVOY
    assert metrics <= there | {_stem(name) for name in there} | set(recorded())
    options = set(re.findall(r"`--([a-z-]+)`", RUNBOOK))
    assert {name.replace("-", "_") for name in options} <= set(Settings.__dataclass_fields__)
    messages = re.findall(r'`"([^"`]+)', RUNBOOK.replace("\n", " "))
    code = "".join(file.read_text() for file in (ROOT / "service").rglob("*.py"))
    assert [message for message in messages if f'"{message}' not in code] == []
    assert len(messages) > 5


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_panels_read_metrics_that_there_are(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert metric_names(target["expr"])
        assert metric_names(target["expr"]) <= server_metrics() | set(recorded())
        assert target["datasource"]["uid"] == "prometheus"


def test_the_dashboard_is_provisioned() -> None:
    provisioning = DOCKER / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    (provider,) = yaml.safe_load((provisioning / "dashboards/dragoman.yaml").read_text())[
        "providers"
    ]
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert source["uid"] == "prometheus"
    assert mounts["./grafana/dashboards"] == provider["options"]["path"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_metric_of_the_engine_is_on_the_dashboard() -> None:
    asked: set[str] = set()
    for panel in PANELS:
        for target in panel["targets"]:
            asked |= _raw_names(target["expr"])
    stems = {_stem(name) for name in asked}
    given = {_stem(name) for name in server_metrics() if name.startswith("dragoman_")}
    # The limit is part of a ratio that only the alert reads.
    assert given - stems == {"dragoman_waiting_sentences_limit"}


def _stem(name: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", name)
