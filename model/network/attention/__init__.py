"""Kinds of attention for long texts, with fewer pairs of positions.

Full attention (Vaswani et al., 2017, section 3.2) costs time with the square of the length. Each
module here is one way to avoid that, as a reference to be read next to its paper: a mask over all
pairs of positions, or a matrix product. A reference costs as much as full attention; the exported
graphs (`export.attention`) compute the same without the masked pairs.

    local       positions up to a fixed distance                    Qiu et al., 2020
    strided     half of the heads those, half every n-th position   Child et al., 2019
    lsh         positions with a similar query                      Kitaev et al., 2020
    linformer   k weighted sums of all positions                    Wang et al., 2020
"""
