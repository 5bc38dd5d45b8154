"""Glossaries: those of the server, and those that clients make, each for its owner."""

from __future__ import annotations

from model.bundle.languages import primary_subtag
from service.calls.backend import Backend
from service.calls.call_context import current_call
from service.calls.languages import reachable_targets
from service.glossaries.glossary import NO_GLOSSARY, Glossary
from service.glossaries.store import is_glossary_id


def glossary_owner() -> str:
    """The owner of the glossaries that the caller makes: its tenant or key; "" for everyone."""
    return current_call().grant.owner


async def find_glossary(backend: Backend, name: str, source: str, target: str) -> Glossary:
    """A glossary of the server by its name, or one of the caller's by its id.

    Args:
        name: name or id; "" for no glossary.
        source: BCP-47 code of the language of the texts.
        target: BCP-47 code of the language of the translations.

    Raises:
        NotFoundError: there is no such glossary.
        InvalidArgumentError: the glossary is for other languages.
    """
    if not name:
        return NO_GLOSSARY
    if is_glossary_id(name):
        return await backend.glossary_store.find(glossary_owner(), name, source, target)
    return await backend.glossaries.get(name, source, target)


def is_pair_served(backend: Backend, source: str, target: str) -> bool:
    """Whether the caller can translate between two languages; region and script don't count.

    Raises UnavailableError.
    """
    start, end = primary_subtag(source), primary_subtag(target)
    served = reachable_targets(backend).items()
    return any(
        primary_subtag(known) == start and end in map(primary_subtag, ends)
        for known, ends in served
    )
