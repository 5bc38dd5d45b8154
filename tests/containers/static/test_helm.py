"""The Helm chart: valid, the same as the overlays, strict about its values.

`test_kubernetes.py` checks the chart's objects together with those of the overlays.
"""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import dragoman
from service.settings_sources import load_settings
from tests.containers.chart import (
    AS_OVERLAYS,
    CASES,
    CHART,
    Values,
    helm,
    refusal,
    render_chart,
    rendered_case,
)
from tests.containers.chart_settings import SCHEMA, with_settings
from tests.containers.kustomize import Manifest
from tests.containers.promql import rule_groups
from tests.containers.tools import DOCKER, run, tool

DASHBOARD = DOCKER / "grafana" / "dashboards" / "dragoman.json"
# Kinds defined by operators, which Kubernetes' own schemas don't have.
CUSTOM = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "GRPCRoute", "HTTPRoute"}


def found(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    matching = [
        item
        for item in manifests
        if item["kind"] == kind and item["metadata"]["name"].endswith(name)
    ]
    return matching[0]


def pod(manifests: list[Manifest]) -> Manifest:
    spec: Manifest = found(manifests, "Deployment")["spec"]["template"]["spec"]
    return spec


def settings(manifests: list[Manifest]) -> dict[str, str]:
    data: dict[str, str] = found(manifests, "ConfigMap", "-settings")["data"]
    return data


def test_helm_finds_no_fault() -> None:
    for case in ("default", "all"):
        done = helm("lint", "--strict", CHART, values=CASES[case])
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_kubernetes_accepts_it(version: str, tmp_path: Path) -> None:
    cases = set(CASES) - ({"bundle-volume"} if version == "1.29" else set())  # a volume of an image
    manifests = {yaml.safe_dump(item) for case in cases for item in rendered_case(case)}
    file = tmp_path / "manifests.yaml"
    file.write_text("---\n".join(sorted(manifests)))
    output = run(tool("kubernetes-validate"), "--strict", "-k", version, file)
    unknown = set(re.findall(r"Couldn't find schema for kind (\w+)", output))
    assert unknown == CUSTOM


# --- the same as docker/kubernetes ----------------------------------------------------------------


def comparable(value: Any) -> Any:
    """A manifest without what differs on purpose: labels and selectors, which Helm adds to."""
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if not isinstance(value, dict):
        return " ".join(value.split()) if isinstance(value, str) else value
    kept = {key: comparable(each) for key, each in value.items()}
    for key in ("matchLabels", "selector"):
        if "app.kubernetes.io/name" in kept.get(key, {}):
            kept[key].pop("app.kubernetes.io/instance", None)
    if "metadata" in kept and "name" in kept["metadata"]:
        kept["metadata"] = {"name": kept["metadata"]["name"]}
    return kept


def by_name(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    made = {(item["kind"], item["metadata"]["name"]): comparable(item) for item in manifests}
    template = made["Deployment", "dragoman"]["spec"]["template"]
    template.pop("metadata")
    (server,) = template["spec"]["containers"]
    # The overlays' Secret is a place for settings of one's own; the chart names an existing one.
    server["envFrom"] = server["envFrom"][:1]
    for listed in ("ports", "volumeMounts", "volumes"):  # the order has no meaning
        for holder in (server, template["spec"]):
            holder.get(listed, []).sort(key=lambda each: str(each["name"]))
    return made


@pytest.mark.parametrize("name", AS_OVERLAYS)
def test_it_makes_what_the_overlay_makes(name: str, rendered: dict[str, list[Manifest]]) -> None:
    theirs, ours = by_name(rendered[name]), by_name(rendered_case(name))
    assert set(theirs) - set(ours) <= {
        ("Secret", "dragoman-private"),
        ("PriorityClass", "dragoman"),
        ("NetworkPolicy", "dragoman-http"),  # in the chart, a port of the only policy
    }
    assert set(ours) - set(theirs) == {("Pod", "dragoman-health")}
    for each in set(theirs) & set(ours):
        if each == ("NetworkPolicy", "dragoman") and name == "http":
            ours[each]["spec"]["ingress"][0]["ports"].remove({"port": "http", "protocol": "TCP"})
        assert ours[each] == theirs[each], each


def test_rules_and_dashboards_are_those_of_prometheus_and_grafana() -> None:
    manifests = rendered_case("all")
    groups = [group for group in rule_groups() if group["name"] != "dragoman-front-alerts"]
    assert found(manifests, "PrometheusRule")["spec"]["groups"] == groups
    boards = found(manifests, "ConfigMap", "-dashboards")["data"]
    assert boards == {DASHBOARD.name: DASHBOARD.read_text()}


def test_a_package_of_the_chart_is_complete(tmp_path: Path) -> None:
    # Rules and dashboards are links to other folders.
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as files:
        packed = files.extractfile(f"dragoman/files/dashboards/{DASHBOARD.name}")
        assert packed
        assert packed.read() == DASHBOARD.read_bytes()
    done = helm("template", "x", package, values=CASES["all"])
    assert "kind: PrometheusRule" in done.stdout


def test_it_has_the_projects_version() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == dragoman.__version__


# --- values ---------------------------------------------------------------------------------------


def test_every_setting_is_a_value() -> None:
    text = SCHEMA.read_text()
    assert text == with_settings(text), "run python -m tests.containers.chart_settings"


def test_every_value_has_a_schema_and_a_default() -> None:
    def check(values: Any, schema: Any, path: str) -> None:
        properties = schema.get("properties", {})
        if path == ".settings" or not properties:
            return
        assert schema["additionalProperties"] is False, path
        assert set(properties) - {"global"} == set(values), path
        for name, value in values.items():
            check(value, properties[name], f"{path}.{name}")

    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    check(defaults, json.loads(SCHEMA.read_text()), "")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 3}, "replica"),
        ({"settings": {"max_row": 3}}, "max_row"),
        ({"settings": {"max_rows": "many"}}, "settings.max_rows"),
        ({"settings": {"max_rows": 5000}}, "settings.max_rows"),
        ({"settings": {"log_level": "loud"}}, "settings.log_level"),
        ({"settings": {"jwks_url": "https://user:word@id.example"}}, "settings.jwks_url"),
        ({"settings": {"port": 1}}, "port"),  # the chart's own
        ({"tls": {"sercet": "x"}}, "sercet"),
        ({"autoscaling": {"type": "vpa"}}, "autoscaling.type"),
        ({"models": {"source": "download"}}, "models.source"),
        ({"models": {"source": "image", "image": "x", "names": ["a:b"]}}, "models.names.0"),
        ({"models": {"pull": {"url": "https://user:word@mirror"}}}, "models.pull.url"),
        ({"image": {"digest": "sha256:12"}}, "image.digest"),
        ({"glossaries": {"files": {"terms.txt": ""}}}, "terms.txt"),
        # By the templates: contradictions between values.
        ({"gpu": {"enabled": True}}, "models.source"),
        ({"models": {"source": "image", "image": "x"}}, "models.names"),
        ({"models": {"names": ["x"]}}, "models.names"),
        ({"models": {"source": "image", "names": ["x"]}}, "models.image"),
        ({"models": {"source": "volume", "names": ["x"]}}, "models.volume"),
        ({"models": {"source": "pull", "names": ["en-de"]}}, "models.pull.image"),
        ({"ingress": {"enabled": True}}, "http.enabled"),
        ({"gateway": {"grpc": True}}, "gateway.parentRefs"),
        ({"tls": {"clientCa": True}}, "tls.secret"),
        ({"glossaries": {"files": {"a.tsv": ""}, "configMap": "x"}}, "glossaries"),
        ({"autoscaling": {"minReplicas": 30}}, "autoscaling.maxReplicas"),
    ],
)
def test_wrong_values_are_refused_by_name(values: Values, named: str) -> None:
    assert re.search(rf"\b{re.escape(named)}\b", refusal(values).replace("/", "."))


