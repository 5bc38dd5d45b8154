"""Directories in the shapes that other programs published them in give the networks of their files.

`foreign_models` saves models with today's `transformers`. Most of what is on the hub was written by
earlier versions, and by the conversion scripts of their authors.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_LANGUAGES

from export.errors import ExportError
from export.foreign import ForeignModel
from export.huggingface.directory import ModelDirectory
from export.huggingface.reader import read_huggingface
from export.huggingface.vocabularies import read_vocabularies
from model.evaluation.search import BeamOptions, beam_search
from tests import foreign_models

SENTENCES = ("A dog is running.", "Two men are playing chess in the park.")
_INDEX = {"metadata": {"total_size": 1}}


def edited(file: Path, *left_out: str, **fields: Any) -> None:
    """Write other fields into a JSON object, or a new one."""
    before = json.loads(file.read_text()) if file.exists() else {}
    kept = {name: value for name, value in before.items() if name not in left_out}
    file.write_text(json.dumps({**kept, **fields}))


def weights_of(path: Path) -> dict[str, Tensor]:
    """The weights of a directory, which loses their file."""
    weights = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    return weights


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a model of each family, which is saved once."""
    found: dict[str, Path] = {}

    def of(family: str) -> Path:
        if family not in found:
            path = tmp_path_factory.mktemp(family)
            if family in ("m2m", "nllb", "mbart"):
                foreign_models.multilingual(path, family)
            elif family == "bart":
                foreign_models.bart(path, merges=True)
            else:
                foreign_models.marian(path)
            found[family] = path
        return found[family]

    return of


