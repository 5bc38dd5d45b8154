"""Errors of load tests; every message is meant for the user."""

from __future__ import annotations


class LoadError(Exception):
    """A load test cannot be made, or its results cannot be read.

    LoadError
    ├── PlanError        an argument, or a combination of them, makes no sense
    ├── SourceError      the file of texts is missing, empty or not UTF-8
    ├── ServerError      no server answers, or it is not one of ours
    └── ResultsError     a directory of results can't be read or written
    """


class PlanError(LoadError):
    """An argument, or a combination of them, makes no sense. The message names it."""


class SourceError(LoadError):
    """The file of texts is missing, empty or not UTF-8. The message names it."""


class ServerError(LoadError):
    """No server answers at the address, or it is not a Dragoman server."""


class ResultsError(LoadError):
    """A directory of results can't be read or written. The message names it."""
