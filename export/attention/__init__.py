"""The encoder's kinds of attention as graphs that do not compute masked pairs.

The references, and the papers, are in `model.network.attention`. Every kind promises the same bits
for a source alone, in a batch and padded. Sums whose order follows the padded length would break
that, so they run over blocks of a fixed size here, or over a source's own length.
"""
