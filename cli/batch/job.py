"""A job and its files: finished parts, missing parts, and the outputs."""

from __future__ import annotations

import contextlib
import functools
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import IO, Any

from cli.batch import plan
from cli.batch.file_format import Rows
from cli.batch.formats import FORMATS
from cli.batch.inputs import LOCK, MANIFEST, PROBLEMS, STATE, InputFile, JobError, check_different
from cli.batch.plan import JobPart
from cli.batch.state import DamagedError, JobState, Record, checksum, read_record, write_record
from cli.batch.storage import Storage

_MANIFEST = "dragoman batch manifest 1"
_OTHER = "choose another output, or --restart"
# Of a text with a problem.
_MAX_SHOWN_CHARACTERS = 1000


@dataclass(frozen=True)
class Result:
    """The translation of a text.

    Attributes:
        text: the translation; None if it could not be translated.
        error: the reason.
        warnings: flaws of the translation, each with a kind, a text and a sentence.
    """

    text: str | None
    error: str = ""
    warnings: tuple[dict[str, str], ...] = ()


@dataclass
class Job:
    """Files, and a folder beside the output that has the plan and the finished parts.

    A part is done, or done again as a whole. In the end, outputs are joined from the parts. No file
    is replaced but what the job has written, and what was there when it was told to restart.

    Attributes:
        files: the input files, in order.
        output: file or folder.
        columns: names of the columns to translate.
        depends_on: settings that translations depend on, as JSON values.
        part_rows: most rows of a part.
    """

    files: Sequence[InputFile]
    output: Storage
    columns: tuple[str, ...]
    depends_on: Mapping[str, Any]
    part_rows: int = 8_192
    _plans: list[plan.FilePlan] = field(default_factory=list, init=False)
    _restarts: bool = field(default=False, init=False)
    # Versions of the files that were in the places of the outputs at the restart, by path.
    _replaced: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def _state(self) -> JobState:
        return JobState(self.output.with_suffix(STATE))

    @property
    def manifest(self) -> Storage:
        """The file that a finished job leaves beside its output."""
        return self.output.with_suffix(MANIFEST)

    @property
    def problems(self) -> Storage:
        """The file with the rows that could not be translated, or have warnings."""
        return self.output.with_suffix(PROBLEMS)

    @property
    def num_rows(self) -> int:
        """Number of rows of all files, once the job is open."""
        return sum(each.rows for each in self._plans)

    def open(self) -> int | None:
        """Plan the job, or take up the plan of an earlier run that has finished some parts.

        Returns:
            The number of failed rows if an earlier run has finished the job; else None.

        Raises:
            JobError: the earlier run was another job, an input or an output has changed or is
                damaged, or there is a file in the place of an output.
        """
        if self._restarts:
            self._plan_files()
            self._begin_again()
            return None
        try:
            finished = read_record(self.manifest, _MANIFEST)
        except DamagedError as exc:
            raise JobError(f"--output: {exc}: {_OTHER}") from exc
        if finished is not None:
            self._take_up(finished, self.manifest)
            self._check_outputs(finished["outputs"])
            self._state.remove()
            return int(finished["failed"])
        kept, parts = self._state.plan(), self._state.parts()
        if kept is not None and parts:
            self._take_up(kept, self._state.folder)
        else:
            self._plan_files()
        if any(part["plan"] != self._plan_id for part in parts.values()):
            raise JobError(
                f"--output: {self._state.folder.path} has parts of a plan that is lost, of other "
                f"options, files or --part-rows: {_OTHER}"
            )
        if kept is not None and _plan_id(kept) == self._plan_id:
            self._replaced = kept["replaced"]
        self._check_free(self._written)
        if kept is None or not parts:
            self._write_plan()
        return None

    def _plan_files(self) -> None:
        self._plans.extend(plan.plan_file(file, self.part_rows) for file in self.files)

    def _begin_again(self) -> None:
        old = [place for place in self._written if place.exists()]
        self._replaced = {place.path: place.version() for place in old}
        self._state.remove()
        self._write_plan()
        self.manifest.remove()
        self.problems.remove()

    def _take_up(self, kept: Mapping[str, Any], where: Storage) -> None:
        self._check(kept, where)
        self._plans.extend(plan.from_json(kept["inputs"]))
        for index in range(len(self.files)):
            self._check_input(index)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands on this machine from this job.

        Raises:
            JobError: another command works on it.
        """
        with self.output.with_suffix(LOCK).locked() as is_ours:
            if not is_ours:
                raise JobError(f"--output: another command works on {self.output.path}")
            yield

    def restart(self) -> None:
        """Forget earlier runs when the job is opened, and replace what is at its outputs then."""
        self._restarts = True

    def _described(self) -> dict[str, Any]:
        return {
            "columns": list(self.columns),
            "depends_on": dict(self.depends_on),
            "inputs": plan.to_json(self._plans),
        }

    def _write_plan(self) -> None:
        self._state.write_plan({"replaced": self._replaced, **self._described()})

    @functools.cached_property
    def _plan_id(self) -> str:
        """The checksum of the plan, by which its parts are known, once the job is open."""
        return _plan_id(self._described())

    def _check(self, kept: Mapping[str, Any], where: Storage) -> None:
        now = json.loads(json.dumps(self._described()))
        for name in ("columns", "depends_on"):
            if kept[name] != now[name]:
                raise JobError(
                    f"--output: {where.path} is of a job with other options or models "
                    f"({_difference(kept[name], now[name])}): {_OTHER}"
                )
        files = [[each.storage.path, each.output.path, each.format] for each in self.files]
        if [[each["path"], each["output"], each["format"]] for each in kept["inputs"]] != files:
            raise JobError(f"--output: {where.path} is of a job with other files: {_OTHER}")

    def _check_input(self, index: int) -> None:
        """Check that a file has not changed; a file with only a new time is read for that."""
        file, kept = self.files[index], self._plans[index]
        version = file.storage.version()
        if version == kept.version:
            return
        if plan.plan_file(file, self.part_rows).sha256 != kept.sha256:
            raise JobError(f"{kept.path} has changed since the job began: {_OTHER}")
        self._plans[index] = replace(kept, version=version)

    def _check_outputs(self, kept: Sequence[Mapping[str, str]]) -> None:
        """Check that the outputs are as a finished job has left them."""
        for file, output in zip(self.files, kept, strict=True):
            if not file.output.exists():
                raise JobError(f"{file.output.path} is gone since the job ended: --restart")
            is_same = file.output.version() == output["version"]
            if not is_same and file.output.sha256() != output["sha256"]:
                raise JobError(f"{file.output.path} has changed since the job ended: {_OTHER}")

    @property
    def _written(self) -> list[Storage]:
        return [*(file.output for file in self.files), self.problems, self.manifest]

    def _check_free(self, places: Sequence[Storage]) -> None:
        """Check that there is nothing, or what the job may replace."""
        for place in places:
            if not place.exists() or self._replaced.get(place.path) == place.version():
                continue
            if not self._state.has_claimed(self._claim(place, place.sha256())):
                check_different(file.output for file in self.files)  # or it is one of them
                raise JobError(f"--output: {place.path} exists, and is not of this job: {_OTHER}")

    def _claim(self, place: Storage, sha256: str) -> dict[str, str]:
        return {"plan": self._plan_id, "path": place.path, "sha256": sha256}

    def _finished(self) -> dict[JobPart, Record]:
        """The finished parts, with their records."""
        kept = self._state.parts()
        return {
            part: record
            for part in plan.parts_of(self._plans)
            if (record := kept.get(part.name)) is not None
            and all(record.get(name) == value for name, value in self._identity(part).items())
        }

    def _identity(self, part: JobPart) -> dict[str, Any]:
        """Values of a record by which a part of this plan differs from all others."""
        return {"plan": self._plan_id, "part": part.name, "extent": asdict(part.extent)}

    def missing(self) -> list[JobPart]:
        """The parts that are not done, in order."""
        done = self._finished()
        return [part for part in plan.parts_of(self._plans) if part not in done]

    def read(self, part: JobPart) -> Rows:
        """The rows of a part.

        Raises:
            JobError: a column is missing, or the file is damaged or has changed.
        """
        self._check_input(part.file)
        file = self.files[part.file]
        with plan.reading(file) as content:
            rows = FORMATS[file.format][0].read(content, part.extent, self.columns)
        self._check_input(part.file)
        if any(len(texts) != part.extent.rows for texts in rows.texts.values()):
            raise JobError(f"{file.storage.path} has other rows than when the job began: {_OTHER}")
        return rows

    def write(self, part: JobPart, rows: Rows, results: Mapping[str, Sequence[Result]]) -> None:
        """Keep a part.

        Args:
            part: the part.
            rows: rows that `read` returned.
            results: results of all rows, for each column.
        """
        new = {
            f"{name}_translation": [each.text for each in column]
            for name, column in results.items()
        }
        content = io.BytesIO()
        FORMATS[self.files[part.file].format][0].write(
            content, rows, new, is_first=part.number == 0
        )
        problems = list(self._problems(part, rows, results))
        record = {**self._identity(part), "problems": problems}
        self._state.keep(part.name, content.getvalue(), record)

    def _problems(
        self, part: JobPart, rows: Rows, results: Mapping[str, Sequence[Result]]
    ) -> Iterator[dict[str, Any]]:
        for index in range(part.extent.rows):
            where = {
                "input": self.files[part.file].storage.path,
                "row": part.first_row + index + 1,
            }
            if index in rows.errors:
                yield {**where, "error": rows.errors[index]}
                continue
            for column, each in results.items():
                result = each[index]
                text = rows.texts[column][index] or ""
                about = {"column": column, "text": text[:_MAX_SHOWN_CHARACTERS]}
                if result.error:
                    yield {**where, **about, "error": result.error}
                elif result.warnings:
                    yield {**where, **about, "warnings": list(result.warnings)}

    def finish(self) -> tuple[int, int]:
        """Join the parts to the outputs, write the manifest, and remove the parts.

        Returns:
            The numbers of rows that failed, and of rows with warnings.

        Raises:
            JobError: a part is damaged, or a file has changed.
        """
        for index in range(len(self.files)):
            self._check_input(index)
        kept = self._finished()
        for part in plan.parts_of(self._plans):
            if part not in kept:
                raise self._unfinished(f"{part.name} is missing or damaged")
        self._check_free(self._written)
        own: list[list[JobPart]] = [[] for _ in self.files]
        for part in kept:
            own[part.file].append(part)
        outputs = [self._join(*each, kept) for each in zip(self.files, own, strict=True)]
        problems = [problem for record in kept.values() for problem in record["problems"]]
        if problems:
            lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in problems)
            self._write(
                self.problems, lambda file: file.writelines(line.encode() for line in lines)
            )
        else:
            self._check_free([self.problems])
            self.problems.remove()  # that of a run that was interrupted here
        failed = {(each["input"], each["row"]) for each in problems if "error" in each}
        warned = {(each["input"], each["row"]) for each in problems} - failed
        manifest = {
            **self._described(),
            "outputs": outputs,
            "parts": [
                {"file": part.file, "rows": part.extent.rows, "sha256": record["sha256"]}
                for part, record in kept.items()
            ],
            "failed": len(failed),
            "warned": len(warned),
        }
        write_record(self.manifest, _MANIFEST, manifest)
        self._state.remove()
        return len(failed), len(warned)

    def _join(
        self, file: InputFile, parts: Sequence[JobPart], kept: Mapping[JobPart, Record]
    ) -> dict[str, str]:
        """Write an output; returns what the manifest has of it."""

        def fill(output: IO[bytes]) -> None:
            contents = (io.BytesIO(self._state.content(part.name, kept[part])) for part in parts)
            FORMATS[file.format][0].join(output, contents)

        try:
            sha256 = self._write(file.output, fill)
        except DamagedError as exc:
            raise self._unfinished(str(exc)) from exc
        return {"path": file.output.path, "version": file.output.version(), "sha256": sha256}

    def _write(self, place: Storage, fill: Callable[[IO[bytes]], Any]) -> str:
        """Write a file that the job may replace from now on, also if it is killed; see `write`."""

        def claim(sha256: str) -> None:
            if place.is_local:  # elsewhere, the file itself may be there already
                self._check_free([place])  # again: joining a large file takes long
            self._state.claim(self._claim(place, sha256))

        return place.write(fill, claim)

    def _unfinished(self, why: str) -> JobError:
        return JobError(f"{self._state.folder.path}: {why}; the same command does this part again")


def _plan_id(described: Mapping[str, Any]) -> str:
    """The checksum of a plan, without the times of its files."""
    inputs = [{**each, "version": None} for each in described["inputs"]]
    return checksum({**{n: described[n] for n in ("columns", "depends_on")}, "inputs": inputs})


def _difference(before: Any, now: Any) -> str:
    """The first difference between two JSON values, in words."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in [*before, *now]:
            if before.get(name) != now.get(name):
                return f"{name}: {json.dumps(before.get(name))}, now {json.dumps(now.get(name))}"
    return f"{json.dumps(before)}, now {json.dumps(now)}"
