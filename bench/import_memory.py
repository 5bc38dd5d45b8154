"""Measures how much memory an import takes, in multiples of the model's weights.

    python -m bench.import_memory --precision fp32

A random MarianMT model is imported by `dragoman import` in a process of its own, whose peak is
compared with that of a tiny model: the difference is what the weights cost. The peak has to stay
below three times the weights in float32.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from bench import speed_model

LIMIT = 3.0
_WORDS = 400  # of the tokenizer, length words included; the other tokens have no text


def write_model(directory: Path, vocab_size: int, width: int, layers: int) -> int:
    """A random model with its tokenizer in Hugging Face's format; the bytes of its weights."""
    import transformers

    directory.mkdir()
    words = speed_model.speed_config("tiny", _WORDS, d_model=256)
    speed_model.write_tokenizer(words, directory / "source.spm")
    (directory / "target.spm").write_bytes((directory / "source.spm").read_bytes())
    ids = {"</s>": 0, "<unk>": 1, **{f"\u2581{speed_model.word(i)}": i + 2 for i in range(50)}}
    ids |= {f"piece{i}": i for i in range(len(ids), vocab_size - 1)}
    (directory / "vocab.json").write_text(json.dumps({**ids, "<pad>": vocab_size - 1}))
    heads, inner = max(1, width // 64), 4 * width
    config: Any = transformers.MarianConfig(
        vocab_size=vocab_size, decoder_vocab_size=vocab_size, d_model=width,
        encoder_layers=layers, decoder_layers=layers,
        encoder_attention_heads=heads, decoder_attention_heads=heads,
        encoder_ffn_dim=inner, decoder_ffn_dim=inner, max_position_embeddings=64,
        scale_embedding=True, activation_function="swish", eos_token_id=0, forced_eos_token_id=0,
        pad_token_id=vocab_size - 1, decoder_start_token_id=vocab_size - 1,
    )  # fmt: skip
    model: Any = transformers.MarianMTModel(config)
    model.save_pretrained(directory)
    return (directory / "model.safetensors").stat().st_size


def peak_of_import(directory: Path, output: Path, precision: str) -> int:
    """The largest resident set of an import, in bytes.

    Raises:
        subprocess.CalledProcessError: the import failed.
    """
    sentences = directory / "sentences.txt"
    sentences.write_text("w1 w2 w3\nw4 w5\n", encoding="utf-8")
    arguments = ["import", str(directory), "--output", str(output), "--precision", precision]
    arguments += ["--languages", "en,de", "--threads", "1", "--sentences", str(sentences)]
    program = "import sys; from cli.main import app; app(sys.argv[1:])"
    child = subprocess.Popen([sys.executable, "-c", program, *arguments])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, arguments)
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(
    precision: Annotated[str, typer.Option(help="fp32, int8 or fp16.")] = "fp32",
    vocab_size: Annotated[int, typer.Option(help="Tokens.")] = 110_000,
    width: Annotated[int, typer.Option(help="Of the network, d_model.")] = 512,
    layers: Annotated[int, typer.Option(help="Of encoder and decoder each.")] = 6,
) -> None:
    """Import a random model and compare the peak with its weights."""
    with tempfile.TemporaryDirectory(prefix="dragoman-memory-") as temporary:
        path = Path(temporary)
        write_model(path / "tiny", 500, 64, 1)
        base = peak_of_import(path / "tiny", path / "tiny-bundle", precision)
        weights = write_model(path / "model", vocab_size, width, layers)
        peak = peak_of_import(path / "model", path / "bundle", precision)
    ratio = (peak - base) / weights
    mib = 2**20
    typer.echo(
        f"{precision}: weights {weights / mib:.0f} MiB, peak {peak / mib:.0f} MiB, of which a tiny "
        f"model takes {base / mib:.0f}: {ratio:.2f} times the weights"
    )
    if ratio >= LIMIT:
        typer.echo(f"that is not below {LIMIT:g}", err=True)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
