"""Glossaries: those of the server, and those that clients make, each for its owner."""

from __future__ import annotations

from service.calls.backend import Backend
from service.calls.call_context import current_call
from service.calls.languages import reachable_targets
from service.text.glossaries.glossary import NO_GLOSSARY, Glossary
from service.text.glossaries.store import is_glossary_id


def glossary_owner() -> str:
    """The owner of the glossaries that the caller makes: its tenant or key; "" for everyone."""
    return current_call().grant.owner


async def find_glossary(backend: Backend, name: str, source: str, target: str) -> Glossary:
    """The glossary of a pair of languages with a name, or with an id that the caller owns.

    Raises:
        NotFoundError: there is none.
        InvalidArgumentError: it is of other languages.
    """
    if not name:
        return NO_GLOSSARY
    if is_glossary_id(name):
        return await backend.glossary_store.find(glossary_owner(), name, source, target)
    return await backend.glossaries.get(name, source, target)


def is_pair_served(backend: Backend, source: str, target: str) -> bool:
    """Whether the caller can translate between two languages, whatever their region or script.

    Raises UnavailableError.
    """
    wanted = _base(source), _base(target)
    served = reachable_targets(backend).items()
    return any((_base(start), _base(end)) == wanted for start, ends in served for end in ends)


def _base(code: str) -> str:
    return code.partition("-")[0].lower()
