"""The existing metrics, and the metrics in an expression."""

import re
from typing import Any

import yaml

from service.observability.metrics import ServerMetrics
from tests.containers.tools import DOCKER

_COMPONENTS = DOCKER / "kubernetes" / "components"
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
# Aggregations and functions stand before a bracket; these words need not.
_WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS |= {"bool", "offset", "sum", "max", "min", "avg", "count", "inf", "nan"}
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABELS = re.compile(
    r"\{[^{}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"
)
_NAME = re.compile(r"(?<![\w.:])([a-zA-Z_][\w:]*)\b(?!\s*\()")


def metric_names(expression: str) -> set[str]:
    """The metrics that a PromQL expression reads."""
    bare = _LABELS.sub(" ", _QUOTED.sub('""', expression))
    return set(_NAME.findall(bare)) - _WORDS


# Envoy's metrics in rules. The live tests, which run Envoy, check that it exports them.
ENVOY = {"envoy_cluster_membership_healthy"}


def server_metrics() -> set[str]:
    """Every series that a server gives out, and `up`, which Prometheus adds."""
    names = {"up"}
    for family in ServerMetrics().registry.collect():
        names |= {family.name + suffix for suffix in _SUFFIXES.get(family.type, ("",))}
    return names


def rule_groups() -> list[dict[str, Any]]:
    """The groups of all rule files."""
    files = sorted((DOCKER / "prometheus" / "rules").glob("*.yml"))
    return [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]


def recorded() -> dict[str, str]:
    """The recording rules: name and expression."""
    rules = [rule for group in rule_groups() for rule in group["rules"]]
    return {rule["record"]: rule["expr"] for rule in rules if "record" in rule}


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    rules = [rule for group in rule_groups() for rule in group["rules"]]
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


def adapter_queries(group_by: str = "pod", matchers: str = 'job="dragoman"') -> dict[str, str]:
    """The Prometheus adapter's query for each metric of the HorizontalPodAutoscaler."""
    values = yaml.safe_load((_COMPONENTS / "hpa/prometheus-adapter-values.yaml").read_text())
    return {
        rule["name"]["as"]: rule["metricsQuery"]
        .replace("<<.GroupBy>>", group_by)
        .replace("<<.LabelMatchers>>", matchers)
        for rule in values["rules"]["custom"]
    }


def keda_queries() -> dict[str, str]:
    """KEDA's queries, by trigger."""
    triggers = yaml.safe_load((_COMPONENTS / "keda/scaled-object.yaml").read_text())["spec"][
        "triggers"
    ]
    return {trigger["name"]: trigger["metadata"]["query"] for trigger in triggers}
