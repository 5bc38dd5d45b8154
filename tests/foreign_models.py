"""Small random models in Hugging Face's format, like those that authors publish."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import transformers

from tests.factories import SENTENCES

# Enough scripts and signs for single-character pieces, unknown characters and long runs.
TEXTS = (
    *SENTENCES,
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Η γρήγορη αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "我们明天去北京，好吗？ 東京タワーは高いです。",
    "مرحبا بالعالم، كيف حالك اليوم؟",
    "हम कल दिल्ली जाएँगे। ¿Qué tal, señor Núñez?",
    "In 1969, people walked on the moon; 12,50 € \u2013 or $3.75 \u2013 isn't much.",
)


EOS_BIAS = 1.0  # so that some translations end, and not at once


def lines(count: int, seed: int = 0) -> list[str]:
    """Random texts of words in many scripts, with odd spaces, signs and characters unseen."""
    draw = np.random.default_rng(seed)
    words = [word for text in TEXTS for word in text.split()]
    odd = [
        "  ",
        " \u00a0",
        "\u3000",
        "...",
        "\u200b",
        "ﷺ",
        "𝔘𝔫",
        "🙂",
        "½",
        "e\u0301",
        "ß",
        "ﬁ",
        "\t",
        "Ünïcödé",
    ]
    found = []
    for _ in range(count):
        chosen = draw.choice(words, draw.integers(1, 12)).tolist()
        for _ in range(draw.integers(0, 3)):
            chosen.insert(int(draw.integers(0, len(chosen) + 1)), str(draw.choice(odd)))
        text = " ".join(chosen)
        if draw.random() < 0.2:  # words cut and glued together anew
            text = text[int(draw.integers(0, len(text))) :] + "".join(chosen[:2])
        found.append(text)
    return found


def sentencepiece_model(texts: list[str], vocab_size: int, kind: str = "unigram") -> bytes:
    """A model without byte pieces, like published ones: characters it has not seen are unknown."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=vocab_size,
        model_type=kind,
        character_coverage=0.98,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def write_marian_vocabulary(directory: Path, codes: tuple[str, ...] = ()) -> int:
    """The tokenizer's files of MarianMT; the number of tokens."""
    pieces: dict[str, int] = {"</s>": 0, "<unk>": 1}
    for name, texts in (("source", TEXTS[:10]), ("target", TEXTS[4:])):
        model = sentencepiece_model(list(texts), 260)
        (directory / f"{name}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor()
        processor.LoadFromSerializedProto(model)
        # Each twentieth piece is missing, since published vocabularies lack some, too.
        for token_id in range(3, processor.get_piece_size()):
            if token_id % 20:
                pieces.setdefault(processor.id_to_piece(token_id), len(pieces))
    for code in codes:
        pieces[code] = len(pieces)
    pieces["<pad>"] = len(pieces)
    (directory / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    config = {"source_lang": "en", "target_lang": "de"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return len(pieces)


def marian(directory: Path, codes: tuple[str, ...] = (), **changes: Any) -> Any:
    """A MarianMT model with its vocabulary, saved into `directory`; `codes` are its languages'."""
    directory.mkdir(parents=True, exist_ok=True)
    num_tokens = write_marian_vocabulary(directory, codes)
    pad_id = num_tokens - 1
    fields: dict[str, Any] = {
        "vocab_size": num_tokens,
        "decoder_vocab_size": num_tokens,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 128,
        "activation_function": "swish",
        "scale_embedding": True,
        "pad_token_id": pad_id,
        "eos_token_id": 0,
        "bos_token_id": 0,
        "forced_eos_token_id": 0,
        "decoder_start_token_id": pad_id,
        "bad_words_ids": [[pad_id]],
        "num_beams": 4,
        "max_length": 128,
        **changes,
    }
    bad_words, beams, longest = (
        fields.pop(n) for n in ("bad_words_ids", "num_beams", "max_length")
    )
    model: Any = transformers.MarianMTModel(transformers.MarianConfig(**fields))
    model.generation_config.update(bad_words_ids=bad_words, num_beams=beams, max_length=longest)
    return save(model, directory)


def sizes(*, width: int, layers: int, heads: int) -> dict[str, int]:
    """Sizes of a configuration, with the inner width four times the width."""
    found = {"d_model": width}
    for stack in ("encoder", "decoder"):
        found[f"{stack}_layers"] = layers
        found[f"{stack}_attention_heads"] = heads
        found[f"{stack}_ffn_dim"] = 4 * width
    return found


# The first ones belong to no network's configuration.
SEARCH_FIELDS = (
    *("num_beams", "max_length", "bad_words_ids", "forced_eos_token_id"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"),
)


def marian_of(published: Path, directory: Path, *, max_length: int, **changes: Any) -> Any:
    """A MarianMT model with the files of a published one, except weights and sizes."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in published.iterdir():
        (directory / file.name).write_bytes(file.read_bytes())
    fields = json.loads((published / "config.json").read_text(encoding="utf-8"))
    newer = published / "generation_config.json"
    searched = json.loads(newer.read_text(encoding="utf-8")) if newer.exists() else fields
    found = {name: searched[name] for name in SEARCH_FIELDS if name in searched}
    kept = {name: value for name, value in fields.items() if name not in SEARCH_FIELDS[:4]}
    model: Any = transformers.MarianMTModel(transformers.MarianConfig(**{**kept, **changes}))
    generation: Any = transformers.GenerationConfig
    model.generation_config = generation(**{**found, "max_length": max_length})
    return save(model, directory)


def write_m2m_vocabulary(directory: Path) -> int:
    """The tokenizer's files of M2M-100; the number of tokens."""
    model = sentencepiece_model(list(TEXTS), 400, "bpe")
    (directory / "sentencepiece.bpe.model").write_bytes(model)
    pieces = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    for token_id in range(3, processor.get_piece_size()):
        pieces[processor.id_to_piece(token_id)] = len(pieces)
    (directory / "vocab.json").write_text(json.dumps(pieces), encoding="utf-8")
    tokenizer = transformers.M2M100Tokenizer(
        str(directory / "vocab.json"), str(directory / "sentencepiece.bpe.model")
    )
    tokenizer.save_pretrained(directory)
    return len(pieces) + 100 + 8


def write_fairseq_vocabulary(directory: Path, kind: str, languages: list[str], cls: str) -> int:
    """The tokenizer's files of NLLB and mBART-50; the number of tokens."""
    model = sentencepiece_model(list(TEXTS), 400, kind)
    (directory / "sentencepiece.bpe.model").write_bytes(model)
    names = {"additional_special_tokens": languages}
    (directory / "special_tokens_map.json").write_text(json.dumps(names), encoding="utf-8")
    config = {"tokenizer_class": cls, **names}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    if cls == "NllbTokenizer":  # which is published with a tokenizer.json
        transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)
    return int(processor.get_piece_size()) + 1 + len(languages) + 1


_SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 128,
}


def multilingual(directory: Path, family: str, **changes: Any) -> Any:
    """An M2M-100, NLLB or mBART-50 model with its vocabulary, saved into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    config: Any = transformers.M2M100Config
    model: Any = transformers.M2M100ForConditionalGeneration
    languages: list[str]
    if family == "m2m":
        num_tokens = write_m2m_vocabulary(directory)
    elif family == "nllb":
        from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as languages

        num_tokens = write_fairseq_vocabulary(directory, "bpe", languages, "NllbTokenizer")
    else:
        from transformers.models.mbart50.tokenization_mbart50 import (
            FAIRSEQ_LANGUAGE_CODES as languages,
        )

        num_tokens = write_fairseq_vocabulary(directory, "unigram", languages, "MBart50Tokenizer")
        config, model = transformers.MBartConfig, transformers.MBartForConditionalGeneration
    fields: dict[str, Any] = {
        "vocab_size": num_tokens,
        **_SIZES,
        "scale_embedding": True,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2 if family == "mbart" else None,
        **changes,
    }
    longest = fields.pop("max_length", 100)
    made = model(config(**fields))
    # As they are published, M2M-100 and mBART-50 search with five beams, NLLB greedily.
    searched = {"num_beams": 5, "early_stopping": True} if family != "nllb" else {}
    made.generation_config.update(max_length=longest, **searched)
    return save(made, directory)


def write_bart_vocabulary(directory: Path, merges: bool = False) -> int:
    """The tokenizer's files of BART, byte-level BPE; the number of tokens."""
    import tokenizers

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXTS, vocab_size=450, special_tokens=special, show_progress=False)
    trained.save_model(str(directory))
    ids = json.loads((directory / "vocab.json").read_bytes())
    ids["<mask>"] = len(ids)
    (directory / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    config = {"tokenizer_class": "BartTokenizer", "source_lang": "en", "target_lang": "de"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    if not merges:  # tokenizer.json alone, as newer programs save it
        theirs = transformers.AutoTokenizer.from_pretrained(directory)
        for name in ("vocab.json", "merges.txt"):
            (directory / name).unlink()
        theirs.save_pretrained(directory)
        saved = json.loads((directory / "tokenizer_config.json").read_bytes())
        (directory / "tokenizer_config.json").write_text(json.dumps({**saved, **config}))
    return len(ids)


def bart(directory: Path, *, merges: bool = False, **changes: Any) -> Any:
    """A BART model with its vocabulary, saved into `directory`; `merges` for the older files."""
    directory.mkdir(parents=True, exist_ok=True)
    num_tokens = write_bart_vocabulary(directory, merges)
    fields: dict[str, Any] = {
        "vocab_size": num_tokens,
        **_SIZES,
        "forced_bos_token_id": 0,
        "forced_eos_token_id": None,
        **changes,
    }
    forced = fields.pop("forced_bos_token_id")
    model: Any = transformers.BartForConditionalGeneration(transformers.BartConfig(**fields))
    model.generation_config.update(forced_bos_token_id=forced, max_length=100)
    return save(model, directory)


def without_sentencepiece(directory: Path) -> None:
    """Reduce a multilingual model's tokenizer to the tokenizer.json that `transformers` 5 saves."""
    transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(directory)
    for name in ("sentencepiece.bpe.model", "special_tokens_map.json"):
        (directory / name).unlink(missing_ok=True)


def save(model: Any, directory: Path) -> Any:
    """Draw all weights so that greedy outputs vary and sometimes end, and save the model."""
    draw_weights(model)
    model.save_pretrained(directory)
    return model.eval()


def draw_weights(model: Any) -> None:
    """Draw weights, unlike those at the start of training: biases and norms have values, too."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            unit = parameter.size(-1) ** -0.5
            if "norm" in name and name.endswith("weight"):
                parameter.uniform_(0.5, 1.5)
            elif "embed_positions" in name:
                if parameter.requires_grad:
                    parameter.normal_(0.0, 1.0)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.1)
            elif "embed_tokens" in name or "shared" in name:
                parameter.normal_(0.0, unit)
                parameter[model.config.eos_token_id] *= 2.0
            elif "q_proj" in name or "k_proj" in name:
                parameter.normal_(0.0, 3.0 * unit)
            else:
                parameter.normal_(0.0, 1.5 * unit)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(0.0, 0.2)
            model.final_logits_bias[0, model.config.eos_token_id] += EOS_BIAS


def vary(model: Any, ending: float = 0.0) -> None:
    """Change the weights of `draw_weights` so that outputs depend on the source, vary and end.

    Deep random networks repeat one token, whatever the source: their states have a large part in
    common, which each layer adds to. Without the mean of its rows, the last matrix of a
    feed-forward layer adds nothing to it. Where norms follow the sums, larger embeddings outweigh
    the positions. Only the decoder's last layer has large branches, and attention is not too sharp:
    more of either multiplies rounding from layer to layer. `ending` is added to the logit of EOS.
    """
    is_post_norm = isinstance(model, transformers.MarianMTModel)
    last = f"decoder.layers.{model.config.decoder_layers - 1}."
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_post_norm and ("embed_tokens" in name or "shared" in name):
                parameter *= 2.0
            elif name.endswith(("q_proj.weight", "k_proj.weight")):
                parameter *= 0.6
            elif name.endswith("self_attn.out_proj.weight"):
                parameter *= 0.3
            elif name.endswith("encoder_attn.out_proj.weight"):
                parameter *= 2.0 if last in name else 1.0
            elif name.endswith("fc2.weight"):
                parameter -= parameter.mean(-1, keepdim=True)
                parameter *= 3.0 if last in name else 1.0
        if ending:
            model.final_logits_bias[0, model.config.eos_token_id] += ending
