"""Networks have names, and their costs are put beside the first one's."""

from __future__ import annotations

import pytest
import typer

from bench.studies.networks import (
    NETWORKS,
    NetworkCost,
    compare_networks,
    networks_table,
    parse_network,
)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_name_is_a_network(name: str) -> None:
    config = parse_network(name)
    layers = f"{config.num_encoder_layers}+{config.num_decoder_layers}"
    assert f"{config.d_model}x{layers}@{config.vocab_size}" == name
    assert config.head_dim == 64


@pytest.mark.parametrize("name", ["base", "256x6@8000", "100x6+2@8000"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"WIDTHx|multiple of 64"):
        parse_network(name)


def test_costs_are_relative_to_the_first_network() -> None:
    first = NetworkCost(1_000_000, 1_000_000, 0.5, 0.001, {1: 0.0005, 32: 0.002})
    second = NetworkCost(2_500_000, 3_000_000, 1.0, 0.002, {1: 0.0005, 32: 0.003})
    table = networks_table({"a": first, "b": second})
    assert table[2] == "| a | 1.0 million | 1 MB | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 |"
    assert table[3] == "| b | 2.5 million | 3 MB | 2.00 | 2.00 | 1.00 | 1.50 | 1.08 |"


def test_a_network_is_trained_and_served() -> None:
    costs = compare_networks(["64x1+1@2000"], turns=1)
    (cost,) = costs.values()
    assert cost.parameters > 2000 * 64
    assert cost.bundle_bytes > cost.parameters
    assert cost.train_seconds > 0.0
    assert cost.encode_seconds > 0.0
    assert all(cost.step_seconds[rows] > 0.0 for rows in (1, 32))
