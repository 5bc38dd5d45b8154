"""A separate Docker engine for the tests, which leaves nothing behind.

Images are built with the machine's network, since pip has to reach an index. Then the process
moves into a network namespace of its own and starts the engine again on the same images: bridges,
published ports and firewall rules are made there, and end with the process. Base images can't be
had without a registry: Debian, bootstrapped under the names that the files ask for, stands in.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.containers.tools import DOCKER, ROOT
from tests.containers.waiting import eventually

_PACKAGES = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "docker-compose": "docker-compose",
    "debootstrap": "debootstrap",
    "prometheus": "prometheus",
    "ip": "iproute2",
    "iptables": "iptables",
}
# Debian's own first: its engine, client and compose belong together.
_PATH = os.pathsep.join(["/usr/bin", "/usr/sbin", os.environ.get("PATH", "")])
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_CLONE_NEWNET = 0x40000000
_STAND_IN = """\
FROM {base}
COPY {binary} /usr/local/bin/{binary}
RUN mkdir -p /{binary} && chown 65534:65534 /{binary}
ENTRYPOINT {entrypoint}
"""


def missing() -> str:
    """Description of what this machine needs to run an engine; empty if it has everything."""
    packages = sorted({package for name, package in _PACKAGES.items() if not _which(name)})
    needs = [f"apt-get install {' '.join(packages)}"] if packages else []
    if os.geteuid() != 0:
        needs.append("root, for a Docker engine and a network of its own")
    return "; ".join(needs)


def require_everything() -> None:
    """Fail, saying what is missing, unless this machine can run the tests."""
    if needs := missing():
        pytest.exit(f"make test-containers needs: {needs}", returncode=1)


class DockerEngine:
    """`dockerd` with a data directory of its own, and its client.

    Args:
        directory: for everything that it writes.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("DRAGOMAN_")},
            "PATH": _PATH,
            "DOCKER_HOST": f"unix://{directory}/docker.sock",
            "DOCKER_CONFIG": str(directory),
            "DOCKER_BUILDKIT": "1",
        }

    def start(self, *options: str) -> None:
        """Start the engine and wait until it answers."""
        log = (self._directory / "dockerd.log").open("ab")
        self._process = subprocess.Popen(
            [
                str(_which("dockerd")),
                *("--data-root", str(self._directory / "data")),
                *("--exec-root", str(self._directory / "exec")),
                *("--pidfile", str(self._directory / "dockerd.pid")),
                *("--host", self.environment["DOCKER_HOST"]),
                *options,
            ],
            env=self.environment,
            stdout=log,
            stderr=log,
        )
        eventually(self._answers, f"dockerd (see {log.name})", 60.0)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "dockerd.log").read_text()[-3000:]
        return self._call("docker", "version").returncode == 0

    def stop(self) -> None:
        """Stop the engine; its containers end with it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None
        # The engine leaves its hold on the network namespace, and nothing can be deleted under it.
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if (place := line.split()[1]).startswith(f"{self._directory}/"):
                subprocess.run(["umount", place], check=True)

    def __call__(self, *arguments: str | Path, **environment: str) -> str:
        """Run `docker ARGUMENTS`; returns its output, or fails with its messages."""
        return self._checked("docker", *arguments, **environment)

    def compose(self, *arguments: str | Path, **environment: str) -> str:
        """Run `docker-compose ARGUMENTS` for docker/compose.yaml; returns its output."""
        file = str(DOCKER / "compose.yaml")
        return self._checked("docker-compose", "--file", file, *arguments, **environment)

    def compose_status(self, *arguments: str | Path, **environment: str) -> tuple[int, str]:
        """The exit status of `docker-compose ARGUMENTS`, and what it prints."""
        file = str(DOCKER / "compose.yaml")
        done = self._call("docker-compose", "--file", file, *arguments, **environment)
        return done.returncode, done.stdout + done.stderr

    def inspect(self, name: str) -> dict[str, Any]:
        """The engine's description of a container or image."""
        (found,) = json.loads(self("inspect", name))
        return dict(found)

    def wait_healthy(self, name: str) -> None:
        """Wait until the container's HEALTHCHECK is content."""

        def healthy() -> bool:
            state = self.inspect(name)["State"]
            assert state["Running"] or state["Restarting"], self("logs", name)
            return bool(state["Health"]["Status"] == "healthy")

        eventually(healthy, f"{name} is healthy")

    def pause(self, name: str) -> None:
        """Freeze every process of the container; `docker unpause NAME` lets them go on."""
        # With cgroups of version 1, runc gives up ("unable to freeze") if a process does not stop
        # within a thousand looks, and thaws them all: on a busy machine it may need a few attempts.

        def paused() -> bool:
            done = self._call("docker", "pause", name)
            assert done.returncode == 0 or "unable to freeze" in done.stderr, done.stderr
            return done.returncode == 0

        eventually(paused, f"{name} is frozen", 30.0)

    def log(self, name: str) -> list[dict[str, Any]]:
        """The log of a container that runs a server, of all its runs."""
        done = self._call("docker", "logs", name)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stderr.splitlines()]

    def _call(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            env={**self.environment, **environment},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def _checked(self, *command: str | Path, **environment: str) -> str:
        done = self._call(*command, **environment)
        assert done.returncode == 0, f"{command}:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        return done.stdout


@contextlib.contextmanager
def running_engine(directory: Path) -> Iterator[DockerEngine]:
    """An engine that has the images of docker/compose.yaml, in a network namespace of its own."""
    engine = DockerEngine(directory)
    try:
        engine.start("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none")
        _build_images(engine, directory)
        engine.stop()
        leave_network()
        engine.start()
        yield engine
    finally:
        engine.stop()


def _build_images(engine: DockerEngine, directory: Path) -> None:
    base = argument_default("PYTHON_IMAGE")
    if not engine("images", "--quiet", base).strip():
        archive = _bootstrap(directory)
        engine("import", archive, base)
        archive.unlink()
    for target in ("cpu", "load"):
        engine(
            *("build", "--network", "host", "--pull=false", "--file", DOCKER / "Dockerfile"),
            *("--target", target, "--tag", f"dragoman:{target}", "--build-arg", "VERSION=1.2.3"),
            *_secrets(directory),
            ROOT,
        )
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    envoy = Path(sys.executable).parent.parent.glob("lib/python*/site-packages/envoy/_bin/envoy")
    binaries = {"envoy": next(envoy), "prometheus": Path(str(_which("prometheus")))}
    for name, binary in binaries.items():
        context = directory / name
        context.mkdir(exist_ok=True)
        shutil.copy(binary, context / name)
        # The official images: Envoy's takes a whole command, Prometheus' only its options.
        entrypoint = "[]" if name == "envoy" else '["/usr/local/bin/prometheus"]'
        text = _STAND_IN.format(base=base, binary=name, entrypoint=entrypoint)
        (context / "Dockerfile").write_text(text)
        engine("build", "--network", "host", "--tag", services[name]["image"], context)


def argument_default(argument: str) -> str:
    """The default of an ARG of docker/Dockerfile."""
    lines = (DOCKER / "Dockerfile").read_text().splitlines()
    (value,) = [line.split("=", 1)[1] for line in lines if line.startswith(f"ARG {argument}=")]
    return value


def _bootstrap(directory: Path) -> Path:
    """An archive of a small Debian with Python where the official image has it."""
    root = directory / "root"
    root.mkdir()
    # In memory: the package manager asks the disk to confirm each file that it unpacks.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "stand-in", str(root)], check=True)
    subprocess.run(
        [
            str(_which("debootstrap")),
            "--variant=minbase",
            "--include=python3,python3-venv,ca-certificates",
            *("bookworm", str(root)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for name in ("python", "python3"):
        (root / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
    archive = directory / "root.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    subprocess.run(["umount", str(root)], check=True)
    return archive


def _secrets(directory: Path) -> list[str]:
    """The build's secrets: this machine's way to a package index."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    wanted = {"index-url", "extra-index-url", "trusted-host", "proxy", "timeout"}
    lines = ["[global]"]
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        # Folders of this machine are not there in a build.
        if key.split(".")[-1] in wanted and "file:" not in value:
            lines.append(f"{key.split('.')[-1]} = {value.strip(chr(39))}")
    if _CERTIFICATES.exists():
        lines.append(f"cert = {_CERTIFICATES}")
    file = directory / "pip.conf"
    file.write_text("\n".join(lines) + "\n")
    secrets = ["--secret", f"id=pip-conf,src={file}"]
    if _CERTIFICATES.exists():
        secrets += ["--secret", f"id=ca-certificates,src={_CERTIFICATES}"]
    return secrets


def leave_network() -> None:
    """Move this process, and what it starts from now on, into a new network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run([str(_which("ip")), "link", "set", "lo", "up"], check=True)


def _which(name: str) -> str | None:
    return shutil.which(name, path=_PATH)
