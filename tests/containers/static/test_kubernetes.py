"""The manifests are valid, and every name in them refers to an existing object."""

import json
import re
import runpy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

import dragoman
from service.fronts.dragoman.servicer import SERVICE
from service.settings import Settings
from tests.containers.chart import CASES, rendered_case
from tests.containers.kustomize import Manifest
from tests.containers.promql import (
    ENVOY,
    adapter_queries,
    alerts,
    keda_queries,
    metric_names,
    recorded,
    rule_groups,
    server_metrics,
)
from tests.containers.static.conftest import OVERLAYS
from tests.containers.tools import DOCKER, run, tool

MANIFESTS = DOCKER / "kubernetes"
# Kinds defined by operators, which Kubernetes' own schemas don't have.
CUSTOM = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}


@pytest.fixture(params=[*OVERLAYS, *(f"chart {case}" for case in CASES)])
def objects(
    rendered: dict[str, list[Manifest]], request: pytest.FixtureRequest
) -> dict[str, Manifest]:
    """The objects of an overlay, or of the Helm chart, by kind; further ones by `kind name`."""
    _, _, case = request.param.partition("chart ")
    return named(rendered_case(case) if case else rendered[request.param])


@pytest.fixture(params=OVERLAYS)
def overlay_objects(
    rendered: dict[str, list[Manifest]], request: pytest.FixtureRequest
) -> dict[str, Manifest]:
    """The objects of an overlay, as `objects`."""
    return named(rendered[request.param])


def named(manifests: list[Manifest]) -> dict[str, Manifest]:
    found: dict[str, Manifest] = {}
    for item in manifests:
        kind = item["kind"]
        found[kind if kind not in found else f"{kind} {item['metadata']['name']}"] = item
    assert len(found) == len(manifests)
    return found


def all_of(objects: dict[str, Manifest], kind: str) -> list[Manifest]:
    return [item for item in objects.values() if item["kind"] == kind]


def pod(objects: dict[str, Manifest]) -> Manifest:
    spec: Manifest = objects["Deployment"]["spec"]["template"]["spec"]
    return spec


def container(objects: dict[str, Manifest]) -> Manifest:
    (only,) = pod(objects)["containers"]
    return dict(only)


@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_kubernetes_accepts_them(
    rendered: dict[str, list[Manifest]], version: str, tmp_path: Path
) -> None:
    files = [tmp_path / f"{overlay}.yaml" for overlay in OVERLAYS]
    for file in files:
        file.write_text(yaml.safe_dump_all(rendered[file.stem]))
    output = run(tool("kubernetes-validate"), "--strict", "-k", version, *files)
    unknown = set(re.findall(r"Couldn't find schema for kind (\w+)", output))
    assert unknown == CUSTOM


