"""The systems under test, each a separate server process with our contract."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.server_process import ROOT, Running, log_entry, server_process
from bench.server_process import environment as environment  # the studies take it from here
from bench.suite.artifacts import Artifacts

_ACCESS = "dragoman.access"


@dataclass(frozen=True)
class System:
    """A system and its settings.

    Attributes:
        name: "dragoman", or a kind of `bench.peers.server`.
        settings: options of its command line, by name; stored with every result. A list gives an
            option several times.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{name} {value}" for name, value in self.settings.items()]
        return f"{self.name} ({', '.join(parts) or 'defaults'})"

    def command(self, artifacts: Artifacts) -> list[str]:
        """The command line of its server, on any ports."""
        ports = ["--port", "0", "--metrics-port", "0"]
        options = [
            part
            for name, value in self.settings.items()
            for one in (value if isinstance(value, list) else [value])
            for part in (f"--{name.replace('_', '-')}", str(one))
        ]
        if self.name == "dragoman":
            return ["-m", "cli.main", "serve", "--model", str(artifacts.bundle), *ports, *options]
        command = ["-m", "bench.peers.server", "--kind", self.name]
        command += ["--bundle", str(artifacts.bundle), *ports, *options]
        command += ["--converted", str(artifacts.converted)]
        if self.name == "ctranslate2":
            command += ["--compute-type", artifacts.compute_type]
        return command

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"name": self.name, "settings": dict(self.settings)}


@contextlib.contextmanager
def running(
    system: System, artifacts: Artifacts, log: Path, checkout: Path = ROOT
) -> Iterator[Running]:
    """Run a system's server until the end of the context; its log goes to a file.

    Args:
        checkout: directory with the program's source code.

    Raises:
        LoadError: it did not come up; the message has the end of its log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:

        def write(line: str) -> None:
            # Access lines would be most of the log; the samples hold the same.
            if log_entry(line).get("logger") != _ACCESS:
                file.write(line)

        variables = environment(checkout)
        with server_process(system.command(artifacts), variables, on_line=write) as server:
            yield server
