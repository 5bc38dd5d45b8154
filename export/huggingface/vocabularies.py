"""Converts a Hugging Face tokenizer's files to a `PieceTokenizer`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import sentencepiece

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory, parse_json, read_json
from export.huggingface.json_tokenizer import read_json_tokenizer
from model.bundle.config import LARGEST_SIZES, ModelConfig
from model.bundle.languages import LanguageError, find_language
from model.bundle.piece_tokenizer import PieceTokenizer, PieceVocabulary
from model.bundle.tokenizer import TokenizerError

_SENTENCEPIECE = "sentencepiece.bpe.model"

# In the order of their ids, which these models' files leave to the program that reads them.
_M2M_LANGUAGES = {
    "m2m100": """
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi
hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns
oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh
zu
""",
    "wmt21": "en ha is ja cs ru zh de",
}
_MBART_LANGUAGES = """
ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV
my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID
ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA
ur_PK xh_ZA gl_ES sl_SI
"""


@dataclass(frozen=True)
class Vocabularies:
    """The tokenizers of both languages.

    Attributes:
        unk_id: id of the token that stands for unknown pieces.
        language_ids: tokens of languages, by the model's names for them; none if it has one
            direction.
        opens_target: whether the target language's token begins the translation, and the source
            language's token the text; otherwise the target language's token begins the text.
    """

    source: PieceVocabulary
    target: PieceVocabulary
    unk_id: int
    language_ids: Mapping[str, int] = field(default_factory=dict)
    opens_target: bool = False

    @property
    def num_pieces(self) -> int:
        """Tokens of the larger vocabulary."""
        return max(len(self.source.pieces), len(self.target.pieces))

    def between(self, source: str, target: str) -> Vocabularies:
        """The vocabularies with the language tokens of one direction.

        Raises:
            LanguageError: the model has no such language.
        """
        if not self.language_ids:
            return self
        prefix = source if self.opens_target else target
        tokens = [
            (self.language_ids[find_language(code, self.language_ids)],)
            for code in (prefix, target)
        ]
        return replace(
            self,
            source=replace(self.source, prefix_ids=tokens[0]),
            target=replace(self.target, start_ids=tokens[1] if self.opens_target else ()),
        )

    def tokenizer(self, config: ModelConfig) -> PieceTokenizer:
        """The source language's tokenizer.

        Raises:
            ExportError: a SentencePiece model can't be read.
        """
        try:
            return PieceTokenizer(self.source, config, PieceTokenizer(self.target, config))
        except TokenizerError as exc:
            raise ExportError(f"the tokenizer: {exc}") from exc


def read_vocabularies(directory: ModelDirectory, source: str, target: str) -> Vocabularies:
    """The tokenizer of one direction of a model.

    Args:
        source: BCP-47 code of the language that is translated from.
        target: BCP-47 code of the language that is translated to.

    Raises:
        ExportError: a file is missing or can't be read, or the model has no such language; names
            it.
    """
    try:
        return read_all_vocabularies(directory).between(source, target)
    except LanguageError as exc:
        raise ExportError(f"{directory.path}: {exc}; give --languages") from exc


def read_all_vocabularies(directory: ModelDirectory) -> Vocabularies:
    """The tokenizer of a model, without the tokens of a direction.

    Raises:
        ExportError: a file is missing or can't be read; names it.
    """
    found = _read_vocabularies(directory)
    if _cleans_up(directory):
        return replace(found, target=replace(found.target, cleans_up=True))
    return found


def _cleans_up(directory: ModelDirectory) -> bool:
    """Whether the library's tokenizer drops spaces before punctuation; those of BPE never do."""
    kind = directory.config.get("model_type")
    has_bpe = kind == "bart" or (
        kind == "m2m_100" and not (directory.path / "vocab.json").is_file()
    )
    return bool(directory.tokenizer.get("clean_up_tokenization_spaces")) and not has_bpe


def _read_vocabularies(directory: ModelDirectory) -> Vocabularies:
    kind = directory.config.get("model_type")
    if (directory.path / "source.spm").is_file() or str(kind).startswith("marian"):
        return _read_marian(directory)
    if kind == "m2m_100" and (directory.path / "vocab.json").is_file():
        return _read_m2m(directory)
    if kind == "bart" or (
        kind in ("m2m_100", "mbart") and not (directory.path / _SENTENCEPIECE).is_file()
    ):
        return _read_json_tokenizer(directory)
    if kind in ("m2m_100", "mbart"):
        return _read_fairseq(directory)
    raise ExportError(f"{directory.path}: tokenizers of {kind} are not supported yet")


