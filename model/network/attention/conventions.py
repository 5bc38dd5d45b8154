"""Conventions shared by references and exported graphs. Free of torch, for the export."""

NORM_EPSILON = 1e-6
"""Keeps a query of zeros from a division by zero where it becomes a key (`lsh`)."""


def num_local_heads(num_heads: int) -> int:
    """How many of the heads of strided attention, the first ones, look nearby."""
    return num_heads // 2
