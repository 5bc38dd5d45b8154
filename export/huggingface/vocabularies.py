"""Converts a Hugging Face tokenizer's files to a `PieceTokenizer`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import sentencepiece

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory
from export.huggingface.json_tokenizer import read_json_tokenizer
from export.huggingface.token_ids import added_tokens, check_ids, language_names, read_ids
from model.bundle.config import ModelConfig
from model.bundle.languages import LanguageError, find_language, is_language_code
from model.bundle.piece_tokenizer import PieceTokenizer, PieceVocabulary
from model.bundle.tokenizer import TokenizerError

_SENTENCEPIECE = "sentencepiece.bpe.model"
# Classes that do what a tokenizer.json says.
_PLAIN_CLASSES = ("PreTrainedTokenizer", "TokenizersBackend")

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
_M2M_LANGUAGE = re.compile("__[a-z]{2,3}__")
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
    _check_class(directory, "MarianTokenizer")
    source_ids = read_ids(directory, "vocab.json")
    target_ids = source_ids
    if directory.tokenizer.get("separate_vocabs"):
        target_ids = read_ids(directory, "target_vocab.json")
    added_tokens(directory, {**source_ids, **target_ids})  # refuses words
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
    _check_class(directory, "M2M100Tokenizer")
    ids = read_ids(directory, "vocab.json")
    known = str(directory.tokenizer.get("language_codes", "m2m100"))
    if known not in _M2M_LANGUAGES:
        raise ExportError(
            f"{directory.path}: language_codes {known[:64]!r} is not supported, only "
            f"{' and '.join(_M2M_LANGUAGES)}"
        )
    codes = _M2M_LANGUAGES[known].split()
    languages = {f"__{code}__": len(ids) + number for number, code in enumerate(codes)}
    # Of languages that a model was trained further for, too.
    added = added_tokens(directory, ids)
    languages |= {name: i for name, i in added.items() if _M2M_LANGUAGE.fullmatch(name)}
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
    _check_class(directory, "NllbTokenizer", "MBart50Tokenizer")
    file = directory.file(_SENTENCEPIECE)
    every = sentencepiece_pieces(file, file.read_bytes())
    special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    # SentencePiece's own <unk>, <s> and </s> make way for these.
    pieces = every[3:]
    ids = dict(special)
    ids.update((piece, number) for number, piece in enumerate(pieces, start=len(special)))
    added = _added_tokens(directory, ids, first=len(special) + len(pieces))
    languages = {
        name: i
        for name, i in added.items()
        if name not in special and name != "<mask>" and is_language_code(name)
    }
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


def _check_class(directory: ModelDirectory, *known: str) -> None:
    """Refuse what tokenizers of other classes make of the same files.

    A directory that has its own tokenizer.json says there what the class does.
    """
    _refuse_mbart_25(directory)
    name = _class_of(directory)
    is_own = name in _PLAIN_CLASSES and (directory.path / "tokenizer.json").is_file()
    if name and name not in known and not is_own:
        raise ExportError(
            f"{directory.path}: the tokenizer_class {name[:64]!r} is not supported, only "
            f"{' and '.join(known)}"
        )
    if directory.tokenizer.get("legacy_behaviour"):
        raise ExportError(
            f"{directory.path}: legacy_behaviour of the tokenizer, which puts languages after the "
            f"text, is not supported"
        )


def _class_of(directory: ModelDirectory) -> str:
    """The name of the library's tokenizer; "" if no file says it."""
    fields = (directory.tokenizer, directory.config)
    name = next((given for each in fields if (given := each.get("tokenizer_class"))), "")
    return str(name).removesuffix("Fast")


def _refuse_mbart_25(directory: ModelDirectory) -> None:
    # The library takes a model without a class for mBART-25.
    is_mbart = directory.config.get("model_type") == "mbart"
    if _class_of(directory) in (("MBartTokenizer", "") if is_mbart else ("MBartTokenizer",)):
        raise ExportError(
            f"{directory.path}: mBART-25 (MBartTokenizer, also where no file names a "
            f"tokenizer_class) is not supported, mBART-50 is"
        )


def _added_tokens(
    directory: ModelDirectory, pieces: Mapping[str, int], first: int
) -> dict[str, int]:
    """The ids of languages and other special tokens; older files only have their names."""
    stated = added_tokens(directory, pieces)
    names = language_names(directory)
    if names is None and directory.config.get("model_type") == "mbart":
        names = _MBART_LANGUAGES.split()
    if not names and "<mask>" not in stated:
        raise ExportError(
            f"{directory.path} does not name its languages: it needs tokenizer.json or "
            f"special_tokens_map.json"
        )
    # Those with an id of their own were added after the others.
    rest = [name for name in (*(names or ()), "<mask>") if name not in stated]
    return {**{name: first + number for number, name in enumerate(rest)}, **stated}


def _by_id(ids: Mapping[str, int]) -> list[str]:
    pieces = [""] * (max(ids.values(), default=-1) + 1)
    for piece, token_id in ids.items():
        pieces[token_id] = piece
    return pieces
