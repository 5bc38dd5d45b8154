"""A prepared, tokenised corpus in pieces of limited size, to train on where no file can be fetched.

A pack holds all that training needs: the recipe, the vocabulary, token ids, the validation text.
It is one compressed archive, cut into pieces that travel one by one in any order; a manifest names
them with their checksums.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer
from model.data.corpus import Batch, Int64, ParallelText
from model.data.mixture import Draws
from model.data.recipe import Recipe, parse_recipe
from model.data.training_data import EpochBatches, TrainingData, ValidationSet, encode

MANIFEST_FILE = "pack.json"
ARRAYS_FILE = "corpus.npz"
DESCRIPTION_FILE = "corpus.json"
_INIT = "init"
_ENCODED_AT_ONCE = 50_000


class PackError(ValueError):
    """A pack cannot be made or used. The message says why."""


@dataclass(frozen=True)
class PackedSide:
    """The token ids of one side of a corpus, one sentence after another."""

    ids: npt.NDArray[np.uint16]
    ends: Int64

    def lengths(self) -> Int64:
        """[sentences] number of tokens of each sentence."""
        return np.diff(self.ends, prepend=0)

    def at(self, indices: Int64) -> PackedSide:
        """The sentences at `indices`, in that order."""
        lengths = self.lengths()[indices]
        ends = np.cumsum(lengths, dtype=np.int64)
        # Of each token: how far the sentence it is in moves, from here to its new place.
        moved = np.repeat(self.ends[indices] - ends, lengths)
        return PackedSide(self.ids[np.arange(len(moved)) + moved], ends)

    def padded(self, pad_id: int, *, first: int | None = None, last: int) -> Int64:
        """[sentences, longest + 1, one more with `first`] all tokens, padded on the right.

        Args:
            first: an id before every sentence.
            last: the id after every sentence.
        """
        lengths = self.lengths()
        columns = np.arange(int(lengths.max(initial=0)) + 1)
        rows = np.full((len(lengths), len(columns)), pad_id, np.int64)
        rows[columns < lengths[:, None]] = self.ids
        rows[np.arange(len(lengths)), lengths] = last
        return rows if first is None else np.insert(rows, 0, first, axis=1)


@dataclass(frozen=True)
class PackedText:
    """A parallel text as two packed sides, with the methods of `EncodedText`."""

    sources: PackedSide
    targets: PackedSide

    def __len__(self) -> int:
        return len(self.sources.ends)

    def lengths(self) -> Int64:
        """[pairs, 2] tokens of source and target, EOS counted."""
        return np.stack((self.sources.lengths(), self.targets.lengths()), axis=1) + 1

    def not_longer_than(self, max_tokens: int) -> Int64:
        """Indices of the pairs whose sides both have at most `max_tokens`."""
        return np.flatnonzero(self.lengths().max(axis=1, initial=0) <= max_tokens)

    def at(self, indices: Int64) -> PackedText:
        """The pairs at `indices`, in that order."""
        return PackedText(self.sources.at(indices), self.targets.at(indices))

    def batch(self, indices: Int64, *, pad_id: int, bos_id: int, eos_id: int) -> Batch:
        """The pairs at `indices` as padded arrays."""
        chosen = self.at(indices)
        return Batch(
            chosen.sources.padded(pad_id, last=eos_id),
            chosen.targets.padded(pad_id, first=bos_id, last=eos_id),
        )


@dataclass(frozen=True)
class PackedTrainingData(TrainingData):
    """Training data whose text is there as token ids only.

    Attributes:
        sources, targets: the token ids.
        description: description that `pack` wrote.
    """

    sources: PackedSide = field(kw_only=True)
    targets: PackedSide = field(kw_only=True)
    description: Mapping[str, Any] = field(kw_only=True)

    @property
    def num_pairs(self) -> int:
        """Pairs of the training text."""
        return len(self.sources.ends)

    def fingerprint(self) -> str:
        """The sha256 of the training text."""
        return str(self.description["fingerprint"])

    @property
    def trained_length(self) -> int:
        """See `TrainingData`."""
        return int(self.description["trained_length"])

    def epoch(self, number: int) -> EpochBatches:
        """The batches of epoch `number` (from 0), as the unpacked data gives them."""
        text = PackedText(self.sources, self.targets)
        if self.draws is not None:
            text = text.at(self.draws.epoch(number))
        return self.batches(text, ParallelText([], []), number)


def pack(data: TrainingData, folder: Path, *, piece_bytes: int, init: Path | None = None) -> int:
    """Write a corpus as pieces into an empty folder; returns their number.

    Args:
        piece_bytes: the largest size of a piece.
        init: a checkpoint of the same vocabulary to start from.

    Raises:
        PackError: the recipe samples segmentations or aligns, which needs the text.
    """
    recipe = data.recipe
    if recipe.vocabulary.sampling_alpha > 0.0 or recipe.alignment.weight > 0.0:
        raise PackError("vocabulary.sampling_alpha and alignment.weight need the text itself")
    if data.tokenizer.vocab_size > 2**16:
        raise PackError(f"a vocabulary of {data.tokenizer.vocab_size} pieces is over 65,536")
    arrays = io.BytesIO()
    sides = {"source": data.train.sources, "target": data.train.targets}
    packed = {name: packed_side(data.tokenizer, side) for name, side in sides.items()}
    columns = {
        f"{name}_{key}": value
        for name, side in packed.items()
        for key, value in asdict(side).items()
    }
    np.savez(arrays, allow_pickle=False, **columns)
    description = {
        "recipe": recipe.text,
        "fingerprint": data.fingerprint(),
        "trained_length": data.trained_length,
        "draws": None if data.draws is None else asdict(data.draws),
        "validation": {
            part.name: [list(part.text.sources), list(part.text.targets)]
            for part in data.validation
        },
    }
    files = {
        ARRAYS_FILE: arrays.getvalue(),
        DESCRIPTION_FILE: json.dumps(description).encode(),
        TOKENIZER_FILE: data.tokenizer.serialized(),
    }
    if init is not None:
        files |= {f"{_INIT}/{file.name}": file.read_bytes() for file in sorted(init.iterdir())}
    return write_pieces(files, folder, piece_bytes=piece_bytes)


def packed_side(tokenizer: Tokenizer, sentences: Sequence[str]) -> PackedSide:
    """The token ids of sentences, at least one, in a vocabulary of at most 65,536 pieces."""
    ids, lengths = [], []
    for start in range(0, len(sentences), _ENCODED_AT_ONCE):
        encoded = tokenizer.encode_batch(sentences[start : start + _ENCODED_AT_ONCE])
        ids += [np.fromiter((i for one in encoded for i in one), np.uint16)]
        lengths += [len(one) for one in encoded]
    return PackedSide(np.concatenate(ids), np.cumsum(lengths, dtype=np.int64))


def unpack(folder: Path, output: Path, recipe_changes: str = "") -> PackedTrainingData:
    """The data of a pack all of whose pieces lie in `folder`.

    Args:
        folder: the pieces and their manifest. A checkpoint to start from is unpacked here.
        output: the folder of the run, in place of the recipe's.
        recipe_changes: TOML whose fields replace those of the pack's recipe; [model] as a whole.

    Raises:
        PackError: a piece is missing or damaged.
        ValueError: the changed recipe is invalid, or changes what the pack was made from.
    """
    files = read_pieces(folder)
    description = json.loads(files[DESCRIPTION_FILE])
    recipe = changed_recipe(description["recipe"], recipe_changes)
    init = {name: content for name, content in files.items() if name.startswith(f"{_INIT}/")}
    for name, content in init.items():
        (folder / _INIT).mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    start = {"init_from": folder / _INIT if init else None}
    optimization = recipe.optimization.model_copy(update=start)
    recipe = recipe.model_copy(update={"output": output, "optimization": optimization})
    tokenizer = Tokenizer(files[TOKENIZER_FILE])
    with np.load(io.BytesIO(files[ARRAYS_FILE])) as arrays:
        source, target = (
            PackedSide(arrays[f"{side}_ids"], arrays[f"{side}_ends"])
            for side in ("source", "target")
        )
    texts = {name: ParallelText(*sides) for name, sides in description["validation"].items()}
    return PackedTrainingData(
        tokenizer,
        ParallelText([], []),
        [ValidationSet(name, text, encode(tokenizer, text)) for name, text in texts.items()],
        recipe,
        None if description["draws"] is None else Draws(**description["draws"]),
        sources=source,
        targets=target,
        description=description,
    )


def changed_recipe(text: str, changes: str) -> Recipe:
    """A recipe with some fields replaced; its text holds both.

    Raises:
        ValueError: the result is no recipe, or [data], [languages] or [vocabulary] are changed.
    """
    new = tomllib.loads(changes)
    for section in ("data", "languages", "vocabulary"):
        if section in new:
            raise ValueError(f"[{section}] is fixed in the pack: make another pack")
    return parse_recipe(text, changes)


# --- files as pieces ----------------------------------------------------------------------------


def write_pieces(
    files: Mapping[str, bytes],
    folder: Path,
    *,
    piece_bytes: int,
    preset: int = 6,
    **options: int,
) -> int:
    """Write files as pieces of one archive; returns their number.

    Args:
        preset, options: those of LZMA.
    """
    folder.mkdir(parents=True, exist_ok=True)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": preset, **options}]
    archive = lzma.compress(b"".join(files.values()), filters=filters)
    pieces = [archive[i : i + piece_bytes] for i in range(0, len(archive), piece_bytes)]
    for number, piece in enumerate(pieces):
        (folder / piece_name(number)).write_bytes(piece)
    manifest = {
        "files": {name: len(content) for name, content in files.items()},
        "sha256": [hashlib.sha256(piece).hexdigest() for piece in pieces],
    }
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return len(pieces)


def missing_pieces(folder: Path) -> list[str]:
    """The names of the pieces that are not in `folder`, or damaged.

    Raises:
        PackError: there is no manifest.
    """
    return [
        name
        for name, checksum in _checksums(folder)
        if not (folder / name).is_file()
        or hashlib.sha256((folder / name).read_bytes()).hexdigest() != checksum
    ]


def read_pieces(folder: Path) -> dict[str, bytes]:
    """The files whose pieces all lie in `folder`.

    Raises:
        PackError: a piece is missing or damaged.
    """
    missing = missing_pieces(folder)
    if missing:
        raise PackError(f"{folder}: missing or damaged: {', '.join(missing)}")
    archive = b"".join((folder / name).read_bytes() for name, _ in _checksums(folder))
    content, start, files = lzma.decompress(archive), 0, {}
    sizes = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))["files"]
    for name, size in sizes.items():
        files[name] = content[start : start + size]
        start += size
    return files


def _checksums(folder: Path) -> Iterator[tuple[str, str]]:
    path = folder / MANIFEST_FILE
    if not path.is_file():
        raise PackError(f"{path}: there is no such file; is this a folder of pieces?")
    for number, checksum in enumerate(json.loads(path.read_text(encoding="utf-8"))["sha256"]):
        yield piece_name(number), checksum


def piece_name(number: int) -> str:
    """The file name of a piece."""
    return f"piece-{number:02}.xz"
