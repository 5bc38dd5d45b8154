"""Low-rank attention: keys and values of n positions become k weighted sums of them.

"Linformer: Self-Attention with Linear Complexity" (Wang et al., 2020, section 4): attention weights
are nearly of low rank, so that softmax(Q (E K)^T) (F V) with learned E and F [k, n] loses little
and costs n * k. The heads of a layer share E and F ("headwise sharing"). A text shorter than the
longest uses their first columns.
"""

from __future__ import annotations

from torch import Tensor


def project_positions(states: Tensor, projection: Tensor, mask: Tensor | None = None) -> Tensor:
    """k weighted sums of the positions of each head.

    Args:
        states: keys or values [B, H, S, K].
        projection: E or F [k, longest], of which the first S columns count.
        mask: boolean, broadcastable to [B, H, S, 1]; positions with False count as zeros, so that
            padding changes nothing.

    Returns:
        [B, H, k, K].
    """
    if mask is not None:
        states = states.masked_fill(~mask, 0.0)
    return projection[:, : states.size(2)] @ states
