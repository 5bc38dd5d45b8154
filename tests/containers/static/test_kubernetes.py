"""The manifests: valid, and every name in them points at something that there is."""

import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import dragoman
from service.api.servicer import SERVICE
from service.settings import Settings
from tests.containers.kustomize import Manifest, render
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
from tests.containers.tools import DOCKER, optional_tool, run, tool

MANIFESTS = DOCKER / "kubernetes"
OVERLAYS = ("cpu", "gpu", "dev", "own-model", "keda", "tls")
# Their definitions belong to operators, so no schema of Kubernetes' own has them.
CUSTOM = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}


@pytest.fixture(scope="module")
def overlays(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directory of every overlay; `keda` and `tls` are `cpu` with those components."""
    copy = tmp_path_factory.mktemp("manifests") / "kubernetes"
    shutil.copytree(MANIFESTS, copy)
    keda = copy / "overlays" / "keda"
    keda.mkdir()
    text = (copy / "overlays/cpu/kustomization.yaml").read_text()
    assert "components/hpa # or" in text
    (keda / "kustomization.yaml").write_text(text.replace("components/hpa #", "components/keda #"))
    secure = copy / "overlays" / "tls"
    secure.mkdir()
    (secure / "kustomization.yaml").write_text(
        text.replace("components/monitoring", "components/monitoring\n  - ../../components/tls")
    )
    found = {file.parent.name for file in copy.glob("overlays/*/kustomization.yaml")}
    assert found == set(OVERLAYS)
    return {overlay: copy / "overlays" / overlay for overlay in OVERLAYS}


@pytest.fixture(scope="module")
def rendered(overlays: dict[str, Path]) -> dict[str, list[Manifest]]:
    """Every overlay's manifests."""
    return {overlay: render(directory) for overlay, directory in overlays.items()}


@pytest.fixture(params=OVERLAYS)
def objects(
    rendered: dict[str, list[Manifest]], request: pytest.FixtureRequest
) -> dict[str, Manifest]:
    """The objects of one overlay by kind, of which each has one."""
    manifests = rendered[request.param]
    by_kind = {manifest["kind"]: manifest for manifest in manifests}
    assert len(by_kind) == len(manifests)
    return by_kind


def pod(objects: dict[str, Manifest]) -> Manifest:
    spec: Manifest = objects["Deployment"]["spec"]["template"]["spec"]
    return spec


def container(objects: dict[str, Manifest]) -> Manifest:
    (only,) = pod(objects)["containers"]
    return dict(only)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_makes_the_same(
    overlays: dict[str, Path], rendered: dict[str, list[Manifest]], overlay: str
) -> None:
    found = optional_tool("kustomize", "kubectl")
    command = [found, "kustomize"] if Path(found).name == "kubectl" else [found, "build"]
    output = run(*command, overlays[overlay])
    assert "Warning" not in output
    # It names what it generates by its content, so that a change rolls the pods.
    plain, hashed = re.subn(r"\b(dragoman-(settings|private))-[a-z0-9]{10}\b", r"\1", output)
    assert hashed == 4
    # And it folds long lines in its own way.
    made, ours = (
        {item["kind"]: _unfolded(item) for item in manifests}
        for manifests in (yaml.safe_load_all(plain), rendered[overlay])
    )
    assert made == ours


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
    assert kinds == {
        "cpu": production | {"HorizontalPodAutoscaler"},
        "gpu": production | {"HorizontalPodAutoscaler"},
        "own-model": production | {"HorizontalPodAutoscaler"},
        "keda": production | {"ScaledObject"},
        "tls": production | {"HorizontalPodAutoscaler"},
        "dev": base,
    }


def test_selectors_match_the_pods(objects: dict[str, Manifest]) -> None:
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["Service"]["spec"]["selector"],
    ]
    for constraint in pod(objects)["topologySpreadConstraints"]:
        selectors.append(constraint["labelSelector"]["matchLabels"])
    if "NetworkPolicy" in objects:
        selectors.append(objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
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
    if "NetworkPolicy" not in objects:
        return
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for rule in objects["NetworkPolicy"]["spec"]["ingress"]:
        for peer in rule["from"]:
            (selector,) = peer.values()
            assert not selector["matchLabels"].items() & labels.items()


def test_ports_and_probes_are_the_servers(objects: dict[str, Manifest]) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(objects)["ports"]}
    assert ports == {"grpc": Settings.port, "metrics": Settings.metrics_port}
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
    for port in objects["Service"]["spec"]["ports"]:
        assert ports[port["targetPort"]] == port["port"]
    if "ServiceMonitor" in objects:
        named = {port["name"] for port in objects["Service"]["spec"]["ports"]}
        (endpoint,) = objects["ServiceMonitor"]["spec"]["endpoints"]
        assert endpoint["port"] in named
        assert endpoint.get("scheme", "http") == ("https" if over_tls else "http")
    if "NetworkPolicy" in objects:
        rules = objects["NetworkPolicy"]["spec"]["ingress"]
        assert {port["port"] for rule in rules for port in rule["ports"]} == set(ports)


def test_the_certificate_is_mounted_so_that_it_can_change(
    rendered: dict[str, list[Manifest]],
) -> None:
    objects = {item["kind"]: item for item in rendered["tls"]}
    (mounted,) = container(objects)["volumeMounts"]
    assert "subPath" not in mounted  # which Kubernetes never updates
    (volume,) = pod(objects)["volumes"]
    assert volume == {"name": mounted["name"], "secret": {"secretName": "dragoman-tls"}}
    data = objects["ConfigMap"]["data"]
    for setting, key in (("CERT", "tls.crt"), ("KEY", "tls.key")):
        assert data[f"DRAGOMAN_TLS_{setting}"] == f"{mounted['mountPath']}/{key}"


def test_settings_are_those_of_the_server(objects: dict[str, Manifest]) -> None:
    names = set(objects["ConfigMap"]["data"]) | {item["name"] for item in container(objects)["env"]}
    assert names <= {f"DRAGOMAN_{field.upper()}" for field in Settings.__dataclass_fields__}
    sources = [next(iter(source.values()))["name"] for source in container(objects)["envFrom"]]
    assert sources == [objects[kind]["metadata"]["name"] for kind in ("ConfigMap", "Secret")]


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
    objects = {item["kind"]: item for item in rendered["own-model"]}
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
    # What the rest says is that of the overlay that it is made of.
    assert (
        container(objects)["image"]
        == container({item["kind"]: item for item in rendered["cpu"]})["image"]
    )


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
        assert queries == keda_queries()
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


def test_what_our_reading_does_not_know_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("namePrefix: my-\n")
    with pytest.raises(ValueError, match="namePrefix"):
        render(tmp_path)


def _unfolded(value: Any) -> str:
    return re.sub(r"(\\n|\s)+", " ", json.dumps(value, sort_keys=True))


def test_images_have_the_projects_version(objects: dict[str, Manifest]) -> None:
    image = container(objects)["image"]
    of_now = {f"dragoman:{dragoman.__version__}-{kind}" for kind in ("cpu", "gpu")}
    assert image in {*of_now, "dragoman:cpu"}
    gpu = "nvidia.com/gpu" in container(objects)["resources"]["limits"]
    assert image.endswith("gpu" if gpu else "cpu")


def test_they_say_that_they_need_a_private_network() -> None:
    text = (MANIFESTS / "base" / "kustomization.yaml").read_text()
    assert "neither TLS nor authentication" in text
    assert "private network" in text
    assert "mesh" in text
