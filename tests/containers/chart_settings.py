"""Writes the settings of the server into the schema of the Helm chart's values.

python -m tests.containers.chart_settings
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from service.settings import Settings
from tests.containers.tools import DOCKER

SCHEMA = DOCKER / "helm" / "values.schema.json"
# Settings with values of their own in the chart, or that the image needs.
OF_THE_CHART = {
    *("model", "device", "host", "port", "http_host", "http_port", "metrics_host", "metrics_port"),
    *("insecure", "tls_cert", "tls_key", "tls_client_ca", "keys", "usage", "glossary_dir"),
}
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def settings_schema() -> dict[str, Any]:
    """The schema of the value `settings`."""
    fields = [each for each in dataclasses.fields(Settings) if each.name not in OF_THE_CHART]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {field.name: _property(field) for field in fields},
    }


def with_settings(text: str) -> str:
    """The text of the chart's schema with the settings as they have to be."""
    schema = json.loads(text)
    schema["properties"]["settings"] = settings_schema()
    return json.dumps(schema, indent=2) + "\n"


def _property(field: dataclasses.Field[Any]) -> dict[str, Any]:
    if isinstance(field.default, tuple):
        return {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
    found: dict[str, Any] = {"type": _TYPES[type(field.default)]}
    for key in ("minimum", "maximum"):
        if field.metadata[key] is not None:
            found[key] = field.metadata[key]
    if field.name.endswith("_url"):
        found["pattern"] = "^[^@]*$"  # a URL with a password belongs into a Secret
    if field.metadata["choices"]:
        found["enum"] = list(field.metadata["choices"])
    return found


if __name__ == "__main__":
    SCHEMA.write_text(with_settings(SCHEMA.read_text(encoding="utf-8")), encoding="utf-8")
