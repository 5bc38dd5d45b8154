"""The examples for a gateway and for KServe match the manifests."""

from __future__ import annotations

import yaml

import dragoman
from service.fronts.dragoman.servicer import SERVICE
from service.settings import Settings
from tests.containers.kustomize import Manifest
from tests.containers.tools import DOCKER

KUBERNETES = DOCKER / "kubernetes"


def loaded(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((KUBERNETES / name).read_text()))


def test_the_route_leads_to_the_service() -> None:
    (route,) = loaded("examples/grpc-route.yaml")
    (rule,) = route["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    (service,) = loaded("base/service.yaml")
    assert backend["name"] == service["metadata"]["name"]
    assert backend["port"] in {port["port"] for port in service["spec"]["ports"]}


def test_kserve_runs_the_container_of_the_base() -> None:
    runtime, served = loaded("examples/kserve.yaml")
    (ours,) = runtime["spec"]["containers"]
    template = loaded("base/deployment.yaml")[0]["spec"]["template"]["spec"]
    (base,) = template["containers"]
    for probe in ("startupProbe", "readinessProbe"):
        assert ours[probe] == base[probe]
        assert ours[probe]["grpc"] == {"port": Settings.port, "service": SERVICE}
    live = base["livenessProbe"]
    live["httpGet"]["port"] = Settings.metrics_port  # KServe wants one port only
    assert ours["livenessProbe"] == live
    for same in ("resources", "lifecycle"):
        assert ours[same] == base[same]
    assert ours["securityContext"] == ours["securityContext"] | base["securityContext"]
    assert ours["image"] == f"dragoman:{dragoman.__version__}-cpu"
    (threads,) = ours["env"]
    assert threads["valueFrom"]["resourceFieldRef"]["containerName"] == ours["name"]
    predictor = served["spec"]["predictor"]
    assert predictor["model"]["runtime"] == runtime["metadata"]["name"]
    (format_,) = runtime["spec"]["supportedModelFormats"]
    assert predictor["model"]["modelFormat"]["name"] == format_["name"]
    for same in ("terminationGracePeriodSeconds", "enableServiceLinks"):
        assert predictor[same] == template[same]
