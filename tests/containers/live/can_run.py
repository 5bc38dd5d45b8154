"""Whether containers can run on this machine at all; for continuous integration.

    python -m tests.containers.live.can_run

Ends with 0 if they can. Ends with 3, after printing why, where the machine shows a known sign that
they can't: no root, a command that could not be installed, a kernel or a sandbox that forbids what
a Docker engine needs. Any other failure ends with 1: nobody has understood it yet, so it may not
leave tests out. It runs plain commands and nothing of the project, so that a fault of ours can't
pass for an inability of the machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

CANNOT = 3

_COMMANDS = (
    "dockerd", "docker", "docker-compose", "debootstrap", "prometheus", "ip", "iptables", "unshare",
)  # fmt: skip
# Debian's own first: its engine and client belong together.
_PATH = os.pathsep.join(["/usr/bin", "/usr/sbin", os.environ.get("PATH", "")])
_NETWORK = (
    "ip link set lo up",
    "ip link add probe0 type bridge",
    "iptables --table nat --list --numeric",
)
_SIGNS = re.compile(
    r"operation not permitted|permission denied|\bEPERM\b|\bEACCES\b|read-only file system"
    r"|function not implemented|(protocol|operation|address family|type) not supported"
    r"|unknown device type|no such device|table does not exist|can't initialize iptables table"
    r"|cgroups?\b.*(not mounted|isn't mounted|not found)|modprobe",
    re.IGNORECASE,
)
_START_SECONDS = 90.0
_CALL_SECONDS = 120.0
_STOP_SECONDS = 60.0


class ProbeError(Exception):
    """Something failed that is no known sign of a machine on which containers can't run."""


class _Inability(Exception):
    """A known sign of such a machine."""


def reason(path: str = _PATH, user: int | None = None) -> str:
    """Why containers can't run here; empty if they can.

    Args:
        path: directories that are searched for commands.
        user: id of the user that it runs as; None for that of this process.

    Raises:
        ProbeError: the probe failed.
    """
    if (os.geteuid() if user is None else user) != 0:
        return "it would need root"
    if lacking := [name for name in _COMMANDS if not shutil.which(name, path=path)]:
        return f"not installed: {', '.join(lacking)}"
    try:
        with tempfile.TemporaryDirectory(prefix="dragoman-probe-") as name:
            _probe(Path(name), path)
    except _Inability as exc:
        return str(exc)
    return ""


def told(what: str, output: str) -> Exception:
    """The error for a failure with this output: an inability if it shows a sign of one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in reversed(lines):
        if _SIGNS.search(line):
            return _Inability(f"{what}: {line}")
    return ProbeError(f"{what} failed: {' / '.join(lines[-5:]) or 'without a message'}")


def _probe(directory: Path, path: str) -> None:
    """A network of its own, an engine in it, and a container."""
    environment = {
        **os.environ,
        "PATH": path,
        "DOCKER_HOST": f"unix://{directory}/docker.sock",
        "DOCKER_CONFIG": str(directory),
    }
    for command in _NETWORK:
        _run(environment, "unshare", "--net", *command.split())
    with _engine(directory, environment):
        _run(environment, "docker", "import", str(_smallest_system(directory)), "probe")
        limits = ("--network", "none", "--read-only", "--memory", "64m")
        _run(environment, "docker", "run", "--rm", *limits, "probe", "/bin/true")


def _run(environment: Mapping[str, str], *command: str) -> None:
    done = _called(environment, *command)
    if done.returncode:
        raise told(" ".join(command), done.stdout)


def _called(environment: Mapping[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_CALL_SECONDS,
    )


@contextlib.contextmanager
def _engine(directory: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """An engine with the fewest options, as long as the context; it answers."""
    log = directory / "dockerd.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [
                *("unshare", "--net", "dockerd"),
                *("--data-root", str(directory / "data"), "--exec-root", str(directory / "exec")),
                *("--pidfile", str(directory / "dockerd.pid")),
                *("--host", environment["DOCKER_HOST"], "--bridge=none"),
                *("--iptables=false", "--ip6tables=false", "--ip-forward=false"),
            ],
            env=environment,
            stdout=file,
            stderr=file,
        )
    try:
        _await_answer(process, environment, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _unmount(directory)


def _await_answer(
    process: subprocess.Popen[bytes], environment: Mapping[str, str], log: Path
) -> None:
    end = time.monotonic() + _START_SECONDS
    while _called(environment, "docker", "info").returncode:
        if process.poll() is not None:
            # Earlier warnings are not the reason.
            text = log.read_text(errors="replace")
            raise told("dockerd", text[max(0, text.rfind("failed to start")) :][-3000:])
        if time.monotonic() > end:
            raise ProbeError(f"dockerd did not answer within {_START_SECONDS:.0f} s")
        time.sleep(0.2)


def _unmount(directory: Path) -> None:
    """Unmount mounts that the engine has left, since files under them can't be deleted."""
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        if (place := line.split()[1]).startswith(f"{directory}/"):
            subprocess.run(["umount", place], check=True)


def _smallest_system(directory: Path) -> Path:
    """An archive of /bin/true and what it is linked to."""
    linked = subprocess.run(["ldd", "/bin/true"], capture_output=True, text=True, check=True).stdout
    archive = directory / "true.tar"
    with tarfile.open(archive, "w", dereference=True) as tar:
        for path in ("/bin/true", *re.findall(r"(/\S+) \(0x", linked)):
            tar.add(path)
    return archive


def main() -> None:
    """The command line."""
    try:
        why = reason()
    except ProbeError as exc:
        sys.exit(f"whether containers can run here: {exc}")  # with 1
    if why:
        print(why)
        sys.exit(CANNOT)


if __name__ == "__main__":
    main()
