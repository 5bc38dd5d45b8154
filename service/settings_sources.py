"""Reads the settings from their sources: flags, environment variables and a TOML file.

Precedence: flags, then the environment (`DRAGOMAN_PORT`), then the file (`port = 50051`), then the
default. This does not use a library, because libraries that merge sources lose the source of a bad
value, which is what an operator needs to know.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from service.errors import StartupError
from service.setting_fields import check, describe
from service.settings import DIRECTORIES, Settings

PREFIX = "DRAGOMAN_"

# Variables with the prefix that are not settings: for clients, tests, benchmarks and docker/.
_OTHERS = frozenset(
    {
        *("CONFIG", "SERVER", "DATA_ROOT", "REQUIRE_TOOLS", "CONTAINERS_DIR", "STAND_IN"),
        *("GPU_DEPTH", "GPU_SENTENCES", "TEST_DEVICE", "ADMIN", "SCREENSHOTS", "API_KEY"),
        *("LOOP_MONITOR", "MODELS_DIR", "MODELS_URL"),
        *("USE_TLS", "CA_FILE", "CERT_FILE", "KEY_FILE", "SERVER_NAME"),
    }
)
# Kubernetes describes a Service `dragoman` (or `dragoman-...`) to all pods of its namespace:
# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
_LINK_NAME = re.compile(
    r".*SERVICE_(HOST|PORT(_.+)?)|.*PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"
)
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://.*")
_SIMILARITY = 0.75  # least similarity of a misspelled name to a setting: "prot" to "port"
_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_NAMES = tuple(field.name for field in dataclasses.fields(Settings))

_log = logging.getLogger("service.settings")


def environment_name(name: str) -> str:
    """The environment variable of the setting `name`."""
    return PREFIX + name.upper()


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None = None
) -> Settings:
    """Load the settings, each value from the source with the highest precedence that has it.

    Args:
        flags: values from the command line; None for a flag that is not given.
        environment: environment variables, usually `os.environ`. `DRAGOMAN_CONFIG` names the file
            if `config` is None. Several directories are separated as in PATH, other lists by
            commas. Empty values and Kubernetes' descriptions of Services are ignored, but an empty
            value is an error where ignoring it would open the server (`keys`). Unknown names with
            the prefix are logged as warnings.
        config: path of a TOML file with the settings' names as keys.

    Raises:
        StartupError: the file can't be read, a value is invalid, or an unknown variable resembles a
            setting; the message names the setting and its source.
    """
    environment = {
        name: value for name, value in environment.items() if not _is_service_link(name, value)
    }
    _check_names(environment)
    if config is None and environment.get(environment_name("config")):
        config = Path(environment[environment_name("config")])
    in_file = _read(config) if config is not None else {}
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        name, variable = field.name, environment_name(field.name)
        # Only the value that takes precedence has to be valid.
        if flags.get(name) is not None and flags[name] != ():
            source, raw = "--" + name.replace("_", "-"), flags[name]
        elif _is_given(environment, variable, field):
            source, raw = f"environment variable {variable}", environment[variable]
        elif name in in_file:
            source, raw = f"{name} in {config}", in_file[name]
        else:
            continue
        try:
            values[name] = _convert(field, raw, from_text=source.startswith("environment"))
            check(field, values[name])
            if field.metadata["is_optional"] and not values[name]:
                raise ValueError("must not be empty; leave it out to serve without")
        except ValueError as exc:
            raise StartupError(f"{source}: {exc}") from exc
    return Settings(**values)


def _is_given(environment: Mapping[str, str], variable: str, field: dataclasses.Field[Any]) -> bool:
    """Whether the environment has a setting. Compose files set unused variables to ""."""
    return variable in environment and (
        environment[variable] != "" or field.metadata["is_optional"]
    )


def _is_service_link(variable: str, value: str) -> bool:
    """Whether Kubernetes set the variable to describe a Service: `DRAGOMAN_PORT=tcp://...`."""
    if not variable.startswith(PREFIX):
        return False
    name = variable.removeprefix(PREFIX)
    if _LINK_NAME.fullmatch(name):
        return True
    return name.endswith("PORT") and _LINK_VALUE.fullmatch(value) is not None


def _check_names(environment: Iterable[str]) -> None:
    """Log unknown variables with the prefix; refuse those that resemble a setting's name."""
    settings = [name.upper() for name in _NAMES]
    for variable in sorted(environment):
        name = variable.removeprefix(PREFIX)
        if name == variable or name in settings or name in _OTHERS:
            continue
        if nearest := difflib.get_close_matches(name, settings, n=1, cutoff=_SIMILARITY):
            raise StartupError(
                f"environment variable {variable}: there is no such setting; "
                f"did you mean {PREFIX}{nearest[0]}?"
            )
        _log.warning("environment variable %s has no meaning: it is no setting", variable)


def _read(config: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as exc:
        raise StartupError(f"configuration file {config}: {exc.strerror or exc}") from exc
    except (ValueError, RecursionError) as exc:  # not UTF-8, not TOML, or nested too deeply
        raise StartupError(f"configuration file {config}: not valid TOML: {exc}") from exc
    unknown = sorted(set(values) - set(_NAMES))
    if unknown:
        raise StartupError(
            f"configuration file {config}: there is no setting {unknown[0]!r}; "
            f"there are {', '.join(_NAMES)}"
        )
    return values


def _convert(field: dataclasses.Field[Any], raw: Any, *, from_text: bool) -> Any:
    """Convert `raw` to the type of the field; text is parsed only from sources that are text."""
    if field.name in DIRECTORIES:
        items = raw.split(os.pathsep) if from_text else [raw] if isinstance(raw, str) else raw
        if not isinstance(items, (list, tuple)) or not all(items):
            raise ValueError(f"must be one or more directories, not {raw!r}")
        return tuple(Path(item) for item in items)
    kind: type = type(field.default)
    if kind is tuple:
        texts = [raw] if isinstance(raw, str) else raw
        if isinstance(texts, (list, tuple)) and all(isinstance(text, str) for text in texts):
            items = [item.strip() for text in texts for item in text.split(",")]
            if all(items):
                return tuple(items)
        raise ValueError(f"must be one or more texts, separated by commas, not {raw!r}")
    if from_text and kind is bool:
        if raw.lower() not in _TRUTHS:
            raise ValueError(f"must be {describe(kind)}, not {raw!r}")
        return _TRUTHS[raw.lower()]
    if from_text and kind is not str:
        try:
            return kind(raw)
        except ValueError:
            raise ValueError(f"must be {describe(kind)}, not {raw!r}") from None
    if kind is float and isinstance(raw, int) and not isinstance(raw, bool):
        return float(raw)
    return raw