@pytest.fixture
def directory(request: pytest.FixtureRequest, saved: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of the directory of one family."""
    return Path(shutil.copytree(saved(request.param), tmp_path / "model"))


def of(*families: str) -> pytest.MarkDecorator:
    """Run with a directory of each family."""
    return pytest.mark.parametrize("directory", families, indirect=True)


def check(path: Path, languages: tuple[str, str] | None = ("en", "de")) -> ForeignModel:
    """Read a directory, and compare token ids, states and logits with those of `transformers`."""
    found = read_huggingface(path, languages)
    assert found.comparison is not None
    assert found.comparison.compare(SENTENCES, None).num_sentences == len(SENTENCES)
    return found


# --- Weights: files, types, tied matrices


def sharded(path: Path, weights: dict[str, Tensor], *, pickled: bool) -> None:
    """Write weights in three parts with an index."""
    names = sorted(weights)
    stem, suffix = ("pytorch_model", "bin") if pickled else ("model", "safetensors")
    places: dict[str, str] = {}
    for number in range(3):
        file = f"{stem}-{number + 1:05d}-of-00003.{suffix}"
        part = {name: weights[name].clone() for name in names[number::3]}
        places |= dict.fromkeys(part, file)
        if pickled:
            torch.save(part, path / file)
        else:
            save_file(part, path / file, metadata={"format": "pt"})
    index = {**_INDEX, "weight_map": places}
    (path / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))


@of("marian")
@pytest.mark.parametrize("kind", ["old pickle", "pickle", "pickled parts", "bfloat16 parts"])
def test_files_with_weights(directory: Path, kind: str) -> None:
    weights = weights_of(directory)
    if "parts" in kind:
        if kind.startswith("bfloat16"):
            weights = {name: tensor.bfloat16() for name, tensor in weights.items()}
        sharded(directory, weights, pickled=kind.startswith("pickled"))
    else:
        # A tied matrix under all its names, as files before 2021 have it; one storage or several.
        shared = weights["model.shared.weight"]
        for number, name in enumerate(("encoder.embed_tokens", "decoder.embed_tokens")):
            weights[f"model.{name}.weight"] = shared.clone() if number else shared
        weights["lm_head.weight"] = shared
        file, is_new = directory / "pytorch_model.bin", kind == "pickle"
        torch.save(weights, file, _use_new_zipfile_serialization=is_new)
    check(directory)


@of("bart")
def test_weights_of_a_bare_network_with_fairseq_s_versions(directory: Path) -> None:
    """BART was published as the network without its head, and with the versions of formats."""
    weights = {
        name.removeprefix("model."): tensor
        for name, tensor in weights_of(directory).items()
        if name != "final_logits_bias"
    }
    for stack in ("encoder", "decoder"):
        weights[f"{stack}.version"] = torch.tensor([3.0])
    torch.save(weights, directory / "pytorch_model.bin")
    check(directory)


# --- config.json and generation_config.json


@of("marian")
def test_configuration_of_2020(directory: Path) -> None:
    """Without a generation_config.json, with fields that mean nothing now, and without others."""
    fields = json.loads((directory / "config.json").read_text())
    (directory / "generation_config.json").unlink()
    later = (
        *("transformers_version", "tie_word_embeddings", "share_encoder_decoder_embeddings"),
        *("decoder_vocab_size", "dtype", "forced_eos_token_id", "use_cache", "eos_token_id"),
    )
    edited(
        directory / "config.json",
        *later,
        _num_labels=3,
        add_bias_logits=False,
        add_final_layer_norm=False,
        bad_words_ids=[[fields["pad_token_id"]]],
        id2label={"0": "LABEL_0"},
        max_length=100,
        normalize_before=False,
        normalize_embedding=False,
        num_beams=4,
        num_hidden_layers=fields["encoder_layers"],
        static_position_embeddings=True,
    )
    (directory / "tokenizer_config.json").write_text('{"target_lang": "de", "source_lang": "en"}')
    search = check(directory, None).search
    assert search["beam_size"] == 4
    assert search["max_new_tokens"] == 99
    assert search["forced_eos"]  # the default of the class


@of("bart", "m2m")
def test_fields_that_have_defaults(directory: Path) -> None:
    names = ("pad_token_id", "eos_token_id", "decoder_start_token_id", "scale_embedding")
    kind = json.loads((directory / "config.json").read_text())["model_type"]
    edited(directory / "config.json", *names, "activation_function", "bos_token_id")
    assert check(directory).config.scale_embeddings == (kind == "m2m_100")


@of("marian")
@pytest.mark.parametrize("renormalizes", [False, True])
def test_padding_s_share_of_the_probability(directory: Path, renormalizes: bool) -> None:
    """`renormalize_logits`, in OPUS-MT's files since 2023, gives it to the other tokens."""
    pad_id = json.loads((directory / "config.json").read_text())["pad_token_id"]
    weights = load_file(directory / "model.safetensors")
    weights["final_logits_bias"][0, pad_id] += 5.0  # as OPUS-MT's networks do
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    generation = directory / "generation_config.json"
    edited(generation, "forced_eos_token_id", renormalize_logits=renormalizes, max_length=20)
    edited(directory / "config.json", forced_eos_token_id=None)
    found = check(directory)
    theirs: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory)
    num_ended = 0
    for text in foreign_models.lines(6, seed=3):
        source = torch.tensor([[*found.tokenizer.encode(text.strip()), found.config.eos_id]])
        made: Any = theirs.generate(source, return_dict_in_generate=True, output_scores=True)
        [best, *_] = beam_search(
            found.model,
            source,
            torch.ones_like(source, dtype=torch.bool),
            BeamOptions(beam_size=4, length_penalty_kind="power", early_stopping="heuristic"),
            max_new_tokens=19,
        )[0]
        expected = [i for i in made.sequences[0].tolist()[1:] if i != found.config.eos_id]
        assert list(best.token_ids) == expected
        if best.finished:
            num_ended += 1
            assert best.score == pytest.approx(made.sequences_scores.item(), abs=1e-4)
    assert num_ended > 0


# --- Tokenizers


@of("m2m")
def test_a_language_that_was_added(directory: Path) -> None:
    """As in TartuNLP's model of Livonian, whose ids are in added_tokens.json."""
    edited(directory / "tokenizer_config.json", "added_tokens_decoder")
    vocabulary = json.loads((directory / "vocab.json").read_text())
    first = len(vocabulary) + 100
    (directory / "added_tokens.json").write_text(
        json.dumps({"__liv__": first, "__vro__": first + 1})
    )
    found = check(directory, ("liv", "vro"))
    assert found.tokenizer.prefix_ids == (first,)
    assert found.tokenizer.target.start_ids == (first + 1,)


