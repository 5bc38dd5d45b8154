"""Reads a student whole: its files, network, vocabularies and search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from export.errors import ExportError
from export.foreign import ForeignModel
from export.huggingface.vocabularies import sentencepiece_pieces
from export.shortlists import with_shared_pieces
from export.students.comparison import FxtranslateComparison
from export.students.files import StudentFiles
from export.students.lexicon import read_lexicon
from export.students.network import StudentNetwork
from model.bundle.config import LARGEST_SIZES, AlignmentHead
from model.bundle.directions import Directions
from model.bundle.manifest import file_sha256
from model.bundle.piece_tokenizer import PieceTokenizer, PieceVocabulary
from model.bundle.tokenizer import TokenizerError


def read_student(path: Path, languages: Sequence[str] | None) -> ForeignModel:
    """A student from its directory.

    Args:
        path: the directory.
        languages: BCP-47 codes of source and target; None to take those of the files.

    Raises:
        ExportError: a file is missing, damaged or not supported; names the file and the field.
    """
    files = StudentFiles.find(path)
    source, target = files.languages(languages)
    contents = tuple(files.vocabulary(file) for file in files.vocabularies)
    pieces = [_pieces(*pair) for pair in zip(files.vocabularies, contents, strict=True)]
    ids = [
        (_id(file, own, "</s>"), _id(file, own, "<unk>"))
        for file, own in zip(files.vocabularies, pieces, strict=True)
    ]
    if ids[0] != ids[1]:
        raise ExportError(
            f"{files.vocabularies[1]}: </s> and <unk> are {ids[1]}, but {ids[0]} in "
            f"{files.vocabularies[0].name}"
        )
    eos_id, unk_id = ids[0]
    network = StudentNetwork.read(files.weights)
    sizes = len(pieces[0]), len(pieces[1])
    config = network.config(sizes, eos_id, unk_id)
    model = network.model(config, sizes)
    try:
        sides = [
            PieceVocabulary(content, own) for content, own in zip(contents, pieces, strict=True)
        ]
        tokenizer = PieceTokenizer(sides[0], config, PieceTokenizer(sides[1], config))
    except TokenizerError as exc:
        raise ExportError(f"{files.vocabularies[0]}: {exc}") from exc
    lexicon = shortlist = None
    steps = network.steps()
    if files.lexicon is not None:
        lexicon = read_lexicon(files.lexicon, *sizes)
        shortlist = with_shared_pieces(lexicon, pieces[0], pieces[1], config.vocab_size)
    search = {"beam_size": 1, "suppressed_ids": [unk_id]}  # as Firefox translates
    return ForeignModel(
        architecture=f"Marian student, SSRU decoder ({network.precision})",
        config=config,
        model=model,
        tokenizer=tokenizer,
        directions=Directions.one(source, target),
        checksums={"weights_sha256": file_sha256(files.weights)},
        search=search,
        comparison=FxtranslateComparison(files, model, tokenizer, unk_id, steps, lexicon),
        alignment_head=_alignment_head(network, config.num_decoder_layers),
        shortlist=shortlist,
        steps=steps,
    )


def _alignment_head(network: StudentNetwork, num_layers: int) -> AlignmentHead | None:
    """Marian's guided alignment trains the first head of a layer, the last one by default."""
    layer = network.options.get("transformer-guided-alignment-layer", "last")
    if layer == "last":
        return AlignmentHead(num_layers - 1, 0)
    number = str(layer)
    if number not in map(str, range(1, num_layers + 1)):
        raise ExportError(
            f"{network.file}: transformer-guided-alignment-layer is {layer!r:.80}, not a layer "
            f"between 1 and {num_layers}"
        )
    return AlignmentHead(int(number) - 1, 0)


def _pieces(file: Path, content: bytes) -> list[str]:
    pieces = sentencepiece_pieces(file, content)
    if not 0 < len(pieces) < LARGEST_SIZES["vocab_size"]:
        raise ExportError(f"{file} has {len(pieces):,} pieces")
    return pieces


def _id(file: Path, pieces: Sequence[str], piece: str) -> int:
    if piece not in pieces:
        raise ExportError(f"{file} has no piece {piece!r}")
    return pieces.index(piece)
