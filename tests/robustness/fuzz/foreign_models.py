"""Files of Firefox's models, and the list of them: weights, shortlists, the registry.

The readers are imported by the targets, since some of them load PyTorch.
"""

from __future__ import annotations

import json
import logging
import random
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tests.robustness.fuzz.configuration import InDirectory, json_changed
from tests.robustness.fuzz.mutations import changed_bytes, valid_text
from tests.robustness.fuzz.target import MEMORY, expect

_HUGE = (0, 1, 255, 2**31 - 1, 2**31, 2**32, 2**60, 2**63, 2**64 - 1)
_NUM_PIECES = 20
_LANGUAGES = {"sourceLanguage": "en", "targetLanguage": "de"}


class _File:
    """A target of one file in memory."""

    def __init__(self, name: str) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="dragoman-fuzz-", dir=MEMORY)
        self.path = Path(self._made.name, name)


def _with_odd_numbers(rng: random.Random, content: bytes, most: int) -> bytes:
    """Bytes with other numbers among the first ones, where headers are."""
    if rng.random() < 0.3:
        return changed_bytes(rng, content)
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = 8 * rng.randrange(max(1, min(most, len(content)) // 8))
        number = rng.choice(_HUGE) if rng.random() < 0.7 else rng.randrange(1000)
        changed[at : at + 8] = struct.pack("<Q", number)
    return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.1 else changed)


class MarianFiles(_File):
    """Weights in Marian's binary format."""

    name: ClassVar[str] = "marian-files"
    share: ClassVar[float] = 2
    what: ClassVar[str] = "weights in Marian's binary format"

    def __init__(self) -> None:
        super().__init__("model.bin")
        from tests.marian_files import converted

        numbers = np.random.default_rng(0)
        weights = {
            "Wemb": numbers.normal(size=(_NUM_PIECES, 8)),
            "encoder_l1_self_Wq": numbers.normal(size=(8, 8)),
            "encoder_l1_self_bq": numbers.normal(size=(1, 8)),
        }
        alphas = {"Wemb": 16.0, "encoder_l1_self_Wq": 16.0}
        self._content = converted(weights, alphas, {"type": "transformer", "dim-emb": 8})

    def generate(self, rng: random.Random) -> bytes:
        """Generate a file."""
        return _with_odd_numbers(rng, self._content, 512)

    def run(self, given: bytes) -> str:
        """Read all items; each has the numbers that its shape says."""
        from export.errors import ExportError
        from export.marian.binary import read_binary

        self.path.write_bytes(given)
        try:
            for item in read_binary(self.path).values():
                if item.name.startswith("special:"):
                    item.text()
                    continue
                found = item.numbers()
                expect(found.shape == item.shape, "numbers of another shape", given)
                expect(bool(np.isfinite(found).all()), "infinite numbers", given)
        except ExportError as exc:
            expect(str(self.path) in str(exc), "a refusal without the file", str(exc))
            return "refused"
        return "read"


class ShortlistFiles(_File):
    """Shortlists of Firefox's models."""

    name: ClassVar[str] = "shortlist-files"
    share: ClassVar[float] = 2
    what: ClassVar[str] = "shortlists in Marian's binary format"

    def __init__(self) -> None:
        super().__init__("lex.50.50.ende.s2t.bin")
        from export.students.lexicon import LEXICON_MAGIC

        offsets = range(0, 3 * _NUM_PIECES + 1, 3)
        ids = [(7 * n) % _NUM_PIECES for n in range(3 * _NUM_PIECES)]
        head = struct.pack("<6Q", LEXICON_MAGIC, 0, 4, 3, len(offsets), len(ids))
        self._content = head + struct.pack(f"<{len(offsets)}Q{len(ids)}I", *offsets, *ids)

    def generate(self, rng: random.Random) -> bytes:
        """Generate a file."""
        return _with_odd_numbers(rng, self._content, 48 if rng.random() < 0.5 else 300)

    def run(self, given: bytes) -> str:
        """Read the file, and ask for the list of each piece."""
        from export.errors import ExportError
        from export.students.lexicon import read_lexicon

        self.path.write_bytes(given)
        try:
            shortlist = read_lexicon(self.path, _NUM_PIECES, _NUM_PIECES)
        except ExportError as exc:
            expect(str(self.path) in str(exc), "a refusal without the file", str(exc))
            return "refused"
        for piece in range(_NUM_PIECES):
            ids = shortlist.target_ids([piece])
            expect(bool(ids.min() >= 0 and ids.max() < _NUM_PIECES), "an unknown piece", given)
        return "read"


class StudentFolders(InDirectory):
    """Students whole, of which one file is changed: weights and options, vocabulary, metadata."""

    name: ClassVar[str] = "student-folders"
    share: ClassVar[float] = 2
    what: ClassVar[str] = "folders of Firefox's models, as `dragoman import` reads them"
    _tying: ClassVar[str] = "all"

    def __init__(self) -> None:
        super().__init__()
        from bench.random_student import random_student
        from tests.students import int8_student, options_of, student_config, write_student

        sizes: dict[str, Any] = dict(d_model=16, num_heads=2, ffn_dim=16, num_encoder_layers=1)
        model = random_student(
            student_config(num_decoder_layers=1, embedding_tying=self._tying, **sizes)
        )
        write_student(self.directory, model)
        self._items, self._options = int8_student(model), options_of(model.config)
        (self.directory / "metadata.json").write_text(json.dumps(_LANGUAGES))
        self._files = {file.name: file.read_bytes() for file in self.directory.iterdir()}

    def generate(self, rng: random.Random) -> tuple[str, bytes]:
        """Generate a file's name and content."""
        name = rng.choice(list(self._files))
        if name == "metadata.json":
            return name, json.dumps(json_changed(rng, _LANGUAGES)).encode()
        if "vocab" in name or rng.random() < 0.2:
            return name, changed_bytes(rng, self._files[name])
        from export.marian.binary_writer import binary

        items, options = dict(self._items), self._options
        if rng.random() < 0.5:
            option = rng.choice(list(options))
            options = {**options, option: json_changed(rng, options[option])}
        else:
            self._change(rng, items)
        return name, binary(items, options)

    def _change(self, rng: random.Random, items: dict[str, Any]) -> None:
        """Change an item: its numbers, shape, type or name."""
        scales = [name for name in items if "QuantMultA" in name]
        item = items[name := rng.choice(scales if rng.random() < 0.3 else list(items))]
        kind = rng.randrange(4)
        if kind == 0:
            odd = struct.pack("<f", rng.choice((0.0, -1.0, 1e-40, 3e38, float("nan"))))
            items[name] = item._replace(data=item.data[:-4] + odd)
        elif kind == 1:
            shape = tuple(rng.choice((0, 1, 2, 16, 32, 180, 2**31 - 1)) for _ in item.shape)
            items[name] = item._replace(shape=shape[: rng.randrange(3)])
        elif kind == 2:
            items[name] = item._replace(kind=rng.choice((0x0101, 0x0404, 0x4101, 0x4102, 0x4404)))
        else:
            other = rng.choice(
                (valid_text(rng, 1), rng.choice(list(items)), name.replace("1", "01"))
            )
            items[other or "x"] = items.pop(name)

    def run(self, given: tuple[str, bytes]) -> str:
        """Read the student; its network has finite weights."""
        from export.errors import ExportError
        from export.students.reader import read_student

        name, content = given
        (file := self.directory / name).write_bytes(content)
        try:
            model = read_student(self.directory, None).model
        except ExportError as exc:
            # A vocabulary of another size is what the weights' file contradicts.
            expect(str(self.directory) in str(exc), "a refusal without a file", str(exc))
            return "refused"
        finally:
            file.write_bytes(self._files[name])
        for weight in model.state_dict().values():
            expect(bool(weight.isfinite().all()), "infinite weights", name)
        return "read"


class StudentFoldersOfTwo(StudentFolders):
    """Students with two vocabularies."""

    name: ClassVar[str] = "student-folders-of-two"
    share: ClassVar[float] = 1
    what: ClassVar[str] = "the same with a vocabulary for each language"
    _tying: ClassVar[str] = "target"


class Registries:
    """Lists of published models."""

    name: ClassVar[str] = "registries"
    share: ClassVar[float] = 2
    what: ClassVar[str] = "lists of published models, as `dragoman pull` reads them"

    def __init__(self) -> None:
        from tests.mirrors import entry_of

        logging.getLogger("dragoman.pull").setLevel(logging.ERROR)  # lines for each bad model
        one = {"model:model.bin": b"x", "vocab:vocab.spm": b"y", "lexicalShortlist:lex.bin": b"z"}
        two = {
            "model:model.bin": b"x",
            "srcVocab:srcvocab.spm": b"y",
            "trgVocab:trgvocab.spm": b"z",
        }
        self._models = {
            "en-de": [entry_of(one, "models/en-de/spring_AbC-d_e/exported")],
            "en-ja": [entry_of(each, "models/en-ja/x", target="ja") for each in (two, one)],
        }

    def generate(self, rng: random.Random) -> bytes:
        """Generate a list."""
        whole: Any = {"generated": "2026-07-22T00:00:00Z", "models": self._models}
        for _ in range(rng.choice((1, 1, 2, 5))):
            whole = json_changed(rng, whole)
        content = json.dumps(whole).encode()
        return changed_bytes(rng, content) if rng.random() < 0.2 else content

    def run(self, given: bytes) -> str:
        """Read the list; files stay where the list is, and have names of models' files."""
        from export.errors import ExportError
        from export.store.registry import read_registry

        try:
            models = read_registry(given, "models.json")
        except ExportError as exc:
            expect("models.json" in str(exc), "a refusal without the list", str(exc))
            return "refused"
        for model in models:
            for file in model.files:
                parts = Path(file.path).parts
                expect(".." not in parts and not file.path.startswith("/"), "a path out", given)
                expect("/" not in file.name and file.most_bytes > 0, "a bad file", given)
        return "read"


TARGETS: Sequence[Callable[[], Any]] = (
    MarianFiles,
    ShortlistFiles,
    StudentFolders,
    StudentFoldersOfTwo,
    Registries,
)