@pytest.mark.parametrize("case", CASES)
def test_settings_reach_the_server_as_they_are(case: str) -> None:
    data = settings(rendered_case(case))
    understood = load_settings({}, data)
    for name, value in CASES[case].get("settings", {}).items():
        wanted = tuple(value) if isinstance(value, list) else value
        assert getattr(understood, name) == wanted
    models = CASES[case].get("models", {"source": "bundled"})
    if models["source"] in ("image", "volume"):
        assert understood.model == tuple(Path("/models") / name for name in models["names"])


def test_a_number_of_threads_replaces_that_of_the_cores() -> None:
    (server,) = pod(rendered_case("all"))["containers"]
    assert "DRAGOMAN_THREADS" not in {each["name"] for each in server["env"]}


def test_a_changed_setting_restarts_the_pods() -> None:
    def annotations(values: Values) -> Manifest:
        template = found(render_chart(values), "Deployment")["spec"]["template"]
        about: Manifest = template["metadata"]["annotations"]
        return about

    assert annotations({}) == annotations({"replicas": 5})
    assert annotations({}) != annotations({"settings": {"max_waiting": 5}})


def test_keys_are_read_from_a_secret_and_usage_is_kept_beside_them() -> None:
    manifests = rendered_case("secured")
    assert not any(item["kind"] == "Secret" for item in manifests)
    (server,) = pod(manifests)["containers"]
    mounts = {each["name"]: each for each in server["volumeMounts"]}
    volumes = {each["name"]: each for each in pod(manifests)["volumes"]}
    data = settings(manifests)
    assert volumes["keys"]["secret"] == {"secretName": "dragoman-keys"}
    assert data["DRAGOMAN_KEYS"] == f"{mounts['keys']['mountPath']}/keys.jsonl"
    assert data["DRAGOMAN_USAGE"].startswith(f"{mounts['usage']['mountPath']}/")
    assert "readOnly" not in mounts["usage"]
    assert volumes["usage"] == {"name": "usage", "emptyDir": {}}
    assert data["DRAGOMAN_GLOSSARY_DIR"] == mounts["glossaries"]["mountPath"]
    named = volumes["glossaries"]["configMap"]["name"]
    assert list(found(manifests, "ConfigMap", named)["data"]) == ["products.en-de.tsv"]