def test_overlays_hold_what_they_should(rendered: dict[str, list[Manifest]]) -> None:
    kinds = {overlay: {item["kind"] for item in items} for overlay, items in rendered.items()}
    base = {"ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment"}
    production = base | {"PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "PrometheusRule"}
    production |= {"PriorityClass"}
    assert kinds == {
        "cpu": production | {"HorizontalPodAutoscaler"},
        "gpu": production | {"HorizontalPodAutoscaler"},
        "own-model": production | {"HorizontalPodAutoscaler"},
        "keda": production | {"ScaledObject"},
        "tls": production | {"HorizontalPodAutoscaler"},
        "http": production | {"HorizontalPodAutoscaler"},
        "all": production | {"HorizontalPodAutoscaler"},
        "dev": base,
    }


def test_selectors_match_the_pods(objects: dict[str, Manifest]) -> None:
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        *(service["spec"]["selector"] for service in all_of(objects, "Service")),
        *(
            policy["spec"]["podSelector"]["matchLabels"]
            for policy in all_of(objects, "NetworkPolicy")
        ),
    ]
    for constraint in pod(objects)["topologySpreadConstraints"]:
        selectors.append(constraint["labelSelector"]["matchLabels"])
    if "PodDisruptionBudget" in objects:
        selectors.append(objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
    for selector in selectors:
        assert selector
        assert selector.items() <= labels
    if "ServiceMonitor" in objects:
        monitor = objects["ServiceMonitor"]["spec"]
        service = objects["Service"]["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= service.items()
        # The rules ask for it.
        assert service[monitor["jobLabel"]] == "dragoman"


def test_clients_need_not_be_servers(objects: dict[str, Manifest]) -> None:
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for policy in all_of(objects, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            for peer in rule["from"]:
                (selector,) = peer.values()
                assert not selector["matchLabels"].items() & labels.items()


def test_ports_and_probes_are_the_servers(objects: dict[str, Manifest]) -> None:
    data = objects["ConfigMap"]["data"]
    ports = {port["name"]: port["containerPort"] for port in container(objects)["ports"]}
    http = {"http": int(data["DRAGOMAN_HTTP_PORT"])} if "DRAGOMAN_HTTP_PORT" in data else {}
    assert ports == {"grpc": Settings.port, "metrics": Settings.metrics_port, **http}
    over_tls = "DRAGOMAN_TLS_CERT" in objects["ConfigMap"]["data"]
    scheme = {"scheme": "HTTPS"} if over_tls else {}
    ready: Manifest = {"grpc": {"port": ports["grpc"], "service": SERVICE}}
    if over_tls:  # which the kubelet's probes of gRPC can't speak
        ready = {"httpGet": {"path": "/readyz", "port": "metrics", **scheme}}
    for kind in ("startupProbe", "readinessProbe"):
        probe = container(objects)[kind]
        assert {name: probe[name] for name in probe if name in ("grpc", "httpGet")} == ready
    live = container(objects)["livenessProbe"]["httpGet"]
    assert live == {"path": "/livez", "port": "metrics", **scheme}
    served = [port for service in all_of(objects, "Service") for port in service["spec"]["ports"]]
    assert {port["targetPort"]: port["port"] for port in served} == ports
    assert {port["appProtocol"] == "https" for port in served} == {over_tls}
    if "ServiceMonitor" in objects:
        named = {port["name"] for port in objects["Service"]["spec"]["ports"]}
        (endpoint,) = objects["ServiceMonitor"]["spec"]["endpoints"]
        assert endpoint["port"] in named
        assert endpoint.get("scheme", "http") == ("https" if over_tls else "http")
    policies = all_of(objects, "NetworkPolicy")
    rules = [rule for policy in policies for rule in policy["spec"].get("ingress", [])]
    assert {port["port"] for rule in rules for port in rule["ports"]} == (
        set(ports) if rules else set()
    )


def test_the_server_may_connect_to_what_its_settings_name_and_nothing_else(
    objects: dict[str, Manifest],
) -> None:
    if "NetworkPolicy" not in objects:
        return
    data = objects["ConfigMap"]["data"]
    data = data | {each["name"]: each.get("value") for each in container(objects)["env"]}
    urls = [data.get(name) for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "DRAGOMAN_JWKS_URL")]
    for each in pod(objects).get("initContainers", []):
        if each["name"] == "pull":
            known = {item["name"]: item["value"] for item in each["env"]}
            urls.append(known.get("DRAGOMAN_MODELS_URL", "https://its.default"))
    wanted = {urlsplit(url).port or 443 for url in urls if url}
    policies = all_of(objects, "NetworkPolicy")
    # With this, nothing is allowed but what a policy names.
    assert {"Ingress", "Egress"} == {*policies[0]["spec"]["policyTypes"]}
    rules = [rule for policy in policies for rule in policy["spec"].get("egress", [])]
    allowed = {port["port"] for rule in rules for port in rule["ports"]}
    assert allowed == (wanted | {53} if wanted else set())
    assert all(rule["to"] for rule in rules)
    for rule in rules:
        for peer in rule["to"]:
            namespaces = peer.get("namespaceSelector", {}).get("matchLabels", {}).values()
            assert peer.get("ipBlock") or peer["podSelector"]["matchLabels"]
            assert {*namespaces} <= {"kube-system", "observability"}
    if data.get("DRAGOMAN_TRACING"):
        _, namespace = urlsplit(data["OTEL_EXPORTER_OTLP_ENDPOINT"]).netloc.split(":")[0].split(".")
        assert namespace == "observability"


def test_pods_have_the_priority_that_is_made_for_them(overlay_objects: dict[str, Manifest]) -> None:
    if "PriorityClass" not in overlay_objects:
        assert "priorityClassName" not in pod(overlay_objects)
        return
    made = overlay_objects["PriorityClass"]
    assert pod(overlay_objects)["priorityClassName"] == made["metadata"]["name"]
    assert 0 < made["value"] <= 1_000_000_000


def test_the_certificate_is_mounted_so_that_it_can_change(
    rendered: dict[str, list[Manifest]],
) -> None:
    objects = named(rendered["tls"])
    (mounted,) = container(objects)["volumeMounts"]
    assert "subPath" not in mounted  # which Kubernetes never updates
    (volume,) = pod(objects)["volumes"]
    assert volume == {"name": mounted["name"], "secret": {"secretName": "dragoman-tls"}}
    data = objects["ConfigMap"]["data"]
    for setting, key in (("CERT", "tls.crt"), ("KEY", "tls.key")):
        assert data[f"DRAGOMAN_TLS_{setting}"] == f"{mounted['mountPath']}/{key}"


def test_settings_are_those_of_the_server(objects: dict[str, Manifest]) -> None:
    names = set(objects["ConfigMap"]["data"]) | {item["name"] for item in container(objects)["env"]}
    names -= {name for name in names if name.startswith("OTEL_")}  # of OpenTelemetry
    names -= {"DRAGOMAN_MODELS_DIR"}  # an option of `dragoman serve`, no setting
    assert names <= {f"DRAGOMAN_{field.upper()}" for field in Settings.__dataclass_fields__}
    sources = [next(iter(source.values()))["name"] for source in container(objects)["envFrom"]]
    private = objects.get("Secret", {"metadata": {"name": "private"}})  # the chart makes none
    own = [item["metadata"]["name"] for item in (objects["ConfigMap"], private)]
    assert sources == own[: len(sources)]


def test_termination_fits_the_drain(objects: dict[str, Manifest]) -> None:
    drain = float(objects["ConfigMap"]["data"]["DRAGOMAN_DRAIN_SECONDS"])
    command, seconds = container(objects)["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert pod(objects)["terminationGracePeriodSeconds"] >= float(seconds) + drain + 5


def test_pods_are_hardened(objects: dict[str, Manifest]) -> None:
    (user,) = re.findall(r"^USER (\d+):", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    about = pod(objects)["securityContext"]
    assert about["runAsNonRoot"] is True
    assert about["runAsUser"] == int(user)
    assert about["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (*pod(objects).get("initContainers", []), container(objects)):
        inner = each["securityContext"]
        assert inner["readOnlyRootFilesystem"] is True
        assert inner["allowPrivilegeEscalation"] is False
        assert inner["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in each["resources"]["limits"]
    assert pod(objects)["automountServiceAccountToken"] is False
    # Kubernetes would set DRAGOMAN_PORT=tcp://..., for the Service called dragoman.
    assert pod(objects)["enableServiceLinks"] is False
    assert pod(objects)["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"]


def test_what_the_init_container_copies_is_what_is_served(
    rendered: dict[str, list[Manifest]],
) -> None:
    objects = named(rendered["own-model"])
    (init,) = pod(objects)["initContainers"]
    assert init["image"] == "my-bundles:1"
    (filled,) = init["volumeMounts"]
    (mounted,) = container(objects)["volumeMounts"]
    assert mounted == {**filled, "readOnly": True}
    assert init["command"] == ["cp", "-R", "/bundles/.", f"{mounted['mountPath']}/"]
    (volume,) = pod(objects)["volumes"]
    assert volume["name"] == mounted["name"]
    model = objects["ConfigMap"]["data"]["DRAGOMAN_MODEL"]
    assert str(Path(model).parent) == mounted["mountPath"]
    # The rest is the same as in the overlay that it is based on.
    assert container(objects)["image"] == container(named(rendered["cpu"]))["image"]


def test_autoscalers_scale_the_deployment_on_metrics_that_there_are(
    objects: dict[str, Manifest],
) -> None:
    deployment = objects["Deployment"]
    for kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        if kind in objects:
            target = objects[kind]["spec"]["scaleTargetRef"]
            assert target["kind"] == deployment["kind"]
            assert target["name"] == deployment["metadata"]["name"]
            # Else every apply would undo the autoscaler's work.
            assert "replicas" not in deployment["spec"]
    if "ScaledObject" in objects:
        triggers = objects["ScaledObject"]["spec"]["triggers"]
        queries = {trigger["name"]: trigger["metadata"]["query"] for trigger in triggers}
        assert _unfolded(queries) == _unfolded(keda_queries())  # kubectl folds lines in its own way
        assert set(queries) == {"rows", "queue", "refused"}
    if "HorizontalPodAutoscaler" in objects:
        metrics = objects["HorizontalPodAutoscaler"]["spec"]["metrics"]
        wanted = {metric["pods"]["metric"]["name"] for metric in metrics}
        assert wanted == set(adapter_queries())


@pytest.mark.parametrize("query", [*adapter_queries().values(), *keda_queries().values()])
def test_autoscalers_read_metrics_that_there_are(query: str) -> None:
    assert metric_names(query)
    assert metric_names(query) <= server_metrics() | set(recorded())


def test_the_operators_rules_are_prometheus_rules(rendered: dict[str, list[Manifest]]) -> None:
    writer = runpy.run_path(str(MANIFESTS / "write_rules.py"))
    assert writer["OUTPUT"].read_text() == writer["operator_rules"](), "run write_rules.py"
    (rules,) = [item for item in rendered["cpu"] if item["kind"] == "PrometheusRule"]
    groups = [group for group in rule_groups() if group["name"] != "dragoman-front-alerts"]
    assert _unfolded(rules["spec"]["groups"]) == _unfolded(groups)
    assert len(alerts()) > 10
    for group in groups:
        for rule in group["rules"]:
            assert not metric_names(rule["expr"]) & ENVOY


def _unfolded(value: Any) -> str:
    return re.sub(r"(\\n|\s)+", " ", json.dumps(value, sort_keys=True))


def test_images_have_the_projects_version(overlay_objects: dict[str, Manifest]) -> None:
    image = container(overlay_objects)["image"]
    of_now = {f"dragoman:{dragoman.__version__}-{kind}" for kind in ("cpu", "gpu")}
    assert image in {*of_now, "dragoman:cpu"}
    gpu = "nvidia.com/gpu" in container(overlay_objects)["resources"]["limits"]
    assert image.endswith("gpu" if gpu else "cpu")


def test_they_say_that_they_need_a_private_network() -> None:
    text = (MANIFESTS / "base" / "kustomization.yaml").read_text()
    assert "neither TLS nor authentication" in text
    assert "private network" in text
    assert "mesh" in text
