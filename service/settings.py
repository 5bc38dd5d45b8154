"""The server's settings: one frozen dataclass, read from flags, environment and a TOML file.

Strength: flags, then the environment (`DRAGOMAN_PORT`), then the file (`port = 50051`), then the
default. Written by hand, since the libraries that merge sources forget where a bad value stood, and
an operator needs exactly that.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.environment import PREFIX, unknown_variables, without_service_links
from service.errors import StartupError

_log = logging.getLogger(__name__)

PRETRAINED = Path(__file__).resolve().parent.parent / "model" / "pretrained"


def _setting(
    default: Any,
    text: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    pattern: str = "",
) -> Any:
    """A dataclass field that knows its documentation and its range."""
    metadata = {"help": text, "minimum": minimum, "maximum": maximum, "choices": choices}
    return dataclasses.field(default=default, metadata={**metadata, "pattern": pattern})


@dataclass(frozen=True)
class Settings:
    """What `dragoman serve` can be told. The documentation of each is its `help`.

    Raises:
        StartupError: a value is of the wrong type or out of range; the message names the setting.
    """

    model: tuple[Path, ...] = _setting(
        (),
        "A bundle directory to serve; repeatable, the first that fits a request is preferred. "
        "None given: the models that came with this installation. In the environment, several are "
        f"separated by {os.pathsep!r}.",
    )
    host: str = _setting("127.0.0.1", "Address to listen on. 0.0.0.0 listens on every interface.")
    port: int = _setting(50051, "Port for gRPC; 0 takes a free one.", minimum=0, maximum=65535)
    metrics_host: str = _setting("127.0.0.1", "Address to serve /metrics on.")
    metrics_port: int = _setting(
        9464, "Port for Prometheus metrics over HTTP; 0 takes a free one.", minimum=0, maximum=65535
    )
    device: str = _setting(
        "cpu",
        "Where the models run: cpu, cuda, or cuda:1 for the second GPU. A server uses one GPU: run "
        "one for each. (Written and tested on a CPU, but not run on a GPU yet.)",
        pattern="cpu|cuda(:[0-9]{1,3})?",
    )
    no_cuda_graphs: bool = _setting(
        False, "On a GPU, launch every operator by itself; slower, and easier to debug."
    )
    steps_in_flight: int = _setting(
        2,
        "On a GPU, steps that may be under way before the first is looked at. Who comes, leaves or "
        "is cancelled waits for the others of them.",
        minimum=1,
        maximum=8,
    )
    threads: int = _setting(
        0, "Threads for the model's arithmetic; 0 takes one for each core.", minimum=0, maximum=1024
    )
    in_process: bool = _setting(
        False,
        "Run the models in the server's own process, not each in one of its own: some 20 MB less "
        "memory for each, and slower under load. On a GPU, and where there is one core, they do.",
    )
    max_rows: int = _setting(
        0,
        "Sentences of one model that are translated at the same time; 0 takes 64 on a CPU and, on "
        "a GPU, as many as its free memory holds, up to 512.",
        minimum=0,
        maximum=4096,
    )
    max_waiting: int = _setting(
        4096,
        "Sentences of one model that may wait, a beam counted as its hypotheses; more are refused "
        "with RESOURCE_EXHAUSTED.",
        minimum=1,
        maximum=10_000_000,
    )
    max_queue_seconds: float = _setting(
        0.0,
        "A call whose first sentence would wait longer is refused with RESOURCE_EXHAUSTED. 0: "
        "twice the time that a sentence takes (at least 0.25); and once calls have to be refused, "
        "no more are let in than are needed to keep the model busy.",
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
        "Bytes of one gRPC message. 0: as many as the largest request can have, 4 for each of its "
        "characters (--max-request-characters), 64 for each text, and 65,536.",
        minimum=0,
        maximum=2**31 - 1,
    )
    max_concurrent_requests: int = _setting(
        4096,
        "Calls in progress; more are refused with RESOURCE_EXHAUSTED. The last eighth is for "
        "clients that have few.",
        minimum=1,
        maximum=10_000_000,
    )
    max_connection_calls: int = _setting(
        0,
        "Calls in progress of one connection; more wait in the client. 0: 256 on a CPU, 1,024 on a "
        "GPU.",
        minimum=0,
        maximum=10_000_000,
    )
    max_connection_seconds: float = _setting(
        300.0,
        "How long a client keeps a connection (calls on it end first). Opening the next one, it "
        "finds replicas that have come since.",
        minimum=1.0,
        maximum=86_400.0,
    )
    max_client_metrics: int = _setting(
        50,
        "Clients with figures of their own in the metrics: the first so many that name themselves; "
        "the others are counted together.",
        minimum=0,
        maximum=10_000,
    )
    stall_seconds: float = _setting(
        10.0,
        "A model that has work and reports nothing for so long (and for four times as long as it "
        "should take) is stalled: health says NOT_SERVING until it goes on.",
        minimum=0.1,
        maximum=86_400.0,
    )
    hang_seconds: float = _setting(
        60.0,
        "A model that has been stalled for so long ends the server with status 1. 0: never.",
        minimum=0.0,
        maximum=86_400.0,
    )
    drain_seconds: float = _setting(
        30.0, "How long SIGTERM waits for calls in progress.", minimum=0.0, maximum=86_400.0
    )
    log_level: str = _setting(
        "info", "The least severe messages to log.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting(
        "auto",
        "One JSON object a line, or text. auto: text at a terminal, else json.",
        choices=("auto", "json", "text"),
    )

    @property
    def message_bytes(self) -> int:
        """Bytes that one gRPC message may have."""
        largest = 4 * self.max_request_characters + 64 * self.max_texts + 2**16
        return self.max_message_bytes or min(largest, 2**31 - 1)

    @property
    def connection_calls(self) -> int:
        """Calls that one connection may have in progress."""
        return self.max_connection_calls or (256 if self.device == "cpu" else 1024)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            try:
                _check(field, getattr(self, field.name))
            except ValueError as exc:
                raise StartupError(f"setting {field.name}: {exc}") from exc


def environment_name(name: str) -> str:
    """The environment variable of the setting `name`."""
    return PREFIX + name.upper()


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None = None
) -> Settings:
    """The settings from all sources, each value from the strongest that has it.

    Args:
        flags: from the command line; None stands for "not given".
        environment: usually `os.environ`. `DRAGOMAN_CONFIG` names the file if `config` does not.
            Several models are separated as in PATH. An empty value counts as none, and so does what
            Kubernetes says of a Service. A warning is logged of names that have no meaning.
        config: a TOML file whose keys are the settings' names.

    Raises:
        StartupError: the file can't be read, a value can't be used, or a variable resembles one of
            a setting; the message names the setting and where it stood.
    """
    environment = without_service_links(environment)
    names = [field.name for field in dataclasses.fields(Settings)]
    for unknown in unknown_variables(environment, names):
        _log.warning("environment variable %s has no meaning: it is no setting", unknown)
    if config is None and environment.get(environment_name("config")):
        config = Path(environment[environment_name("config")])
    in_file = _read(config) if config is not None else {}
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        variable = environment_name(field.name)
        # The weakest first: a stronger source replaces the value, and only the value that is used
        # has to be valid.
        sources: list[tuple[str, Any]] = []
        if field.name in in_file:
            sources.append((f"{field.name} in {config}", in_file[field.name]))
        if environment.get(variable):  # set to nothing, as compose files do, is not set
            sources.append((f"environment variable {variable}", environment[variable]))
        if flags.get(field.name) is not None and flags[field.name] != ():
            sources.append(("--" + field.name.replace("_", "-"), flags[field.name]))
        if not sources:
            continue
        where, raw = sources[-1]
        try:
            values[field.name] = _convert(field, raw, from_text=where.startswith("environment"))
            _check(field, values[field.name])
        except ValueError as exc:
            raise StartupError(f"{where}: {exc}") from exc
    return Settings(**values)


def shipped_models() -> tuple[Path, ...]:
    """The bundles that came with this installation, by name."""
    return tuple(sorted(path.parent for path in PRETRAINED.glob("*/bundle.json")))


def _read(config: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as exc:
        raise StartupError(f"configuration file {config}: {exc.strerror or exc}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise StartupError(f"configuration file {config}: not valid TOML: {exc}") from exc
    known = [field.name for field in dataclasses.fields(Settings)]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise StartupError(
            f"configuration file {config}: there is no setting {unknown[0]!r}; "
            f"there are {', '.join(known)}"
        )
    return values


def _convert(field: dataclasses.Field[Any], raw: Any, *, from_text: bool) -> Any:
    """`raw` in the field's type. Text is parsed only where a source has nothing but text."""
    if field.name == "model":
        items = raw.split(os.pathsep) if from_text else [raw] if isinstance(raw, str) else raw
        if not isinstance(items, (list, tuple)) or not all(items):
            raise ValueError(f"must be one or more directories, not {raw!r}")
        return tuple(Path(item) for item in items)
    kind: type = type(field.default)
    if from_text and kind is bool:
        if raw.lower() not in _TRUTHS:
            raise ValueError(f"must be {_describe(kind)}, not {raw!r}")
        return _TRUTHS[raw.lower()]
    if from_text and kind is not str:
        try:
            return kind(raw)
        except ValueError:
            raise ValueError(f"must be {_describe(kind)}, not {raw!r}") from None
    if kind is float and isinstance(raw, int) and not isinstance(raw, bool):
        return float(raw)
    return raw


def _check(field: dataclasses.Field[Any], value: Any) -> None:
    if field.name == "model":
        return
    kind = type(field.default)
    if type(value) is not kind:
        raise ValueError(f"must be {_describe(kind)}, not {value!r}")
    choices, low, high = (field.metadata[key] for key in ("choices", "minimum", "maximum"))
    if choices and value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")
    if kind is str and not value:
        raise ValueError("must not be empty")
    if (pattern := field.metadata["pattern"]) and not re.fullmatch(pattern, str(value)):
        raise ValueError(f"must be cpu, cuda, or one of several GPUs as cuda:1, not {value!r}")
    if low is not None and not low <= value <= high:
        raise ValueError(f"must be from {low:,} to {high:,}, not {value!r}")


def _describe(kind: type) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return names[kind]


_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
