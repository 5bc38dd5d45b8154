"""A job and its files: finished parts, missing parts, and the outputs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

from cli.batch import plan
from cli.batch.file_format import Rows
from cli.batch.formats import FORMATS
from cli.batch.plan import InputFile, JobError, JobPart
from cli.batch.storage import Storage

_PLAN = "plan.json"
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


@dataclass(frozen=True)
class Job:
    """Files, and a folder beside the output that has the plan and the finished parts.

    A part is a file with the translated rows and, written after it, one with its checksum. So a
    part is done, or done again as a whole. In the end, outputs are joined from the parts.

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

    @property
    def _state(self) -> Storage:
        return self.output.with_suffix(".dragoman-job")

    @property
    def manifest(self) -> Storage:
        """The file that a finished job leaves beside its output."""
        return self.output.with_suffix(".manifest.json")

    @property
    def problems(self) -> Storage:
        """The file with the rows that could not be translated, or have warnings."""
        return self.output.with_suffix(".problems.jsonl")

    @property
    def num_rows(self) -> int:
        """Number of rows of all files, once the job is open."""
        return sum(each.rows for each in self._plans)

    def open(self) -> int | None:
        """Plan the job, or take up the plan of an earlier run that has finished some parts.

        Returns:
            The number of failed rows if an earlier run has finished the job; else None.

        Raises:
            JobError: the earlier run was another job, a file is damaged, or an output is gone.
        """
        if (finished := self.manifest.read_json()) is not None:
            self._take_up(finished, self.manifest)
            for file in self.files:
                if not file.output.exists():
                    raise JobError(f"{file.output.path} is gone since the job ended: --restart")
            return int(finished["failed"])
        kept = (self._state / _PLAN).read_json()
        if kept is not None and self._done():
            self._take_up(kept, self._state)
        else:
            self._plans.extend(plan.plan_file(file, self.part_rows) for file in self.files)
            (self._state / _PLAN).write_json(self._described())
        return None

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
        with self.output.with_suffix(".dragoman-lock").locked() as is_ours:
            if not is_ours:
                raise JobError(f"--output: another command works on {self.output.path}")
            yield

    def restart(self) -> None:
        """Forget earlier runs."""
        self._state.remove()
        for file in (self.manifest, self.problems):
            if file.exists():
                file.fs.rm(file.path)

    def _described(self) -> dict[str, Any]:
        return {
            "columns": list(self.columns),
            "depends_on": dict(self.depends_on),
            "inputs": plan.to_json(self._plans),
        }

    def _check(self, kept: Mapping[str, Any], where: Storage) -> None:
        now = json.loads(json.dumps(self._described()))
        for name in ("columns", "depends_on"):
            if kept[name] != now[name]:
                raise JobError(
                    f"--output: {where.path} is of a job with other options or models "
                    f"({_difference(kept[name], now[name])}): choose another output, or --restart"
                )
        paths = [file.storage.path for file in self.files]
        if [each["path"] for each in kept["inputs"]] != paths:
            raise JobError(
                f"--output: {where.path} is of a job with other files: choose another output, or "
                "--restart"
            )

    def _check_input(self, index: int) -> None:
        """Check that a file has not changed; a file with only a new time is read for that."""
        file, kept = self.files[index], self._plans[index]
        version = file.storage.version()
        if version == kept.version:
            return
        if plan.plan_file(file, self.part_rows).sha256 != kept.sha256:
            raise JobError(
                f"{kept.path} has changed since the job began: choose another output, or --restart"
            )
        self._plans[index] = replace(kept, version=version)

    def _done(self) -> set[str]:
        """Names of the finished parts."""
        if not self._state.exists():
            return set()
        names = (path.rpartition("/")[2] for path in self._state.fs.ls(self._state.path, False))
        return {name[:-5] for name in names if name.endswith(".json")} - {_PLAN[:-5]}

    def missing(self) -> list[JobPart]:
        """The parts that are not done, in order."""
        done = self._done()
        return [part for part in plan.parts_of(self._plans) if part.name not in done]

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
        (self._state / f"{part.name}.part").write(lambda file: file.write(content.getvalue()))
        (self._state / f"{part.name}.json").write_json(
            {
                "rows": part.extent.rows,
                "sha256": hashlib.sha256(content.getvalue()).hexdigest(),
                "problems": list(self._problems(part, rows, results)),
            }
        )

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
        parts = plan.parts_of(self._plans)
        kept = {part: (self._state / f"{part.name}.json").read_json() for part in parts}
        for index, file in enumerate(self.files):
            own = [part for part in parts if part.file == index]

            def fill(output: IO[bytes], file: InputFile = file, own: list[JobPart] = own) -> None:
                FORMATS[file.format][0].join(output, (self._verified(p, kept[p]) for p in own))

            file.output.write(fill)
        problems = [problem for part in parts for problem in kept[part]["problems"]]
        if problems:
            lines = (json.dumps(each, ensure_ascii=False) + "\n" for each in problems)
            self.problems.write(lambda file: file.writelines(line.encode() for line in lines))
        failed = {(each["input"], each["row"]) for each in problems if "error" in each}
        warned = {(each["input"], each["row"]) for each in problems} - failed
        self.manifest.write_json(
            {
                **self._described(),
                "parts": [
                    {"file": part.file, "rows": part.extent.rows, "sha256": kept[part]["sha256"]}
                    for part in parts
                ],
                "failed": len(failed),
                "warned": len(warned),
            }
        )
        self._state.remove()
        return len(failed), len(warned)

    def _verified(self, part: JobPart, kept: Mapping[str, Any]) -> IO[bytes]:
        file = self._state / f"{part.name}.part"
        content = file.fs.cat_file(file.path)
        if hashlib.sha256(content).hexdigest() != kept["sha256"]:
            raise JobError(f"{self._state.path}: {file.name} is damaged; use --restart")
        return io.BytesIO(content)


def _difference(before: Any, now: Any) -> str:
    """The first difference between two JSON values, in words."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in [*before, *now]:
            if before.get(name) != now.get(name):
                return f"{name}: {json.dumps(before.get(name))}, now {json.dumps(now.get(name))}"
    return f"{json.dumps(before)}, now {json.dumps(now)}"
