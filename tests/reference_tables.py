"""Writes the reference tables of the documents: settings, limits and metrics.

    python -m tests.reference_tables

A page has a place for each table:

    <!-- table: settings Network -->
    <!-- end of table -->

Names, values, units and meanings come from the code, so a wrong entry is mended there: the help
texts of `service.settings`, the documentation of metrics in `service.observability`, the docstring
of `DocumentLimits`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric

from model.bundle import search_limits
from model.training.recipe_reference import field_meanings
from service.access import key_file
from service.calls import detect
from service.calls.backend import DOCUMENT_LIMITS
from service.domain import attention, sampling
from service.fronts.http.transfers import HttpLimits
from service.glossaries import entries, files, glossary, store
from service.memory import pairs, similar
from service.observability.metrics import ServerMetrics
from service.ports import metrics_port
from service.ports.http import server as http_server
from service.settings import DIRECTORIES, Settings
from service.settings_sources import environment_name
from service.text import options
from service.text.markup import html_parser, tree
from service.things import joined_results
from service.translation import alignments

ROOT = Path(__file__).parent.parent
PAGES = tuple(
    ROOT / "service" / name for name in ("SETTINGS.md", "LIMITS.md", "METRICS.md", "DOCUMENTS.md")
)
_PLACE = re.compile(r"(<!-- table: (.*?) -->\n).*?(<!-- end of table -->)", re.DOTALL)

GROUPS = {
    "Models": "model default no_pivot pivot_languages no_shortlist idle_seconds",
    "Network": "host port http_host http_port metrics_host metrics_port admin_port insecure",
    "HTTP": "http_allowed_hosts http_allow_origin http_prefix http_trusted_proxies",
    "TLS": "tls_cert tls_key tls_client_ca",
    "Access": "keys usage jwt_issuer jwt_audience jwks_url",
    "Glossaries": "glossary glossary_dir glossary_store",
    "Translation memories": "memory_store",
    "Hardware": "device threads model_processes front_processes in_process max_rows memory_budget "
    "no_cuda_graphs steps_in_flight",
    "Response cache": "cache_memory cache_url cache_seconds cache_free",
    "Load": "max_waiting max_queue_seconds max_concurrent_requests max_connection_calls",
    "Requests": "max_texts max_characters max_request_characters max_message_bytes",
    "Documents": "document_workers document_memory document_seconds",
    "Connections": "max_connection_seconds min_ping_seconds",
    "Supervision": "stall_seconds hang_seconds drain_seconds",
    "Observation": "log_level log_format tracing max_client_metrics",
}
"""Settings by subject, each in one group."""
_UNITS = {
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_memory": "MiB",
    "_budget": "MiB",
    "port": "port",
}
# Kinds of texts by the first word of a setting's help.
_TEXTS = {"Address": "address", "Database": "file", "File": "file", "URL": "URL", "Path": "path"}
# Limits that are constants: the page that describes the feature, and the value.
_CONSTANTS: dict[str, dict[str, int]] = {
    "search": {
        "beam size, and rows of a server": search_limits.MAX_ROWS,
        "tokens in `suppressed_tokens`, the model's own included": search_limits.MAX_SUPPRESSED,
        "candidates of a random sample (`top_k`)": sampling.MAX_SAMPLED,
        "languages of a text in `DetectLanguage`": detect.MAX_DETECTED,
        "weights of soft alignments in a call": alignments.MAX_SOFT_WEIGHTS,
        "tokens of a text, and of its translation, in `GetAttention`": attention.MAX_TOKENS,
        "weights that a `GetAttention` call returns": attention.MAX_WEIGHTS,
        "weights that a `GetAttention` call computes": attention.MAX_COMPUTED,
    },
    "markup": {
        "tags in a text": html_parser.MAX_TAGS,
        "levels of inline tags": tree.MAX_DEPTH,
        "names in `ignore_tags`": options.MAX_IGNORED_TAGS,
    },
    "glossaries": {
        "entries in a request (`glossary.entries`)": glossary.MAX_ENTRIES,
        "characters of a term": glossary.MAX_SOURCE_CHARACTERS,
        "characters of a translation": glossary.MAX_TARGET_CHARACTERS,
        "lines of a server's glossary file": files.MAX_ENTRIES,
        "glossaries of one owner, made by DeepL's API": store.MAX_GLOSSARIES,
        "entries of one pair of languages in such a glossary": entries.MAX_ENTRIES,
    },
    "memories": {
        "memories of one owner": pairs.MAX_MEMORIES,
        "pairs of a memory": pairs.MAX_PAIRS,
        "characters of a text, and of its translation": pairs.MAX_CHARACTERS,
        "characters of all pairs of one owner": pairs.MAX_OWNER_CHARACTERS,
        "similar pairs of a sentence": similar.MAX_FOUND,
        "similar pairs of a call, about": pairs.MAX_ALTERNATIVES,
        "matches that the result of a text lists": joined_results.MAX_SHOWN_MATCHES,
    },
    "access": {"API keys in the file": key_file.MAX_KEYS},
    "connections": {
        "connections to the HTTP port, or a quarter of the open files allowed": (
            http_server.MAX_CONNECTIONS
        ),
        "connections to the metrics port": metrics_port.MAX_CONNECTIONS,
    },
}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def _setting_rows(group: str) -> Iterator[list[str]]:
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    for name in GROUPS[group].split():
        field = fields[name]
        # A path separator of this system is in the help.
        text = field.metadata["help"].replace(f"{os.pathsep!r}", "`:`")
        flag = f"`--{name.replace('_', '-')}`<br>`{environment_name(name)}`"
        yield [flag, _value_of(field), _default_of(field), text]


def _value_of(field: dataclasses.Field[Any]) -> str:
    kind = type(field.default)
    if field.metadata["choices"]:
        return ", ".join(f"`{choice}`" for choice in field.metadata["choices"])
    if kind is tuple:
        return "directories" if field.name in DIRECTORIES else "texts"
    if kind in (bool, str):
        first_word = field.metadata["help"].split()[0]
        return "true or false" if kind is bool else _TEXTS.get(first_word, "text")
    unit = next((unit for suffix, unit in _UNITS.items() if field.name.endswith(suffix)), "number")
    low, high = (_number(field.metadata[key]) for key in ("minimum", "maximum"))
    text = f"{unit}, {low} to {high}"
    return text.replace(",", "").replace("port", "port,", 1) if unit == "port" else text


def _default_of(field: dataclasses.Field[Any]) -> str:
    default: Any = field.default
    if default in ((), ""):
        return "–"
    if isinstance(default, str):
        return f"`{default}`"
    is_plain = isinstance(default, bool) or field.name.endswith("port")
    return str(default).lower() if is_plain else _number(default)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,}"


def _metric_rows() -> Iterator[list[str]]:
    registry = ServerMetrics().registry
    for collector in registry._collector_to_names:
        for metric in collector.collect():
            labels: Iterable[str] = getattr(collector, "_labelnames", ())
            if metric.name.startswith("dragoman_"):
                yield _metric_row(metric, labels or getattr(metric, "_labelnames", ()))


def _metric_row(metric: Metric, labels: Iterable[str]) -> list[str]:
    name = metric.name + ("_total" if metric.type == "counter" else "")
    return [
        f"`{name}`",
        metric.type,
        ", ".join(f"`{label}`" for label in labels),
        metric.documentation,
    ]


def _field_rows(limits: Any) -> Iterator[list[str]]:
    meanings = field_meanings(type(limits))
    for field in dataclasses.fields(limits):
        yield [meanings[field.name].rstrip("."), _number(getattr(limits, field.name))]


def table(name: str) -> str:
    """The table of this name, as a place in a page says it.

    Raises:
        KeyError: no table has this name.
    """
    kind, _, part = name.partition(" ")
    if kind == "settings":
        return _table(["setting, variable", "value", "default", "meaning"], _setting_rows(part))
    if kind == "metrics":
        return _table(["metric", "type", "labels", "meaning"], sorted(_metric_rows()))
    if part == "HTTP":
        return _table(["limit", "value"], _field_rows(HttpLimits()))
    if part == "documents":
        return _table(["limit", "value"], _field_rows(DOCUMENT_LIMITS))
    rows = ([text, _number(value)] for text, value in _CONSTANTS[part].items())
    return _table(["limit", "value"], rows)


def with_tables(page: str) -> str:
    """The text of a page with its tables as they have to be."""
    return _PLACE.sub(lambda place: place[1] + table(place[2]) + place[3], page)


def main() -> None:
    """Write the tables into the pages."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(with_tables(text), encoding="utf-8")


if __name__ == "__main__":
    main()
