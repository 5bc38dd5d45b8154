"""Writes the rules of docker/prometheus/rules as the Prometheus operator wants them.

    python docker/kubernetes/write_rules.py

A test fails when the file is not what this writes.
"""

from __future__ import annotations

from pathlib import Path

_RULES = Path(__file__).resolve().parents[1] / "prometheus" / "rules"
# Not envoy.yml: there is no Envoy of ours.
FILES = [_RULES / "alerts.yml", _RULES / "recording.yml"]
OUTPUT = Path(__file__).resolve().parent / "components" / "monitoring" / "rules.yaml"
HEADER = """\
# The rules of docker/prometheus/rules, without Envoy's. Do not edit: write_rules.py, in
# docker/kubernetes, writes this.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: dragoman
  labels:
    # What the kube-prometheus-stack chart looks for, if it is installed under its usual name.
    release: kube-prometheus-stack
spec:
  groups:
"""


def operator_rules() -> str:
    """The text of the manifest."""
    lines: list[str] = []
    for file in FILES:
        _, groups = file.read_text(encoding="utf-8").split("\ngroups:\n", 1)
        lines += [f"  {line}" if line else "" for line in groups.splitlines()]
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(operator_rules(), encoding="utf-8")
