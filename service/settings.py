"""The server's settings: one frozen dataclass. `service.settings_sources` reads it."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from model.bundle.search_limits import MAX_ROWS
from service.errors import StartupError
from service.setting_fields import check
from service.setting_fields import setting as _setting

DIRECTORIES = ("model", "glossary_dir")
"""Settings with lists of directories, which are separated as in PATH in the environment."""
PRETRAINED = Path(__file__).resolve().parent.parent / "model" / "pretrained"


@dataclass(frozen=True)
class Settings:
    """The settings of `dragoman serve`, each documented by its `help`.

    Raises:
        StartupError: a value is of the wrong type or out of range; the message names the setting.
    """

    model: tuple[Path, ...] = _setting(
        (),
        "Bundle directory to serve; repeatable. A request gets the first model that fits. "
        "Default: the models that came with this installation. In the environment, separate "
        f"several by {os.pathsep!r}.",
    )
    host: str = _setting("127.0.0.1", "Address for gRPC. 0.0.0.0 is every interface.")
    default: tuple[str, ...] = _setting(
        (),
        "Model for a pair of languages that several models translate, such as en-de=NAME; "
        "repeatable, or separated by commas. Default: the first model that fits.",
    )
    no_pivot: bool = _setting(
        False,
        "Refuse pairs of languages without a model, instead of translating through a third one.",
    )
    pivot_languages: tuple[str, ...] = _setting(
        (),
        "Languages that pivots may use, such as en,de, the preferred one first. Default: all, "
        "English first.",
    )
    port: int = _setting(50051, "Port for gRPC; 0 chooses a free one.", minimum=0, maximum=65535)
    metrics_host: str = _setting("127.0.0.1", "Address for metrics and probes.")
    metrics_port: int = _setting(
        9464,
        "Port for metrics and probes over HTTP; 0 chooses a free one.",
        minimum=0,
        maximum=65535,
    )
    http_host: str = _setting("127.0.0.1", "Address for HTTP.")
    http_port: int = _setting(
        -1,
        "Port for HTTP: the contract as JSON, and a page to translate in a browser. 0 chooses a "
        "free one, -1 opens none.",
        minimum=-1,
        maximum=65535,
    )
    http_allowed_hosts: tuple[str, ...] = _setting(
        (),
        "Host name that requests over HTTP, and for /metrics, may have, such as a proxy's; "
        "repeatable, or separated by commas. Addresses and localhost are always allowed. Default: "
        "no names if the port is on loopback, else all.",
    )
    http_allow_origin: tuple[str, ...] = _setting(
        (),
        "Origin of web pages that may call from a browser (CORS), such as https://app.example.org; "
        "repeatable, or separated by commas. * allows the pages of any site. Default: none.",
    )
    http_prefix: str = _setting(
        "/",
        "Path of the HTTP port behind a proxy, such as /mt. Requests may have it or not; URLs in "
        "answers have it.",
    )
    http_trusted_proxies: tuple[str, ...] = _setting(
        (),
        "Address or network of a proxy, such as 10.0.0.0/8, that may set x-forwarded-for, -proto, "
        "-host and -prefix, or forwarded; repeatable, or separated by commas. * is every address. "
        "Default: none.",
    )
    keys: str = _setting(
        "",
        "File of API keys, written by `dragoman keys`. Calls then need a key. Default: anyone who "
        "reaches the ports may call.",
        is_optional=True,
    )
    jwt_issuer: str = _setting(
        "",
        "Issuer (claim `iss`) of tokens (JWT) that are accepted in place of API keys; with "
        "--jwt-audience and --jwks-url. Needs the extra `jwt`.",
        is_optional=True,
    )
    jwt_audience: str = _setting(
        "", "Audience (claim `aud`) of the issuer's tokens.", is_optional=True
    )
    jwks_url: str = _setting(
        "",
        "URL of the issuer's public keys, a JSON Web Key Set; https:// or file://.",
        is_optional=True,
    )
    usage: str = _setting(
        "",
        "Database (SQLite) of used quotas, created if missing. Each server needs its own. Default: "
        "the name of --keys with .usage.db.",
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
        "File with certificates of authorities (PEM). Clients then need a certificate of one of "
        "them (mutual TLS), except on the metrics port.",
        is_optional=True,
    )
    insecure: bool = _setting(
        False,
        "Allow plain text on addresses that other machines reach, for a server behind a proxy or "
        "in a closed network.",
    )
    admin_port: int = _setting(
        -1,
        "Port for `dragoman reload`, on loopback only and without authentication. 0 chooses a free "
        "one, -1 opens none.",
        minimum=-1,
        maximum=65535,
    )
    glossary: tuple[str, ...] = _setting(
        (),
        "Glossary that requests may name, such as terms=FILE.en-de.tsv, with terms and "
        "translations separated by tabs, or in TBX (.tbx); repeatable, or separated by commas. "
        "Read again when it changes.",
    )
    glossary_dir: tuple[Path, ...] = _setting(
        (),
        "Directory of glossaries, each a file NAME.tsv or NAME.en-de.tsv, or .tbx. New and changed "
        "files are read within a second. Repeatable; in the environment, separate several by "
        f"{os.pathsep!r}.",
    )
    glossary_store: str = _setting(
        "",
        "Database (SQLite) of glossaries that clients make with DeepL's API, created if missing. "
        "Each server needs its own. Default: in memory.",
        is_optional=True,
    )
    memory_store: str = _setting(
        "",
        "Database (SQLite) of translation memories, created if missing. Default: none can be made.",
        is_optional=True,
    )
    device: str = _setting(
        "cpu",
        "Device of the models: cpu, cuda, or cuda:1 for the second GPU. A server uses one GPU. "
        "(Tested on a CPU only; not run on a GPU yet.)",
        pattern="cpu|cuda(:[0-9]{1,3})?",
    )
    no_cuda_graphs: bool = _setting(
        False,
        "On a GPU, launch operators one by one, without CUDA graphs: slower, easier to debug.",
    )
    steps_in_flight: int = _setting(
        2,
        "On a GPU, steps launched before the first is read. Requests join and leave after the "
        "steps in flight. 0: wait for every launch, to find the one that fails.",
        minimum=0,
        maximum=8,
    )
    no_shortlist: bool = _setting(
        False,
        "Search the whole vocabulary, also with a model that has a shortlist: the target tokens "
        "that a sentence may produce. Slower. For single requests: search.exact.",
    )
    threads: int = _setting(
        0, "Threads of each model's arithmetic. 0: one per core.", minimum=0, maximum=1024
    )
    model_processes: int = _setting(
        0,
        "Processes of each model on a CPU, which share its weights and divide its threads. 0: one "
        "for each two cores, divided by the number of models, up to 8; fewer if memory or "
        "--max-rows is small.",
        minimum=0,
        maximum=64,
    )
    front_processes: int = _setting(
        0,
        "Processes that hold gRPC's connections and pass calls on to the server's process, which "
        "then needs half of the time for a call; for small models on four cores or more. 0: none, "
        "the server's process holds them.",
        minimum=0,
        maximum=64,
    )
    in_process: bool = _setting(
        False,
        "Run the models in the server's process: 20 MB less memory per model, slower under load. "
        "Always so on a GPU and on a single core.",
    )
    max_rows: int = _setting(
        0,
        "Rows of a model's batch: sentences, or hypotheses of beams, translated at the same time. "
        "0: 64 for each process on a CPU; on a GPU, as many as fit into its memory, up to 512.",
        minimum=0,
        maximum=MAX_ROWS,
    )
    memory_budget: int = _setting(
        0,
        "Memory (MiB) for the server and its models. On a CPU, the start is refused if they need "
        "more. 0: the memory of the machine or the control group.",
        minimum=0,
        maximum=2**30,
    )
    cache_memory: int = _setting(
        0,
        "Memory (MiB) for translations of sentences, which equal sentences get again: the response "
        "cache. 0: none.",
        minimum=0,
        maximum=2**20,
    )
    cache_url: str = _setting(
        "",
        "Valkey or Redis server in which servers share their response caches: redis://HOST:PORT, "
        "rediss:// for TLS, or unix://. It can hold a password, so set it in the environment or "
        "the file. Needs --cache-memory, and the extra `cache`.",
        is_optional=True,
    )
    cache_seconds: float = _setting(
        0.05,
        "Longest wait of a call for the server of --cache-url.",
        minimum=0.001,
        maximum=60.0,
    )
    cache_free: bool = _setting(
        False,
        "Don't charge keys for characters of sentences that the response cache answers.",
    )
    max_waiting: int = _setting(
        4096,
        "Rows that may wait for a model: one for a sentence, or one for each hypothesis of a beam. "
        "Further calls are refused with RESOURCE_EXHAUSTED.",
        minimum=1,
        maximum=10_000_000,
    )
    max_queue_seconds: float = _setting(
        0.0,
        "Longest estimated wait of a call's first sentence; a longer one is refused with "
        "RESOURCE_EXHAUSTED. 0: twice the time of a sentence (at least 0.25); after a refusal, "
        "only as many calls are admitted as keep the model busy.",
        minimum=0.0,
        maximum=86_400.0,
    )
    max_texts: int = _setting(1024, "Texts in a request.", minimum=1, maximum=1_000_000)
    max_characters: int = _setting(100_000, "Characters in a text.", minimum=1, maximum=100_000_000)
    max_request_characters: int = _setting(
        1_000_000, "Characters in all texts of a request.", minimum=1, maximum=2_000_000_000
    )
    max_message_bytes: int = _setting(
        0,
        "Bytes of a gRPC message. 0: as many as the largest request can have, 4 for each character "
        "(--max-request-characters), 64 for each text, and 65,536.",
        minimum=0,
        maximum=2**31 - 1,
    )
    document_workers: int = _setting(
        0,
        "Documents read or written at the same time, each by its own process. 0: one for each "
        "thread, at least 2 and at most 8.",
        minimum=0,
        maximum=256,
    )
    document_memory: int = _setting(
        512,
        "Memory (MiB) for reading or writing a document. A document that needs more is refused "
        "with INVALID_ARGUMENT.",
        minimum=64,
        maximum=2**20,
    )
    document_seconds: int = _setting(
        20,
        "Processor time for reading or writing a document, which may take ten times as long by the "
        "clock. A document that needs more is refused with INVALID_ARGUMENT.",
        minimum=1,
        maximum=3600,
    )
    max_concurrent_requests: int = _setting(
        4096,
        "Calls in progress; further ones are refused with RESOURCE_EXHAUSTED. Clients have equal "
        "shares, and a new client always finds room.",
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
        "Lifetime of a connection, after which its calls may finish. Clients find new replicas "
        "when they connect again.",
        minimum=1.0,
        maximum=86_400.0,
    )
    min_ping_seconds: float = _setting(
        1.0,
        "Shortest interval of a gRPC client's keepalive pings, with and without calls in progress. "
        "A connection with more pings is closed.",
        minimum=0.001,
        maximum=86_400.0,
    )
    max_client_metrics: int = _setting(
        50,
        "Clients, and keys, with series of their own in the metrics: the first ones with an id. "
        "Others are counted together.",
        minimum=0,
        maximum=10_000,
    )
    stall_seconds: float = _setting(
        10.0,
        "Time without progress, and at least four times the expected time, after which a model "
        "with work is stalled: health is NOT_SERVING until it makes progress.",
        minimum=0.1,
        maximum=86_400.0,
    )
    hang_seconds: float = _setting(
        60.0,
        "Time that a model may stay stalled before its process is killed, and opened again. In the "
        "server's own process, the server exits with status 1. 0: no limit.",
        minimum=0.0,
        maximum=86_400.0,
    )
    idle_seconds: float = _setting(
        0.0,
        "Time without a call after which a model is put to sleep: its process ends, and the next "
        "call waits until it is open again. 0: never.",
        minimum=0.0,
        maximum=31_536_000.0,
    )
    drain_seconds: float = _setting(
        30.0,
        "Time for calls in progress to finish, at SIGTERM or when a model is replaced.",
        minimum=0.0,
        maximum=86_400.0,
    )
    log_level: str = _setting(
        "info", "Least severity of logged messages.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting(
        "auto",
        "Format of the log; json has one object per line. auto: text on a terminal, else json.",
        choices=("auto", "json", "text"),
    )

    tracing: bool = _setting(
        False,
        "Export traces with OpenTelemetry, configured by its variables "
        "(OTEL_EXPORTER_OTLP_ENDPOINT ...). Needs the extra `otel`.",
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
