"""What can go wrong between a checkpoint and a bundle."""

from __future__ import annotations


class ExportError(ValueError):
    """A checkpoint cannot be exported, or its bundle does not agree with it.

    The message says which field, file or sentence is the cause and what to do.
    """
