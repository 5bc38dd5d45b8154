"""A run on disk, written while it goes on, so that no measurement is lost.

run.json               the plan, the latency target, the machine; whether the run came to its end
samples.jsonl.gz       every request: a line with the columns' names, then a line a request
server_metrics.jsonl   every scrape of the server's metrics
summary.json           the figures, which all follow from the files above
report.html            the same to look at
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.load.errors import ResultsError
from bench.load.plan import LoadPlan
from bench.load.sample import COLUMNS, RequestSample, from_row, to_row
from bench.load.scrape import ServerFigures, Snapshot, server_figures, whose_metrics
from bench.load.statistics import Run, Summary, summarise
from bench.load.units import Slo

RUN_FILE = "run.json"
SAMPLES_FILE = "samples.jsonl.gz"
METRICS_FILE = "server_metrics.jsonl"
SUMMARY_FILE = "summary.json"
REPORT_FILE = "report.html"
FORMAT_VERSION = 1
_PACKAGES = ("onnxruntime", "onnxruntime-gpu", "ctranslate2", "grpcio")


@dataclass(frozen=True)
class Results:
    """A run with its samples, scrapes and metadata.

    Attributes:
        run: the samples and how they came about.
        slo: the latency target; None without one.
        snapshots: scrapes of the server's metrics.
        about: the machine, the server's models, the source file, when; plain JSON values.
    """

    run: Run
    slo: Slo | None = None
    snapshots: Sequence[Snapshot] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def summary(self) -> Summary:
        """The run in figures."""
        return summarise(self.run, self.slo)

    def server(self) -> ServerFigures | None:
        """The server's own figures over the measured time; None without any."""
        if whose_metrics(self.snapshots, self.run.samples):
            return None
        return server_figures(self.snapshots, self.run.plan.warmup, self.run.seconds)


def about_machine() -> dict[str, Any]:
    """Facts of the machine and the software, stored with the results."""
    return {
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": platform.machine(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        # Without what a distribution, or a cloud, adds to the kernel's number.
        "operating_system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        **_versions(),
        # Other load at the begin of the run: figures of a busy machine are unreliable.
        "load_average": os.getloadavg()[0],
    }


@functools.cache
def _versions() -> dict[str, str]:
    """Versions of the runtimes that are installed, and the revision of the checkout."""
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        changed = _git("status", "--porcelain", "--", ":/")
        found["revision"] = _git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")
    return found


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=10)
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


class ResultsWriter:
    """Writes a run into a new or empty directory while it goes on.

    Args:
        directory: made if it doesn't exist.

    Raises:
        ResultsError: the directory can't be written or holds something.
    """

    def __init__(
        self, directory: Path, plan: LoadPlan, slo: Slo | None, about: Mapping[str, Any]
    ) -> None:
        self._directory = directory
        self._header = {
            "format_version": FORMAT_VERSION,
            "plan": plan.to_dict(),
            "slo": None if slo is None else asdict(slo),
            "about": dict(about),
        }
        self._num_written = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise ResultsError(f"{directory} is not empty: name another --output")
            self._write_json(RUN_FILE, {**self._header, "ended": None})
            # Open for as long as the run; `finish` closes it.
            self._samples = gzip.open(directory / SAMPLES_FILE, "wt", encoding="utf-8")  # noqa: SIM115
            self._write_line(list(COLUMNS))
            self._samples.flush()
        except OSError as exc:
            raise ResultsError(f"cannot write to {directory}: {exc.strerror or exc}") from exc

    def add(self, samples: Sequence[RequestSample]) -> None:
        """Store the samples that are new since the last call; `samples` has all."""
        for sample in samples[self._num_written :]:
            self._write_line(to_row(sample))
        self._num_written = len(samples)
        self._samples.flush()  # what is flushed can be read even if we are killed

    def finish(self, results: Results, report: str) -> None:
        """Store the results at the end of the run."""
        run = results.run
        self.add(run.samples)
        self._samples.close()
        ended = {
            "seconds": run.seconds,
            "broken_off": run.broken_off,
            "cpu_seconds": run.cpu_seconds,
            "num_scheduled": run.num_scheduled,
            "lags": list(run.lags),
        }
        lines = (json.dumps(asdict(snapshot)) for snapshot in results.snapshots)
        self._write(METRICS_FILE, "".join(line + "\n" for line in lines))
        server = results.server()
        figures = {
            "load": results.summary().to_dict(),
            "server": None if server is None else asdict(server),
        }
        self._write_json(SUMMARY_FILE, figures)
        self._write(REPORT_FILE, report)
        self._write_json(RUN_FILE, {**self._header, "about": dict(results.about), "ended": ended})

    def _write_line(self, values: list[Any]) -> None:
        self._samples.write(json.dumps(values, separators=(",", ":")) + "\n")

    def _write_json(self, name: str, value: Any) -> None:
        self._write(name, json.dumps(value, indent=1) + "\n")

    def _write(self, name: str, text: str) -> None:
        temporary = self._directory / f".{name}.partial"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self._directory / name)


def read_results(directory: Path) -> Results:
    """The run that `ResultsWriter` wrote, complete or not.

    Raises:
        ResultsError: there is no run, or its files are damaged.
    """
    try:
        header = json.loads((directory / RUN_FILE).read_text(encoding="utf-8"))
        if header["format_version"] != FORMAT_VERSION:
            raise ResultsError(
                f"{directory / RUN_FILE}: format_version is {header['format_version']}, "
                f"this program reads {FORMAT_VERSION}"
            )
        plan = LoadPlan.from_dict(header["plan"])
        slo = None if header["slo"] is None else Slo(**header["slo"])
        rows = list(_lines(directory / SAMPLES_FILE))
        samples = [from_row(rows[0], row) for row in rows[1:]]
        ended = header["ended"]
        if ended is None:
            last = max((sample.ended for sample in samples), default=0.0)
            seconds = min(last, plan.total_seconds)
            run = Run(plan, samples, [], seconds, "the load generator was killed")
        else:
            run = Run(plan=plan, samples=samples, **ended)
        snapshots = _snapshots(directory / METRICS_FILE)
    except OSError as exc:
        raise ResultsError(
            f"{directory} holds no run of `dragoman load`: {exc.filename}: {exc.strerror or exc}"
        ) from exc
    except (ValueError, KeyError, TypeError, IndexError) as exc:
        raise ResultsError(f"{directory} holds a damaged run: {exc!r}") from exc
    return Results(run, slo, snapshots, header["about"])


def completed(directory: Path, endings: Sequence[str] = ("",)) -> Results | None:
    """The run in `directory`, if there is one with an end that counts (see `Run.broken_off`)."""
    try:
        results = read_results(directory)
    except ResultsError:
        return None
    return results if results.run.broken_off in endings else None


def _lines(path: Path) -> Iterator[Any]:
    """The lines of a compressed file, as far as they were flushed."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        try:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)
        except EOFError:
            return


def _snapshots(path: Path) -> list[Snapshot]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Snapshot(**json.loads(line)) for line in lines]
