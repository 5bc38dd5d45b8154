"""The Helm chart in docker/helm, rendered by Helm with several values."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.containers.kustomize import Manifest
from tests.containers.tools import DOCKER, tool

CHART = DOCKER / "helm"
Values = dict[str, Any]


def _example(name: str, **more: Any) -> Values:
    values: Values = yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text())
    return values | more


_CPU = {
    "autoscaling": {"type": "hpa"},
    "monitoring": {"serviceMonitor": True, "rules": True},
    "priorityClassName": "dragoman",
}
# As the overlays of these names.
AS_OVERLAYS: dict[str, Values] = {
    "cpu": _CPU,
    "keda": _CPU | {"autoscaling": {"type": "keda"}},
    "gpu": _example("gpu", **_CPU) | {"gpu": {"enabled": True}},
    "own-model": _example("own-model", **_CPU),
    "tls": _CPU | {"tls": {"secret": "dragoman-tls"}},
    "http": _CPU | {"http": {"enabled": True}},
}
CASES: dict[str, Values] = AS_OVERLAYS | {
    "default": {},
    "secured": _example("secured"),
    "pull": _example("pull"),
    "example-production": _example("production"),
    "example-gpu": _example("gpu"),
    "bundle-volume": {
        "models": {
            "source": "volume",
            "names": ["one", "other"],
            "volume": {"image": {"reference": "my-bundles:1"}},
        }
    },
    "all": _example(
        "secured",
        autoscaling={"type": "keda", "minReplicas": 3, "rowsUsed": 0.6, "queueSeconds": 0.05},
        monitoring={"serviceMonitor": True, "rules": True, "dashboards": True},
        models={
            "source": "pull",
            "names": ["en-de"],
            "pull": {"image": "puller:1", "url": "https://mirror.example:8443/models"},
        },
        settings={
            "tracing": True,
            "jwt_issuer": "https://id.example.org",
            "jwt_audience": "dragoman",
            "jwks_url": "https://id.example.org/jwks.json",
            "max_request_characters": 2_000_000_000,
            "min_ping_seconds": 0.5,
            "pivot_languages": ["en", "de"],
            "drain_seconds": 44.5,
            "threads": 3,
        },
        settingsSecret="private",
        extraEnv=[
            {
                "name": "OTEL_EXPORTER_OTLP_ENDPOINT",
                "value": "http://opentelemetry-collector.observability:4317",
            }
        ],
        ingress={"enabled": True, "className": "nginx", "host": "mt.example", "tlsSecret": "tls"},
        image={"digest": f"sha256:{'0' * 64}"},
        imagePullSecrets=[{"name": "registry"}],
        networkPolicy={
            "clientLabels": {"may-translate": "yes"},
        },
        podSecurityContext={"supplementalGroups": [7]},
        priorityClassName="important",
        podAnnotations={"a": "b"},
        podLabels={"team": "languages"},
        nodeSelector={"kubernetes.io/arch": "amd64"},
        tolerations=[{"operator": "Exists"}],
        affinity={"nodeAffinity": {}},
        extraVolumes=[{"name": "more", "emptyDir": {}}],
        extraVolumeMounts=[{"name": "more", "mountPath": "/more"}],
        fullnameOverride="mt",
    ),
}


def helm(*words: str | Path, values: Values | None = None) -> subprocess.CompletedProcess[str]:
    """A command of Helm, finished."""
    return subprocess.run(
        [tool("helm"), *map(str, words), *(() if values is None else ("--values", "-"))],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )


def refusal(values: Values) -> str:
    """Helm's message about values that the chart refuses."""
    done = helm("template", "dragoman", CHART, values=values)
    assert done.returncode, "the values were accepted"
    return done.stderr


def render_chart(values: Values, release: str = "dragoman") -> list[Manifest]:
    """The manifests of a release with these values."""
    done = helm("template", release, CHART, "--namespace", "translation", values=values)
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


@functools.cache
def rendered_case(name: str) -> list[Manifest]:
    """The manifests of one of CASES."""
    return render_chart(CASES[name])
