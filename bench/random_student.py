"""Students with random weights, whose translations vary and have realistic lengths."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from export.layers import NEVER
from model.bundle.config import ModelConfig
from model.bundle.shortlist import Shortlist
from model.evaluation.search import greedy_search
from model.network.transformer import Transformer

_LONGEST = 2  # times the source
_MOST_BIAS, _BISECTIONS = 3.0, 6


def random_student(config: ModelConfig, seed: int = 0) -> Transformer:
    """Weights that make varied translations which end now and then."""
    import torch

    torch.manual_seed(seed)
    model = Transformer(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            unit = parameter.size(-1) ** -0.5
            if name.endswith("norm.weight"):
                parameter.uniform_(0.7, 1.3)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.1)
            elif "query" in name or "key" in name:
                parameter.normal_(0.0, 3.0 * unit)
            else:
                parameter.normal_(0.0, 0.5 * unit)
        # The last network turns each state, or a translation would be one token again and again.
        last, width = list(model.decoder.each_layer())[-1].feed_forward, config.d_model
        turn = torch.linalg.qr(torch.randn(width, width))[0]
        last.inner.weight.normal_(0.0, width**-0.5)
        last.inner.bias.zero_()
        last.outer.weight.copy_(12 * width / config.ffn_dim * turn @ last.inner.weight.T)
        model.output_projection.bias[0] = 1.0
    return model


def end_like_sources(
    model: Transformer, sources: Sequence[Sequence[int]], shortlist: Shortlist
) -> None:
    """Give EOS the bias with which translations are as long as their sources on average.

    Args:
        model: weights from `random_student`.
        sources: token ids of sentences, EOS included.
        shortlist: the tokens that each sentence may produce.
    """
    bias, eos_id = model.output_projection.bias.data, model.config.eos_id
    bias[model.config.pad_id] = NEVER
    least, most = 0.0, _MOST_BIAS
    for _ in range(_BISECTIONS):
        bias[eos_id] = (least + most) / 2
        if mean(lengths(model, sources, shortlist)) > mean(map(len, sources)):
            least = float(bias[eos_id])
        else:
            most = float(bias[eos_id])


def lengths(
    model: Transformer, sources: Sequence[Sequence[int]], shortlist: Shortlist
) -> list[int]:
    """Numbers of tokens of greedy translations, at most twice those of the sources.

    The arguments are those of `end_like_sources`.
    """
    import torch

    found = []
    with torch.inference_mode():
        for source in sources:
            listed = [int(i) for i in shortlist.target_ids(source, [model.config.eos_id])]
            (best,) = greedy_search(
                model, torch.tensor([source]), None, _LONGEST * len(source), lists=[listed]
            )
            found.append(len(best.token_ids) + 1)
    return found
