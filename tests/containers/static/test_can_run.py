"""The probe of continuous integration: reasons for leaving out container tests."""

from pathlib import Path

import pytest

from tests.containers.live.can_run import ProbeError, reason

COMMANDS = ("docker-compose", "debootstrap", "prometheus", "ip", "iptables")
RUNNING = "trap 'exit 0' TERM; while :; do /bin/sleep 0.05; done"


def machine(directory: Path, **scripts: str) -> str:
    """A PATH on which each command is a script; those that are not named succeed."""
    plain = {
        "unshare": 'shift; exec "$@"',
        "dockerd": RUNNING,
        "docker": "exit 0",
        **dict.fromkeys(COMMANDS, "exit 0"),
    }
    for name, script in {**plain, **scripts}.items():
        file = directory / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    return str(directory)


def test_where_every_command_succeeds_containers_run(tmp_path: Path) -> None:
    assert reason(machine(tmp_path), user=0) == ""


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    path = machine(tmp_path)
    (tmp_path / "dockerd").unlink()
    (tmp_path / "ip").unlink()
    assert reason(path, user=0) == "not installed: dockerd, ip"
    assert "root" in reason(path, user=1000)


@pytest.mark.parametrize(
    ("command", "script", "told"),
    [
        ("unshare", "echo 'unshare failed: Operation not permitted'; exit 1", "not permitted"),
        ("ip", "echo 'Error: Unknown device type.' >&2; exit 2", "Unknown device type"),
        ("iptables", "echo 'iptables: Table does not exist'; exit 3", "Table does not exist"),
        (
            "docker",
            '[ "$1" != run ] || { echo "runc: mount proc: permission denied"; exit 125; }',
            "permission denied",
        ),
    ],
)
def test_known_signs_leave_tests_out(tmp_path: Path, command: str, script: str, told: str) -> None:
    assert told in reason(machine(tmp_path, **{command: script}), user=0)


def test_an_engine_that_may_not_start_leaves_them_out(tmp_path: Path) -> None:
    dockerd = "echo 'failed to start daemon: Devices cgroup isn'\"'\"'t mounted' >&2; exit 1"
    path = machine(tmp_path, dockerd=dockerd, docker="exit 1")
    assert "isn't mounted" in reason(path, user=0)


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("unshare", "exit 1"),
        ("docker", '[ "$1" != import ] || { echo "invalid reference format"; exit 1; }'),
        ("docker", '[ "$1" != run ] || { echo "no such file: /bin/true"; exit 127; }'),
    ],
)
def test_any_other_failure_is_one(tmp_path: Path, command: str, script: str) -> None:
    with pytest.raises(ProbeError, match=command):
        reason(machine(tmp_path, **{command: script}), user=0)


def test_a_warning_of_an_engine_that_fails_otherwise_is_no_sign(tmp_path: Path) -> None:
    dockerd = "echo 'warning: modprobe: permission denied'; "
    dockerd += "echo 'failed to start daemon: unknown option'; exit 1"
    with pytest.raises(ProbeError, match="unknown option"):
        reason(machine(tmp_path, dockerd=dockerd, docker="exit 1"), user=0)
