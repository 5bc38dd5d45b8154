"""Pre-norm networks turned into post-norm ones."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import typer
from torch import nn
from torch.nn import functional as F
from typer.testing import CliRunner

from export.students.writer import check_student
from model.bundle.config import ModelConfig, preset
from model.data.corpus import EncodedText
from model.evaluation.validation import summed_loss
from model.network.checkpoint import load_checkpoint, save_checkpoint
from model.network.layers import Decoder, DecoderLayer, Encoder
from model.network.transformer import Transformer
from model.training.post_norm import fold, main, post_norm, sublayers
from tests.factories import tiny_config, tiny_tokenizer

WORDS = 40
ALONE = EncodedText([[]], [[]])  # EOS and BOS


def network(**changes: object) -> Transformer:
    """Random gains and biases too, but for a bias that Marian's unit can't take in."""
    config = preset("tiny", WORDS, d_model=32, ffn_dim=64, norm="pre", decoder="ssru", **changes)
    torch.manual_seed(0)
    made = Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
            if "recurrence_norm.bias" in name:
                parameter.zero_()
        made.target_embedding.weight[config.bos_id] = 0.0  # Marian's first input
    return made


@torch.no_grad()
def predicted(model: Transformer, text: EncodedText, index: int = 0) -> torch.Tensor:
    source, target = [*text.sources[index], 3], [2, *text.targets[index]]
    logits: torch.Tensor = model(torch.tensor([source]), torch.tensor([target]))
    return logits.log_softmax(dim=-1)


@pytest.mark.parametrize("tying", ["all", "target"])
def test_with_one_position_both_compute_the_same(tying: str) -> None:
    """The states have one standard deviation then, so nothing is approximated."""
    before = network(embedding_tying=tying)
    after = post_norm(before, ALONE)
    check_student(after.config)
    torch.testing.assert_close(
        predicted(after, ALONE), predicted(before, ALONE), atol=1e-4, rtol=1e-4
    )


@torch.no_grad()
def test_a_matrix_reads_from_post_norm_what_it_read_from_pre_norm() -> None:
    """For states whose standard deviation is the width; queries and keys too."""
    before, width = network(), 3.0
    after = copy.deepcopy(before)
    for old, new in ((before.encoder, after.encoder), (before.decoder, after.decoder)):
        fold(new, {norm: width for norm, _, _ in sublayers(new)})
        covered = set[nn.Module]()
        pairs = zip(sublayers(old), sublayers(new), strict=True)
        for index, ((norm, readers, writers), (_, folded, scaled)) in enumerate(pairs):
            covered |= {*folded, *scaled}
            plain = F.layer_norm(torch.randn(5, 32), (32,))  # as post-norm's LN gives it
            states = width * plain + 1.0
            for reads, same in zip(readers, folded, strict=True):
                wanted, found = reads(norm(states)), same(plain if index else states)
                if same in scaled and index:  # a candidate, which is also the unit's scale
                    found = width * found
                torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
            for writes, same in zip(writers, scaled, strict=True):
                if same not in folded:
                    factor = width if index else 1.0
                    torch.testing.assert_close(factor * same.weight, writes.weight)
                    torch.testing.assert_close(factor * same.bias, writes.bias)
        others = {one for one in new.modules() if isinstance(one, nn.Linear)} - covered
        of_memory = {getattr(a, k) for a in cross(new) for k in ("key", "value")}
        assert others == of_memory


def cross(stack: Encoder | Decoder) -> list[nn.Module]:
    layers = stack.each_layer()
    return [layer.cross_attention for layer in layers if isinstance(layer, DecoderLayer)]


def test_with_several_positions_both_compute_nearly_the_same() -> None:
    before = network()
    sources, targets = torch.randint(5, WORDS, (2, 8, 9)).tolist()
    text = EncodedText(sources, targets)
    after = post_norm(before, text)
    moved = Transformer(after.config).eval()  # the same numbers in the other order of norms
    moved.load_state_dict(before.state_dict(), strict=False)

    def difference(model: Transformer) -> float:
        gaps = [(predicted(model, text, i) - predicted(before, text, i)).abs() for i in range(8)]
        return float(torch.cat(gaps).mean())

    assert difference(after) < 0.2 * difference(moved)
    (found, count), (wanted, _) = (
        summed_loss(model, text, torch.device("cpu")) for model in (after, before)
    )
    assert count == 8 * 10
    assert found == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "post"}, "model.norm has to be 'pre', not 'post'"),
        ({"decoder": "self_attention"}, "model.decoder has to be 'ssru'"),
        ({"positions": "learned"}, "model.positions has to be 'sinusoidal'"),
        ({"embedding_tying": "none"}, "model.embedding_tying has to be 'all' or 'target'"),
    ],
)
def test_other_networks_are_refused_by_name(changes: dict[str, str], message: str) -> None:
    config = ModelConfig(**{**network().config.to_dict(), **changes})
    with pytest.raises(ValueError, match=message):
        post_norm(Transformer(config), ALONE)


def test_without_text_or_with_states_of_zero_there_is_no_width() -> None:
    with pytest.raises(ValueError, match="no pair"):
        post_norm(network(), EncodedText([], []))
    dead = network()
    with torch.no_grad():
        for parameter in dead.decoder.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(ValueError, match="not finite"):
        post_norm(dead, ALONE)


def test_the_command_writes_a_checkpoint(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    config = tiny_config(
        norm="pre", decoder="ssru", positions="sinusoidal", vocab_size=tokenizer.vocab_size
    )
    languages = {"source": "en", "target": "de"}
    start, output = tmp_path / "start", tmp_path / "output"
    save_checkpoint(
        start, Transformer(config), tokenizer, languages=languages, provenance={"updates": 7}
    )
    sides = [tmp_path / "text.en", tmp_path / "text.de"]
    for side in sides:
        side.write_text("a dog\n\nthe cat\n", encoding="utf-8")
    app = typer.Typer()
    app.command()(main)

    arguments = [str(start), "--output", str(output), "--text", *map(str, sides)]
    called = CliRunner().invoke(app, arguments)
    assert called.exit_code == 0, called.output
    assert "nats a token, before" in called.output
    made = load_checkpoint(output)
    assert made.config.norm == "post"
    assert made.languages == languages
    assert made.provenance == {"updates": 7, "converted": "post-norm"}
    with pytest.raises(typer.BadParameter, match="output exists already"):
        main(start, output, (sides[0], sides[1]))
    sides[1].write_text("a dog\n", encoding="utf-8")
    with pytest.raises(typer.BadParameter, match=r"has 3 lines but .* has 1;"):
        main(start, tmp_path / "other", (sides[0], sides[1]))
