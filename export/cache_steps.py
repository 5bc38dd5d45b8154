"""Steps of 8-bit attention caches: what a decoder's keys and values are multiples of.

A key or value of channel c is stored as the nearest integer multiple of its step, from -128 to 127
of them. Steps are constants of the graphs, so that an entry can be written before later ones are
known. They are measured on sentences, with a margin for what these do not contain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]

KeyValueSteps: TypeAlias = tuple[Float32, Float32]
"""The steps [D] of keys and of values of one attention block."""

CacheSteps: TypeAlias = Mapping[str, KeyValueSteps]
"""By the names of the decoder's attention blocks: decoder.layers.0.self_attention, say."""
