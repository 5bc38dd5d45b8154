"""The server's settings: one frozen dataclass. `service.settings_sources` reads it."""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.bundle.search_limits import MAX_ROWS
from service.errors import StartupError

DIRECTORIES = ("model", "glossary_dir")
"""Settings with lists of directories, which are separated as in PATH in the environment."""
PRETRAINED = Path(__file__).resolve().parent.parent / "model" / "pretrained"


def _setting(
    default: Any,
    text: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    pattern: str = "",
    is_optional: bool = False,
) -> Any:
    """A dataclass field with its documentation and its range.

    A text that `is_optional` is empty by default. An empty value that is set explicitly is an
    error, since it would silently turn the feature off.
    """
    metadata = {"help": text, "minimum": minimum, "maximum": maximum, "choices": choices}
    metadata |= {"pattern": pattern, "is_optional": is_optional}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """The settings of `dragoman serve`, each documented by its `help`.

    Raises:
        StartupError: a value is of the wrong type or out of range; the message names the setting.
    """

    model: tuple[Path, ...] = _setting(
        (),
        "A bundle directory to serve; repeatable. The first that fits a request is preferred. "
        "Default: the models that came with this installation. In the environment, separate "
        f"several by {os.pathsep!r}.",
    )
    host: str = _setting("127.0.0.1", "Address to listen on. 0.0.0.0 listens on every interface.")
    default: tuple[str, ...] = _setting(
        (),
        "The model for a pair of languages, such as en-de=NAME, where several fit; repeatable, or "
        "several separated by commas. Without one, the first that fits.",
    )
    no_pivot: bool = _setting(
        False,
        "Don't translate through a third language where no model translates directly.",
    )
    pivot_languages: tuple[str, ...] = _setting(
        (),
        "The only languages to translate through, such as en,de, the preferred one first. Default: "
        "any, English before others.",
    )
    port: int = _setting(50051, "Port for gRPC; 0 chooses a free one.", minimum=0, maximum=65535)
    metrics_host: str = _setting("127.0.0.1", "Address to serve /metrics on.")
    metrics_port: int = _setting(
        9464,
        "Port for Prometheus metrics over HTTP; 0 chooses a free one.",
        minimum=0,
        maximum=65535,
    )
    http_host: str = _setting("127.0.0.1", "Address to listen on for HTTP.")
    http_port: int = _setting(
        -1,
        "Port for HTTP: the contract as JSON, and a page to translate in a browser. 0 chooses a "
        "free one, -1 opens none.",
        minimum=-1,
        maximum=65535,
    )
    http_allowed_hosts: tuple[str, ...] = _setting(
        (),
        "Further names that HTTP requests may ask for, those for /metrics too, such as those of a "
        "proxy; repeatable, or several separated by commas. Without one, localhost and addresses "
        "while --http-host (--metrics-host) is on loopback, and any otherwise.",
    )
    http_allow_origin: tuple[str, ...] = _setting(
        (),
        "An origin of web pages that may send HTTP requests from browsers (CORS), such as "
        "https://app.example.org; repeatable, or several separated by commas. * allows the pages "
        "of any site. Default: none.",
    )
    http_prefix: str = _setting(
        "/",
        "Path that a proxy serves the HTTP port under, such as /mt. All paths are there with it "
        "and without it; URLs in answers have it.",
    )
    http_trusted_proxies: tuple[str, ...] = _setting(
        (),
        "Addresses and networks of proxies, such as 10.0.0.0/8, whose headers x-forwarded-for, "
        "x-forwarded-proto and x-forwarded-host are believed over HTTP; repeatable, or several "
        "separated by commas. * for any. Default: none.",
    )
    keys: str = _setting(
        "",
        "File of API keys, written by `dragoman keys`: calls need one of them. Without it, anyone "
        "who reaches the ports may call.",
        is_optional=True,
    )
    jwt_issuer: str = _setting(
        "",
        "Issuer of tokens (JWT, the claim `iss`) that calls may have in place of an API key; with "
        "--jwt-audience and --jwks-url. Needs the extra `jwt`.",
        is_optional=True,
    )
    jwt_audience: str = _setting(
        "", "What the claim `aud` of such tokens must have.", is_optional=True
    )
    jwks_url: str = _setting(
        "",
        "Where the public keys of the issuer are, as a JSON Web Key Set: https://, or file:// "
        "for a file.",
        is_optional=True,
    )
    usage: str = _setting(
        "",
        "Database of what keys have used of their quotas, which survives a restart; made if it "
        "does not exist. Each server needs its own. Default: beside the file of --keys, with "
        ".usage.db after its name.",
        is_optional=True,
    )
    tls_cert: str = _setting(
        "",
        "File with the server's certificate (PEM, with intermediate certificates): all ports but "
        "the admin port then speak TLS. Read again when it changes.",
        is_optional=True,
    )
    tls_key: str = _setting(
        "", "File with the private key of --tls-cert (PEM, not encrypted).", is_optional=True
    )
    tls_client_ca: str = _setting(
        "",
        "File with certificates of authorities (PEM): clients need a certificate of one of them "
        "(mutual TLS). Not on the metrics port, since probes have none.",
        is_optional=True,
    )
    insecure: bool = _setting(
        False,
        "Serve plain text on addresses that other machines reach: for servers behind a proxy or in "
        "a closed network.",
    )
    admin_port: int = _setting(
        -1,
        "Port for `dragoman reload`, on loopback only: whoever can reach it can replace models. 0 "
        "chooses a free one, -1 opens none.",
        minimum=-1,
        maximum=65535,
    )
    glossary: tuple[str, ...] = _setting(
        (),
        "A glossary that requests may name, such as terms=FILE.en-de.tsv: two columns with a tab "
        "between; repeatable, or several separated by commas. Read again when it changes.",
    )
    glossary_dir: tuple[Path, ...] = _setting(
        (),
        "A directory of glossaries: each of its files NAME.tsv or NAME.en-de.tsv. Files that are "
        "added or changed are read within a second. Repeatable; in the environment, separate "
        f"several by {os.pathsep!r}.",
    )
    glossary_store: str = _setting(
        "",
        "Database of the glossaries that clients make, through DeepL's API; made if it does not "
        "exist. Each server needs its own. Default: they are kept in memory, and end with the "
        "server.",
        is_optional=True,
    )
    device: str = _setting(
        "cpu",
        "Device that the models run on: cpu, cuda, or cuda:1 for the second GPU. A server uses one "
        "GPU: run one server for each. (Tested on a CPU only; not run on a GPU yet.)",
        pattern="cpu|cuda(:[0-9]{1,3})?",
    )
    no_cuda_graphs: bool = _setting(
        False,
        "On a GPU, launch operators one by one, without CUDA graphs; slower, easier to debug.",
    )
    steps_in_flight: int = _setting(
        2,
        "On a GPU, steps launched before the first is read. New, finished and cancelled requests "
        "take effect after the steps in flight. 0: wait for every launch, to find out what fails.",
        minimum=0,
        maximum=8,
    )
    threads: int = _setting(
        0, "Threads for the model's arithmetic; 0 for one per core.", minimum=0, maximum=1024
    )
    in_process: bool = _setting(
        False,
        "Run the models in the server's process instead of one process each: some 20 MB less "
        "memory per model, but slower under load. Always so on a GPU and on a single core.",
    )
    max_rows: int = _setting(
        0,
        "Rows of the batch: sentences (or hypotheses of beams) of one model that are translated at "
        "a time. 0: 64 on a CPU; on a GPU, as many as its free memory holds, up to 512.",
        minimum=0,
        maximum=MAX_ROWS,
    )
    memory_budget: int = _setting(
        0,
        "MiB of memory for the server and all its models. On a CPU, models that need more are "
        "refused at the start. 0: what the machine has, or the control group allows.",
        minimum=0,
        maximum=2**30,
    )
    max_waiting: int = _setting(
        4096,
        "Sentences of one model that may wait, a beam counting as its hypotheses. Further ones are "
        "refused with RESOURCE_EXHAUSTED.",
        minimum=1,
        maximum=10_000_000,
    )
    max_queue_seconds: float = _setting(
        0.0,
        "A call whose first sentence would wait longer is refused with RESOURCE_EXHAUSTED. 0: "
        "twice the time that a sentence takes (at least 0.25); after a refusal, only as many calls "
        "are admitted as keep the model busy.",
        minimum=0.0,
        maximum=86_400.0,
    )
    max_texts: int = _setting(1024, "Texts in one request.", minimum=1, maximum=1_000_000)
    max_characters: int = _setting(
        100_000, "Characters in one text.", minimum=1, maximum=100_000_000
    )
    max_request_characters: int = _setting(
        1_000_000, "Characters in all texts of one request.", minimum=1, maximum=2_000_000_000
    )
    max_message_bytes: int = _setting(
        0,
        "Bytes of one gRPC message. 0: the most that the largest request can have: 4 for each "
        "character (--max-request-characters), 64 for each text, and 65,536.",
        minimum=0,
        maximum=2**31 - 1,
    )
    document_workers: int = _setting(
        0,
        "Documents that are read or written at the same time, each by a process of its own. 0: one "
        "for each of --threads, at least 2 and at most 8.",
        minimum=0,
        maximum=256,
    )
    document_memory: int = _setting(
        512,
        "MiB of memory that reading or writing one document may take. A document that needs more "
        "is refused with INVALID_ARGUMENT.",
        minimum=64,
        maximum=2**20,
    )
    document_seconds: int = _setting(
        20,
        "Seconds of processor time that reading or writing one document may take; ten times as "
        "many seconds may pass. A document that needs more is refused with INVALID_ARGUMENT.",
        minimum=1,
        maximum=3600,
    )
    max_concurrent_requests: int = _setting(
        4096,
        "Calls in progress; further ones are refused with RESOURCE_EXHAUSTED. One client may have "
        "seven eighths of them, several have equal shares, and a newcomer finds room.",
        minimum=1,
        maximum=10_000_000,
    )
    max_connection_calls: int = _setting(
        0,
        "Calls in progress on one connection; further ones wait in the client. 0: 256 on a CPU, "
        "1,024 on a GPU.",
        minimum=0,
        maximum=10_000_000,
    )
    max_connection_seconds: float = _setting(
        300.0,
        "Lifetime of a connection (its calls are finished first). With the next connection, a "
        "client discovers new replicas.",
        minimum=1.0,
        maximum=86_400.0,
    )
    min_ping_seconds: float = _setting(
        1.0,
        "The shortest interval of the keepalive pings of a gRPC client, with and without calls in "
        "progress. A connection whose client sends them more often is closed.",
        minimum=0.001,
        maximum=86_400.0,
    )
    max_client_metrics: int = _setting(
        50,
        "Clients with series of their own in the metrics: the first ones that name themselves. All "
        "others are counted together.",
        minimum=0,
        maximum=10_000,
    )
    stall_seconds: float = _setting(
        10.0,
        "A model that has work and reports no progress for this long (and for four times the "
        "expected time) is stalled: health says NOT_SERVING until it makes progress.",
        minimum=0.1,
        maximum=86_400.0,
    )
    hang_seconds: float = _setting(
        60.0,
        "A model that stays stalled for this long ends the server with status 1. 0: never.",
        minimum=0.0,
        maximum=86_400.0,
    )
    idle_seconds: float = _setting(
        0.0,
        "A model without a call for this long is put to sleep: its process ends, and the next call "
        "opens it again, and waits for that. 0: never.",
        minimum=0.0,
        maximum=31_536_000.0,
    )
    drain_seconds: float = _setting(
        30.0,
        "How long a drain (SIGTERM, or a model that is replaced) waits for calls in progress.",
        minimum=0.0,
        maximum=86_400.0,
    )
    log_level: str = _setting(
        "info", "The least severe messages to log.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting(
        "auto",
        "json: one object per line. auto: text on a terminal, else json.",
        choices=("auto", "json", "text"),
    )

    tracing: bool = _setting(
        False,
        "Export traces of calls with OpenTelemetry, as its standard variables say "
        "(OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER ...). Needs the extra `otel`.",
    )

    @property
    def message_bytes(self) -> int:
        """The limit of a gRPC message in bytes."""
        largest = 4 * self.max_request_characters + 64 * self.max_texts + 2**16
        return self.max_message_bytes or min(largest, 2**31 - 1)

    @property
    def connection_calls(self) -> int:
        """The limit of calls in progress on one connection."""
        return self.max_connection_calls or (256 if self.device == "cpu" else 1024)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            try:
                check(field, getattr(self, field.name))
            except ValueError as exc:
                raise StartupError(f"setting {field.name}: {exc}") from exc


def shipped_models() -> tuple[Path, ...]:
    """The bundles that came with this installation, by name."""
    return tuple(sorted(path.parent for path in PRETRAINED.glob("*/bundle.json")))


def check(field: dataclasses.Field[Any], value: Any) -> None:
    """Raise ValueError for a value of the wrong type or out of range."""
    kind = type(field.default)
    if kind is tuple:
        return
    if type(value) is not kind:
        raise ValueError(f"must be {describe(kind)}, not {value!r}")
    choices, low, high = (field.metadata[key] for key in ("choices", "minimum", "maximum"))
    if choices and value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")
    if kind is str and not value and not field.metadata["is_optional"]:
        raise ValueError("must not be empty")
    if (pattern := field.metadata["pattern"]) and not re.fullmatch(pattern, str(value)):
        raise ValueError(f"must be cpu, cuda, or one of several GPUs as cuda:1, not {value!r}")
    if low is not None and not low <= value <= high:
        raise ValueError(f"must be from {low:,} to {high:,}, not {value!r}")


def describe(kind: type) -> str:
    """The name of a type, for messages."""
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return names[kind]