def test_what_is_pulled_is_what_is_served() -> None:
    manifests = rendered_case("pull")
    (pull,) = pod(manifests)["initContainers"]
    (server,) = pod(manifests)["containers"]
    assert server["args"] == ["serve", "en-de", "de-en", "fr-en"]
    mounted = {each["mountPath"]: each["name"] for each in pull["volumeMounts"]}
    directory = {each["name"]: each["value"] for each in pull["env"]}["DRAGOMAN_MODELS_DIR"]
    assert directory == settings(manifests)["DRAGOMAN_MODELS_DIR"]
    assert server["volumeMounts"] == [
        {"name": mounted[directory], "mountPath": directory, "readOnly": True}
    ]
    volumes = {each["name"]: each for each in pod(manifests)["volumes"]}
    assert volumes["bundles"]["persistentVolumeClaim"] == {"claimName": "dragoman-models"}
    # The pod can write the claim.
    about = pod(manifests)["securityContext"]
    assert about["fsGroup"] == about["runAsGroup"]


def test_only_missing_models_are_pulled(tmp_path: Path) -> None:
    (pull,) = pod(rendered_case("pull"))["initContainers"]
    (tmp_path / "models" / "de-en").mkdir(parents=True)
    (tmp_path / "models" / "de-en" / "bundle.json").touch()
    program = tmp_path / "dragoman"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    words = [word.replace("/models/", f"{tmp_path}/models/") for word in pull["command"]]
    done = subprocess.run(
        [*words, *pull["args"]],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "pull en-de --type tiny\npull fr-en --type tiny\n"


def test_routes_and_ingress_reach_ports_that_there_are() -> None:
    manifests = rendered_case("all")
    ports = {
        (item["metadata"]["name"], port["port"])
        for item in manifests
        if item["kind"] == "Service"
        for port in item["spec"]["ports"]
    }
    for kind in ("GRPCRoute", "HTTPRoute"):
        (rule,) = found(manifests, kind)["spec"]["rules"]
        (backend,) = rule["backendRefs"]
        assert (backend["name"], backend["port"]) in ports
    (rule,) = found(manifests, "Ingress")["spec"]["rules"]
    assert rule["host"] == "mt.example"
    assert rule["http"]["paths"][0]["backend"]["service"] == {
        "name": "mt-http",
        "port": {"name": "http"},
    }


def test_extra_rules_of_the_network_policy_are_added() -> None:
    rule = {"to": [{"podSelector": {"matchLabels": {"app": "cache"}}}]}
    policy = found(render_chart({"networkPolicy": {"extraEgress": [rule]}}), "NetworkPolicy")
    dns, added = policy["spec"]["egress"]
    assert added == rule
    assert {each["port"] for each in dns["ports"]} == {53}


def test_the_test_pod_calls_the_server_as_a_client() -> None:
    manifests = rendered_case("secured")
    caller = found(manifests, "Pod")
    policy = found(manifests, "NetworkPolicy")["spec"]["ingress"][0]["from"][0]["podSelector"]
    labels = caller["metadata"]["labels"]
    assert policy["matchLabels"].items() <= labels.items()
    # It must not be a pod of the Services.
    assert not labels.items() & found(manifests, "Service")["spec"]["selector"].items()
    (container,) = caller["spec"]["containers"]
    assert "--ca=/tls/ca.crt" in container["args"]
    assert "--server=dragoman:50051" in container["args"]


def test_a_release_of_another_name_has_the_same_job() -> None:
    manifests = render_chart(CASES["example-production"], release="shop")
    names = {item["metadata"]["name"].removesuffix("-health") for item in manifests}
    assert names == {"shop-dragoman", "shop-dragoman-settings", "shop-dragoman-dashboards"}
    labels = found(manifests, "Service")["metadata"]["labels"]
    assert labels[found(manifests, "ServiceMonitor")["spec"]["jobLabel"]] == "dragoman"
