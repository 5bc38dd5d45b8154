"""Writes a checkpoint as a Marian student, for Firefox and other engines.

Kim et al., 2019, "From Research to Production and Back", section 3, is such a network. The files
are those of `mozilla/translations`; 8-bit ones have static scales of activations ("alphas").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentencepiece import sentencepiece_model_pb2
from torch import Tensor, nn

from export.errors import ExportError
from export.layers import NEVER
from export.marian.binary_writer import binary, float_items, int8_items
from export.output_directory import check_unused, new_directory
from export.parity import SENTENCES
from export.shortlists import shortlist_for
from export.students.comparison import StudentAgreement
from export.students.lexicon import lexicon_bytes
from export.students.network import ALPHA, OUTPUT_ALPHAS, OUTPUT_BIAS, their_name
from export.students.options import student_options
from export.students.reader import read_student
from model.bundle.config import STUDENT, ModelConfig
from model.bundle.tokenizer import Tokenizer
from model.evaluation.search import greedy_search
from model.network.checkpoint import checkpoint_folder, load_checkpoint
from model.network.transformer import Transformer

Array = npt.NDArray[Any]
_PRECISIONS = ("fp32", "int8")
_EOS, _UNK = 0, 1  # of students
_COLUMNS = 8
_REQUIRED: Mapping[str, tuple[Any, ...]] = {
    **{name: (value,) for name, value in STUDENT.items()},
    "norm": ("post",),
    "activation": ("relu",),
    "scale_embeddings": (True,),
    "embedding_norm": (False,),
    "embedding_tying": ("all", "target"),
    "encoder_attention": ("full",),
    "cross_attention": ("full",),
}


def write_student(
    checkpoint: Path,
    output: Path,
    precision: str = "int8",
    sentences: Sequence[str] = SENTENCES,
    shortlist_from: tuple[Path, Path] | None = None,
) -> StudentAgreement | None:
    """Write a checkpoint as the files of a student.

    Args:
        checkpoint: a directory that `model.network.checkpoint.save_checkpoint` wrote.
        output: the directory to write; it appears whole, or not at all.
        precision: "int8" for 8-bit integers with alphas, "fp32" for float32.
        sentences: source sentences on which the alphas are measured.
        shortlist_from: files of sentences and of their translations, to make a shortlist from; by
            default, the training's shortlist if there is one.

    Returns:
        The agreement of fxtranslate with our network; None if it isn't installed.

    Raises:
        CheckpointError: the checkpoint can't be read.
        ExportError: Marian has no such network or precision, names the field; `output` is in the
            way; or fxtranslate translates differently.
    """
    if precision not in _PRECISIONS:
        raise ExportError(f"precision must be {' or '.join(_PRECISIONS)}, not {precision!r}")
    check_unused(output)
    loaded = load_checkpoint(checkpoint)
    model, tokenizer = loaded.model, loaded.tokenizer
    check_student(model.config)
    languages = loaded.languages["source"], loaded.languages["target"]
    order = piece_order(tokenizer)
    with new_directory(output, check_unused) as directory:
        arrays = student_arrays(model, order)
        if precision == "int8":
            longest = model.config.num_source_positions - 1
            sources = [[*tokenizer.encode(text)[:longest], tokenizer.eos_id] for text in sentences]
            items = int8_items(with_alphas(arrays, observed_alphas(model, sources)))
        else:
            items = float_items(arrays)
        pair = "".join(languages)
        name = f"model.{pair}.{'intgemm.alphas.' * (precision == 'int8')}bin"
        content = binary(items, student_options(model.config, len(order)))
        (directory / name).write_bytes(content)
        vocabulary = reordered(tokenizer, order)
        is_shared = model.config.embedding_tying == "all"
        for side in ("",) if is_shared else ("src", "trg"):
            (directory / f"{side}vocab.{pair}.spm").write_bytes(vocabulary)
        folder = checkpoint_folder(checkpoint)
        shortlist = shortlist_for(folder, shortlist_from, tokenizer, model.config)
        if shortlist is not None:
            content = lexicon_bytes(shortlist, order)
            (directory / f"lex.50.50.{pair}.s2t.bin").write_bytes(content)
        described = {"sourceLanguage": languages[0], "targetLanguage": languages[1]}
        (directory / "metadata.json").write_text(json.dumps(described, indent=2) + "\n")
        comparison = read_student(directory, None).comparison
        is_read = precision == "int8" or is_shared  # by fxtranslate
        covered = [] if comparison is None else comparison.comparable(sentences)
        if comparison is None or not (covered and is_read and comparison.is_possible()):
            return None
        agreement: StudentAgreement = comparison.compare(covered, None)
        return agreement


def check_student(config: ModelConfig) -> None:
    """Check that Marian has such a network.

    Raises:
        ExportError: it has not; names all fields.
    """
    wrong = [
        f"{name} = {' or '.join(map(repr, supported))}, not {value!r}"
        for name, supported in _REQUIRED.items()
        if (value := getattr(config, name)) not in supported
    ]
    if wrong:
        raise ExportError(
            f"this is not a network of Marian's students, which have {'; '.join(wrong)}: train one "
            f'with the preset "student-tiny", and norm = "post", or see model.training.post_norm'
        )


# --- vocabulary -----------------------------------------------------------------------------------


def piece_order(tokenizer: Tokenizer) -> list[int]:
    """Our ids in the order of a student's: </s>, <unk>, and all others but padding and BOS.

    Padding comes last, as often as makes the number of pieces a multiple of eight: 8-bit products
    of Firefox's engine and slimt have that many columns.

    Args:
        tokenizer: our tokenizer.
    """
    first = [tokenizer.eos_id, tokenizer.unk_id]
    hidden = {*first, tokenizer.pad_id, tokenizer.bos_id}
    order = first + [i for i in range(tokenizer.vocab_size) if i not in hidden]
    return order + [tokenizer.pad_id] * (-len(order) % _COLUMNS)


def reordered(tokenizer: Tokenizer, order: Sequence[int]) -> bytes:
    """The SentencePiece model with its pieces in another order.

    Args:
        tokenizer: our tokenizer.
        order: its ids, in the new order; the first is the end of a sentence, the second unknown.
    """
    protobuf: Any = sentencepiece_model_pb2
    model = protobuf.ModelProto.FromString(tokenizer.serialized())
    pieces = [model.pieces[i] for i in order]
    kept = [type(piece).FromString(piece.SerializeToString()) for piece in pieces]
    for number, (piece, token) in enumerate(zip(kept, order, strict=True)):
        if token == tokenizer.pad_id:
            piece.piece, piece.type = f"<unused{number}>", piece.UNUSED
    del model.pieces[:]
    model.pieces.extend(kept)
    model.pieces[_EOS].piece, model.pieces[_UNK].piece = "</s>", "<unk>"
    spec = model.trainer_spec
    spec.eos_id, spec.unk_id, spec.bos_id, spec.pad_id = _EOS, _UNK, -1, -1
    spec.eos_piece, spec.unk_piece, spec.vocab_size = "</s>", "<unk>", len(order)
    content: bytes = model.SerializeToString()
    return content


# --- weights --------------------------------------------------------------------------------------


def student_arrays(model: Transformer, order: Sequence[int]) -> dict[str, Array]:
    """Marian's arrays by name, matrices [in, out], vectors [1, n].

    Args:
        model: the network.
        order: ids of the vocabulary, in the order of a student's.
    """
    rows, found = torch.tensor(order), dict[str, Array]()
    states = model.state_dict()
    for name, tensor in states.items():
        if ".layers." in name:
            found[their_name(name)] = _theirs(tensor)
    target = states["target_embedding.weight"][rows].numpy()
    if model.config.embedding_tying == "all":
        found["Wemb"] = target
    else:
        found["encoder_Wemb"] = states["source_embedding.weight"][rows].numpy()
        found["decoder_Wemb"] = target
    bias = states["output_projection.bias"][rows]
    found[OUTPUT_BIAS] = _theirs(bias.masked_fill(rows == model.config.pad_id, NEVER))
    return found


def _theirs(tensor: Tensor) -> Array:
    return tensor.numpy().T if tensor.dim() == 2 else tensor.numpy()[None]


def with_alphas(arrays: Mapping[str, Array], alphas: Mapping[str, float]) -> dict[str, Array]:
    """Arrays of a student and its alphas, as Mozilla's `extract_stats.py` adds them.

    Args:
        arrays: arrays from `student_arrays`.
        alphas: factors from `observed_alphas`.
    """
    shared, separate = OUTPUT_ALPHAS[:2], OUTPUT_ALPHAS[2:]
    found = dict(arrays)
    for ours, alpha in alphas.items():
        names: Sequence[str] = (f"{their_name(f'{ours}.weight')}{ALPHA}",)
        if ours == "output_projection":
            names = shared if "Wemb" in arrays else separate
        found |= dict.fromkeys(names, np.full((1, 1), alpha, np.float32))
    return found


def observed_alphas(model: Transformer, sources: Sequence[Sequence[int]]) -> dict[str, float]:
    """The factor of each linear map's inputs before rounding: 127 over the largest input.

    Args:
        model: the network.
        sources: token ids of sentences, end of sentence included.
    """
    largest: dict[str, float] = {}
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):

            def record(_: nn.Module, given: tuple[Tensor, ...], name: str = name) -> None:
                largest[name] = max(largest.get(name, 0.0), given[0].abs().max().item())

            hooks.append(module.register_forward_pre_hook(record))
    try:
        for source in sources:
            greedy_search(model, torch.tensor([source]))
    finally:
        for hook in hooks:
            hook.remove()
    return {name: 127.0 / max(value, 1e-6) for name, value in largest.items()}