def nllb_of_2022(path: Path, *further: str) -> int:
    """The tokenizer's files of NLLB before tokenizer.json; the id of the first language."""
    added = json.loads((path / "tokenizer.json").read_text())["added_tokens"]
    (path / "tokenizer.json").unlink()
    edited(
        path / "special_tokens_map.json",
        additional_special_tokens=[*NLLB_LANGUAGES, *further],
        mask_token={"content": "<mask>", "lstrip": True, "normalized": True},
    )
    config: dict[str, Any] = {"tokenizer_class": "NllbTokenizer", "src_lang": None}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return min(int(token["id"]) for token in added if int(token["id"]) > 3)


@of("nllb")
def test_languages_that_are_only_named(directory: Path) -> None:
    first = nllb_of_2022(directory)
    found = check(directory)
    assert found.tokenizer.prefix_ids == (first + NLLB_LANGUAGES.index("eng_Latn"),)


@of("nllb")
def test_a_language_after_the_mask(directory: Path) -> None:
    """The ids of the older ones don't change, whatever the order of the names is."""
    first = nllb_of_2022(directory, "tyv_Cyrl")
    last = first + len(NLLB_LANGUAGES) + 1  # after <mask>
    (directory / "added_tokens.json").write_text(json.dumps({"tyv_Cyrl": last}))
    found = read_vocabularies(ModelDirectory.read(directory), "en", "tyv")
    assert found.source.prefix_ids == (first + NLLB_LANGUAGES.index("eng_Latn"),)
    assert found.target.start_ids == (last,)
    assert found.source.pieces[last - 1] == "<mask>"


@of("m2m")
def test_a_network_of_m2m_with_a_tokenizer_of_marian(directory: Path) -> None:
    """Projecte Aina's models, which OpenNMT trained: other special tokens, one direction."""
    for name in ("vocab.json", "sentencepiece.bpe.model", "generation_config.json"):
        (directory / name).unlink()
    foreign_models.write_marian_vocabulary(directory)
    pieces = json.loads((directory / "vocab.json").read_text())
    rest = [piece for piece in pieces if piece not in ("<pad>", "</s>", "<unk>")]
    ids = {piece: i for i, piece in enumerate(("<unk>", "<blank>", "<s>", "</s>", *rest))}
    (directory / "vocab.json").write_text(json.dumps(ids))
    special = {"pad_token": "<blank>", "eos_token": "</s>", "unk_token": "<unk>"}
    (directory / "special_tokens_map.json").write_text(json.dumps(special))
    config = {"source_lang": "ca", "target_lang": "de", "tokenizer_class": "MarianTokenizer"}
    (directory / "tokenizer_config.json").write_text(json.dumps({**config, **special}))
    weights = weights_of(directory)
    weights.pop("lm_head.weight", None)
    weights["model.shared.weight"] = weights["model.shared.weight"][: len(ids)].clone()
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    edited(
        directory / "config.json",
        vocab_size=len(ids),
        pad_token_id=1,
        eos_token_id=3,
        decoder_start_token_id=2,
    )
    found = check(directory, None)
    assert (found.directions.sources, found.directions.targets) == (("ca",), ("de",))


@of("marian")
def test_a_word_that_was_added_is_refused(directory: Path) -> None:
    """It would be cut into pieces here, and is one token there."""
    edited(directory / "added_tokens.json", kombucha=204)
    with pytest.raises(ExportError, match=r"added_tokens\.json: 'kombucha' was added"):
        read_huggingface(directory, ("en", "de"))


@pytest.mark.parametrize(
    ("directory", "fields", "message"),
    [
        ("m2m", {"tokenizer_class": "SMALL100Tokenizer"}, "'SMALL100Tokenizer' is not supported"),
        ("marian", {"tokenizer_class": "OwnTokenizer"}, "'OwnTokenizer' is not supported"),
        ("nllb", {"legacy_behaviour": True}, "legacy_behaviour"),
        ("mbart", {"tokenizer_class": None}, "mBART-25"),
        ("mbart", {"tokenizer_class": "MBartTokenizerFast"}, "mBART-25"),
    ],
    indirect=["directory"],
)
def test_other_tokenizers_of_the_same_files_are_refused(
    directory: Path, fields: dict[str, Any], message: str
) -> None:
    edited(directory / "tokenizer_config.json", **fields)
    with pytest.raises(ExportError, match=message):
        read_huggingface(directory, ("en", "de"))
