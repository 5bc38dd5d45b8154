"""Finds the files of a student, and its languages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from export.errors import ExportError
from export.huggingface.directory import read_json
from export.marian.binary import read_compressed
from export.marian.configuration import OPTIONS_ARRAY, open_npz, parse_yaml, read_array
from model.bundle.languages import is_common_code
from model.bundle.manifest import why_no_language

_COMPRESSED = r"(?:\.gz|\.zstd?)?"
_MODEL = re.compile(rf"(?!lex\.|pytorch_model).+\.bin{_COMPRESSED}")
_VOCABULARY = re.compile(rf"(src|trg)?vocab\b.*\.spm{_COMPRESSED}")
_LEXICON = re.compile(rf"lex\..+\.bin{_COMPRESSED}")
# model.ende.intgemm.alphas.bin, vocab.ende.spm; a directory's ende or en-de.
_PAIR = re.compile(r"(?:(?:model|(?:src|trg)?vocab)\.)?([a-z]{4,6})(?:\..*)?")
_NAMED_PAIR = re.compile(r"(?:.+[-_])?([a-z]{2,3})-([a-z]{2,3})")
_METADATA = "metadata.json"


@dataclass(frozen=True)
class StudentFiles:
    """The files of a student.

    Attributes:
        path: the directory.
        weights: the binary file, or the .npz.
        vocabularies: SentencePiece models of source and target; one file twice if they share it.
        lexicon: the shortlist, such as lex.50.50.ende.s2t.bin; None without one.
    """

    path: Path
    weights: Path
    vocabularies: tuple[Path, Path]
    lexicon: Path | None = None

    @classmethod
    def find(cls, path: Path) -> StudentFiles:
        """The files in a directory.

        Raises:
            ExportError: one is missing, or several could be it; names them.
        """
        models = _models(path) if path.is_dir() else []
        if not models:
            raise ExportError(f"{path} has no model of a student, model.*.bin or a .npz file")
        if len(models) > 1:
            names = ", ".join(file.name for file in models)
            raise ExportError(
                f"{path} has several models ({names}): keep one of them, with its vocabularies"
            )
        found: dict[str, list[Path]] = {}
        for file in sorted(path.iterdir()):
            if match := _VOCABULARY.fullmatch(file.name):
                found.setdefault(match[1] or "both", []).append(file)
        for side, files in found.items():
            if len(files) > 1:
                names = ", ".join(file.name for file in files)
                raise ExportError(f"{path} has several vocabularies ({names}): keep one for {side}")
        lexicon = _lexicon(path)
        if "both" in found and len(found) == 1:
            return cls(path, models[0], (found["both"][0], found["both"][0]), lexicon)
        if found.keys() == {"src", "trg"}:
            return cls(path, models[0], (found["src"][0], found["trg"][0]), lexicon)
        there = ", ".join(file.name for files in found.values() for file in files) or "none"
        raise ExportError(
            f"{path} needs the vocabulary vocab.*.spm, or srcvocab.*.spm and trgvocab.*.spm; there "
            f"is {there}"
        )

    def vocabulary(self, file: Path) -> bytes:
        """The bytes of a vocabulary, decompressed.

        Raises:
            ExportError: it can't be read.
        """
        return read_compressed(file)

    def languages(self, wanted: Sequence[str] | None) -> tuple[str, str]:
        """Source and target: `wanted`, or those of metadata.json or of the files' names.

        Raises:
            ExportError: no file names them, or more than two are wanted.
        """
        if wanted is not None:
            if len(wanted) != 2:
                raise ExportError(
                    f"{self.path}: the model translates one language into one other: --languages "
                    f"has to name two, not {len(wanted)}"
                )
            return wanted[0], wanted[1]
        for pair in (self._described(), *map(_pair, self._names())):
            if pair is not None:
                return pair
        raise ExportError(
            f"{self.path} does not say which languages the model is for: give --languages"
        )

    def _described(self) -> tuple[str, str] | None:
        file = self.path / _METADATA
        if not file.is_file():
            return None
        fields = read_json(file)
        source, target = fields.get("sourceLanguage"), fields.get("targetLanguage")
        if not isinstance(source, str) or not isinstance(target, str):
            return None
        for name, code in (("sourceLanguage", source), ("targetLanguage", target)):
            if why := why_no_language(code):
                raise ExportError(f"{file}: {name}, {code!r:.80}, {why}")
        return source, target

    def _names(self) -> list[str]:
        files = (self.weights, *self.vocabularies)
        return [*(file.name for file in files), self.path.resolve().name]


def is_student(path: Path) -> bool:
    """Whether a directory holds a student, and no model of `transformers`."""
    if not path.is_dir() or (path / "config.json").exists():
        return False
    return bool(_models(path))


def npz_decoder(file: Path) -> str:
    """The kind of decoder that a .npz names; "" if it names none.

    Raises:
        ExportError: it can't be read.
    """
    with open_npz(file) as arrays:
        if OPTIONS_ARRAY not in arrays.files:
            return ""
        text = read_array(file, arrays, OPTIONS_ARRAY).tobytes().rstrip(b"\0")
    fields = parse_yaml(text, f"{file} ({OPTIONS_ARRAY})")
    return str(fields.get("transformer-decoder-autoreg", ""))


def _models(path: Path) -> list[Path]:
    binaries = [file for file in sorted(path.iterdir()) if _MODEL.fullmatch(file.name)]
    return binaries or [file for file in sorted(path.glob("*.npz")) if npz_decoder(file) == "rnn"]


def _lexicon(path: Path) -> Path | None:
    found = [file for file in sorted(path.iterdir()) if _LEXICON.fullmatch(file.name)]
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise ExportError(f"{path} has several shortlists ({names}): keep one of them, or none")
    return found[0] if found else None


def _pair(name: str) -> tuple[str, str] | None:
    """The languages in a file's or directory's name, if they can be cut in one way only."""
    if named := _NAMED_PAIR.fullmatch(name):
        return named[1], named[2]
    match = _PAIR.fullmatch(name)
    if match is None:
        return None
    text = match[1]
    cuts = [(text[:n], text[n:]) for n in (2, 3) if len(text) - n in (2, 3)]
    known = [cut for cut in cuts if all(map(is_common_code, cut))]
    return known[0] if len(known) == 1 else None
