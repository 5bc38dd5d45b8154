"""Conventions shared by references and exported graphs. Free of torch, for the export."""

NORM_EPSILON = 1e-6
"""Keeps a query of zeros from a division by zero where it becomes a key (`lsh`)."""


def num_local_heads(num_heads: int) -> int:
    """The number of heads of strided attention that look nearby; these are the first ones."""
    return num_heads // 2