def _read_marian(directory: ModelDirectory) -> Vocabularies:
    """Two SentencePiece models, and one or two lists of pieces.

    A model with several target languages has a token for each, such as >>deu<<, before the text.
    """
    source_ids = _read_ids(directory, "vocab.json")
    target_ids = source_ids
    if directory.tokenizer.get("separate_vocabs"):
        target_ids = _read_ids(directory, "target_vocab.json")
    special = ("</s>", "<unk>", "<pad>")
    for piece in special:
        if source_ids.get(piece) != target_ids.get(piece):
            raise ExportError(f"{directory.path}: {piece!r} has other ids in its two vocabularies")
    if "<unk>" not in source_ids:
        raise ExportError(f"{directory.path / 'vocab.json'} has no '<unk>'")
    source_model = _read_sentencepiece(directory, "source.spm")
    target_model = _read_sentencepiece(directory, "target.spm")
    names = [piece for piece in source_ids if piece.startswith(">>") and piece.endswith("<<")]
    special_ids = [source_ids[name] for name in names]
    return Vocabularies(
        PieceVocabulary(source_model, _by_id(source_ids), special_ids=special_ids),
        PieceVocabulary(target_model, _by_id(target_ids), special_ids=special_ids),
        source_ids["<unk>"],
        {name: source_ids[name] for name in names},
    )


def _read_sentencepiece(directory: ModelDirectory, name: str) -> bytes:
    content = directory.content(name)
    try:
        sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(content)
    except RuntimeError as exc:
        raise ExportError(f"{directory.path / name} is not a SentencePiece model") from exc
    return content


def _read_m2m(directory: ModelDirectory) -> Vocabularies:
    """One SentencePiece model and a list of pieces, which the languages' tokens follow."""
    ids = _read_ids(directory, "vocab.json")
    known = str(directory.tokenizer.get("language_codes", "m2m100"))
    if known not in _M2M_LANGUAGES:
        raise ExportError(
            f"{directory.path}: language_codes {known[:64]!r} is not supported, only "
            f"{' and '.join(_M2M_LANGUAGES)}"
        )
    codes = _M2M_LANGUAGES[known].split()
    languages = {f"__{code}__": len(ids) + number for number, code in enumerate(codes)}
    names = ("<s>", "<pad>", "</s>", "<unk>")
    special: dict[str, int] = {name: ids[name] for name in names if name in ids}
    return _multilingual(directory, {**ids, **languages}, languages, special)


def sentencepiece_pieces(file: Path, content: bytes) -> list[str]:
    """The pieces of a SentencePiece model, by id.

    Raises:
        ExportError: it is not a SentencePiece model; names `file`.
    """
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(content)
        return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    except (RuntimeError, UnicodeDecodeError) as exc:
        raise ExportError(f"{file} is not a SentencePiece model") from exc


def _read_fairseq(directory: ModelDirectory) -> Vocabularies:
    """One SentencePiece model whose pieces fairseq numbers anew, then languages: NLLB, mBART-50."""
    _refuse_mbart_25(directory)
    file = directory.file(_SENTENCEPIECE)
    every = sentencepiece_pieces(file, file.read_bytes())
    special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    # SentencePiece's own <unk>, <s> and </s> make way for these.
    pieces = every[3:]
    ids = dict(special)
    ids.update((piece, number) for number, piece in enumerate(pieces, start=len(special)))
    added = _added_tokens(directory, first=len(special) + len(pieces))
    languages = {name: i for name, i in added.items() if name not in special and name != "<mask>"}
    return _multilingual(directory, {**ids, **added}, languages, {**special, **added})


def _multilingual(
    directory: ModelDirectory,
    ids: Mapping[str, int],
    languages: Mapping[str, int],
    special: Mapping[str, int],
) -> Vocabularies:
    """[source language] text: and [target language] opens the translation."""
    model, pieces = _read_sentencepiece(directory, _SENTENCEPIECE), _by_id(ids)
    special_ids = sorted({*special.values(), *languages.values()})
    vocabulary = PieceVocabulary(model, pieces, special_ids=special_ids)
    return Vocabularies(vocabulary, vocabulary, ids["<unk>"], languages, opens_target=True)


