"""Errors of an export."""

from __future__ import annotations


class ExportError(ValueError):
    """A checkpoint can't be exported, or its bundle failed the parity check.

    The message names the field, file or sentence that is the cause, and what to do.
    """
