"""`dragoman batch` on S3, with Parquet, and on a Ray cluster with an actor that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.batch.inputs import JobError
from tests.batch_jobs import ROWS as TEXTS
from tests.batch_jobs import job_of, run_one_part
from tests.batch_jobs import run as run_job
from tests.factories import tiny_bundle
from tests.integration.servers import command_environment

pytestmark = pytest.mark.batch

ROWS = [{"id": index, "text": f"A dog runs {'fast ' * (index % 7)}."} for index in range(200)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundles") / "tiny", name="tiny").path


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An S3 server with a bucket, which the environment names."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    fs = s3fs.S3FileSystem(skip_instance_cache=True)
    fs.mkdir("texts")
    s3fs.S3FileSystem.clear_instance_cache()  # it has the server of an earlier test
    yield fs
    fs.invalidate_cache()
    fs.rm("texts", recursive=True)  # else the next server in this process has it
    server.stop()


def command(*arguments: str | Path) -> list[str]:
    """A `dragoman batch` command."""
    return [sys.executable, "-m", "cli.main", "batch", *map(str, arguments), "--part-rows", "20"]


def run(*arguments: str | Path) -> str:
    """Run the command to its end; returns its errors."""
    done = subprocess.run(
        command(*arguments), env=command_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def parquet(path: Path) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=33)
    return path


def check(rows: list[dict[str, Any]]) -> None:
    """Each row is there once, in order, with what it had."""
    assert [{"id": row["id"], "text": row["text"]} for row in rows] == ROWS
    by_text = {row["text"]: row["text_translation"] for row in rows}
    assert all(by_text[row["text"]] == row["text_translation"] for row in rows)
    assert None not in by_text.values()


def test_a_killed_job_on_s3_goes_on(bucket: Any, bundle: Path) -> None:
    content = "".join(json.dumps(row) + "\n" for row in ROWS)
    bucket.pipe("texts/in/rows.jsonl", content.encode())
    arguments = ("s3://texts/in", "--output", "s3://texts/out", "--bundle", bundle)
    process = subprocess.Popen(command(*arguments), env=command_environment())
    while process.poll() is None:
        bucket.invalidate_cache()
        if bucket.glob("texts/out.dragoman-job/0*.json"):
            break
    process.kill()
    process.wait()
    assert "going on after" in run(*arguments)
    bucket.invalidate_cache()
    check([json.loads(line) for line in bucket.cat("texts/out/rows.jsonl").splitlines()])
    manifest = json.loads(bucket.cat("texts/out.manifest.json"))
    assert sum(part["rows"] for part in manifest["parts"]) == len(ROWS)
    assert not bucket.exists("texts/out.dragoman-job")


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("s3://texts/in/a.txt", "s3://texts/in"),
        ("s3://texts/in/*.txt", "s3://texts/in/"),
        ("s3a://texts/in/a.txt", "s3://texts/in/a.txt"),
        ("s3://texts/**/*.txt", "s3://texts/out"),
    ],
)
def test_an_output_on_s3_is_no_input(bucket: Any, source: str, output: str) -> None:
    bucket.pipe("texts/in/a.txt", b"one\n")
    with pytest.raises(JobError, match=r"is the input|would be an input"):
        job_of(source, output)


def test_a_name_on_s3_leads_nowhere_else(bucket: Any, tmp_path: Path) -> None:
    bucket.pipe("texts/in/../../a.txt", b"one\n")
    with pytest.raises(JobError, match="not be in the folder of the outputs"):
        job_of("s3://texts/in", tmp_path / "out")


def test_parts_on_s3_are_believed_with_their_plan(bucket: Any) -> None:
    bucket.pipe("texts/in.txt", "".join(f"{row}\n" for row in TEXTS).encode())
    for name in ("out.txt", "out*.txt"):
        place = f"s3://texts/{name}"
        run_one_part(job_of("s3://texts/in.txt", place))
        bucket.rm_file(f"texts/{name}.dragoman-job/plan.json")
        with pytest.raises(JobError, match="has parts of a plan that is lost"):
            job_of("s3://texts/in.txt", place, part_rows=7).open()
        bucket.pipe(f"texts/{name}.dragoman-job/00000-000000.json", b"{}")
        run_job(job_of("s3://texts/in.txt", place))
        bucket.invalidate_cache()
        content = bucket.cat_file(f"texts/{name}").decode()
        assert content == "".join(f"[{row}]\n" for row in TEXTS)
        assert not bucket.find(f"texts/{name}.dragoman-job")
        assert job_of("s3://texts/in.txt", place).open() == 0


def test_parquet_keeps_its_columns_and_types(bundle: Path, tmp_path: Path) -> None:
    from pyarrow import parquet as pq

    source = parquet(tmp_path / "in.parquet")
    run(source, "--output", tmp_path / "out.parquet", "--bundle", bundle)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.schema.field("id").type == pq.read_table(source).schema.field("id").type
    check(table.to_pylist())


def test_a_cluster_does_the_job_though_an_actor_is_killed(bundle: Path, tmp_path: Path) -> None:
    source = parquet(tmp_path / "in.parquet")
    output = tmp_path / "out.parquet"
    arguments = (source, "--output", output, "--bundle", bundle, "--ray", "local")
    environment = {**command_environment(), "RAY_TMPDIR": "/tmp/dragoman-ray"}
    process = subprocess.Popen(
        command(*arguments, "--actor-cpus", "1"), env=environment, stderr=subprocess.PIPE
    )
    killed = False
    while process.poll() is None and not killed:
        for actor in actors_of(process.pid):
            os.kill(actor, signal.SIGKILL)
            killed = True
            break
    _, errors = process.communicate()
    assert killed
    assert process.returncode == 0, errors
    from pyarrow import parquet as pq

    check(pq.read_table(output).to_pylist())


def actors_of(pid: int) -> list[int]:
    """Processes of actors that translate, among the descendants of a process."""
    from bench.processes import descendants

    found = []
    for child in descendants(pid):
        try:
            name = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if b"PartTranslator" in name:
            found.append(child)
    return found