def _read_json_tokenizer(directory: ModelDirectory) -> Vocabularies:
    """A tokenizer.json alone: BART, and what `transformers` 5 saves of NLLB and mBART-50."""
    _refuse_mbart_25(directory)
    tokenizer = read_json_tokenizer(directory)
    ids = tokenizer.ids
    check_ids(ids, directory.path)
    vocabulary = PieceVocabulary(
        tokenizer.content, _by_id(ids), special_ids=sorted(tokenizer.special_ids)
    )
    if directory.config.get("model_type") == "bart":
        # <s> is before every text, and before every translation where the model says so.
        forced = directory.generation.get("forced_bos_token_id")
        is_token = type(forced) is int and 0 <= forced < len(vocabulary.pieces)
        if forced is not None and not is_token:
            raise ExportError(
                f"{directory.path}: forced_bos_token_id {forced!r:.64} is not supported"
            )
        start = () if forced is None else (forced,)
        source = replace(vocabulary, prefix_ids=(ids["<s>"],))
        return Vocabularies(source, replace(vocabulary, start_ids=start), ids["<unk>"])
    known = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    languages = {
        name: i for name, i in ids.items() if i in tokenizer.special_ids and name not in known
    }
    return Vocabularies(vocabulary, vocabulary, ids["<unk>"], languages, opens_target=True)


def _refuse_mbart_25(directory: ModelDirectory) -> None:
    if directory.tokenizer.get("tokenizer_class") in ("MBartTokenizer", "MBartTokenizerFast"):
        raise ExportError(
            f"{directory.path}: mBART-25 (MBartTokenizer) is not supported, mBART-50 is"
        )


def _added_tokens(directory: ModelDirectory, first: int) -> dict[str, int]:
    """The ids of languages and other special tokens, of which older files only have names."""
    if (directory.path / "tokenizer.json").is_file():
        file = directory.path / "tokenizer.json"
        listed = read_json(file).get("added_tokens", [])
        try:
            added = {str(token["content"]): int(token["id"]) for token in listed}
        except (KeyError, TypeError, ValueError, OverflowError) as exc:
            raise ExportError(f"{file}: added_tokens: {type(exc).__name__}: {exc}") from exc
        check_ids(added, file)
        return added
    names = directory.tokenizer.get("additional_special_tokens")
    map_file = directory.path / "special_tokens_map.json"
    if names is None and map_file.is_file():
        names = read_json(map_file).get("additional_special_tokens")
    if names is None and directory.config.get("model_type") == "mbart":
        names = _MBART_LANGUAGES.split()
    if not names:
        raise ExportError(
            f"{directory.path} does not name its languages: it needs tokenizer.json or "
            f"special_tokens_map.json"
        )
    if not isinstance(names, list):
        raise ExportError(f"{directory.path}: additional_special_tokens is not a list")
    texts = [
        str(name.get("content", "")) if isinstance(name, dict) else str(name) for name in names
    ]
    return {text: first + number for number, text in enumerate([*texts, "<mask>"])}


def _read_ids(directory: ModelDirectory, name: str) -> dict[str, int]:
    ids = parse_json(directory.content(name), directory.path / name)
    if any(type(i) is not int or i < 0 for i in ids.values()):
        raise ExportError(f"{directory.path / name} does not give every piece an id")
    check_ids(ids, directory.path / name)
    return ids


def check_ids(ids: Mapping[str, int], file: Path) -> None:
    """Refuse ids beyond the largest vocabulary: a list of pieces would become as long.

    Raises:
        ExportError: one is out of range.
    """
    largest = LARGEST_SIZES["vocab_size"]
    for piece, token_id in ids.items():
        if not 0 <= token_id < largest:
            raise ExportError(
                f"{file}: the id {token_id} of {piece[:64]!r} is not between 0 and {largest - 1}"
            )


def _by_id(ids: Mapping[str, int]) -> list[str]:
    pieces = [""] * (max(ids.values(), default=-1) + 1)
    for piece, token_id in ids.items():
        pieces[token_id] = piece
    return pieces
