"""The directions that an imported model translates: all, or the chosen ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from export.errors import ExportError
from export.huggingface.directory import ModelDirectory
from export.huggingface.vocabularies import Vocabularies
from model.bundle.directions import Directions
from model.bundle.languages import (
    Language,
    LanguageError,
    find_language,
    is_common_code,
    language_tags,
)
from model.bundle.manifest import why_no_language

# opus-mt-en-de, opus-mt-tc-big-gmw-en, marian-en-de; and any name that ends with two known codes.
_CODES = r"([a-z]{2,3}|[a-z]{3}(?:_[a-z]{3})+)"
_NAME = re.compile(
    r"(opus-mt-(?:tc-(?:base|big|bible-big)-)?|opus-mt_tiny_|marian-|(?!opus-mt-)(?:.+-)?)"
    rf"{_CODES}-{_CODES}"
)
# Several languages as one: cat+oci+spa, or cat_oci_spa, which is no language with script or region.
_SEVERAL = re.compile(r"[a-zA-Z_-]+(?:\+[a-zA-Z_-]+)+|[a-z]{3}(?:_[a-z]{3})+")


def read_directions(
    directory: ModelDirectory, vocabularies: Vocabularies, wanted: Sequence[str] | None = None
) -> Directions:
    """The directions to import.

    Args:
        wanted: BCP-47 codes of a source and a target, or of three or more languages; None for all
            that the model has.

    Raises:
        ExportError: the model has no such language, or its files don't say which it has.
    """
    codes = None if wanted is None else tuple(dict.fromkeys(wanted))
    if codes is not None and len(codes) < 2:
        raise ExportError(f"--languages has to name two languages or more, not {wanted}")
    try:
        if codes is not None:
            _check_wanted(directory, vocabularies, codes)
            if len(codes) == 2:
                return Directions.one(*codes)
        if vocabularies.opens_target:
            return _between_all(vocabularies, codes)
        if codes is None:
            return _from_files(directory, vocabularies)
        return _among(directory, vocabularies, codes)
    except LanguageError as exc:
        raise ExportError(f"{directory.path}: {exc}; give --languages") from exc


def _check_wanted(
    directory: ModelDirectory, vocabularies: Vocabularies, codes: Sequence[str]
) -> None:
    """Refuses one language under two codes, and many languages of a model that can't tell them.

    Raises:
        ExportError: as said.
        LanguageError: a model between all languages lacks one.
    """
    names = [Language.parse(code).tag for code in codes]
    if vocabularies.opens_target:
        names = [find_language(code, _token_ids(vocabularies)) for code in codes]
    for number, name in enumerate(names):
        if name in names[:number]:
            first = codes[names.index(name)]
            raise ExportError(f"--languages names one language twice: {first} and {codes[number]}")
    if len(codes) > 2 and directory.config.get("model_type") == "bart":
        raise ExportError(
            f"{directory.path}: BART has no tokens of languages, and so one direction: "
            f"--languages has to name two, not {len(codes)}"
        )


def _token_ids(vocabularies: Vocabularies) -> dict[str, int]:
    tags = language_tags(vocabularies.language_ids)
    return {tag: vocabularies.language_ids[name] for tag, name in tags.items()}


def _between_all(vocabularies: Vocabularies, codes: Sequence[str] | None) -> Directions:
    token_ids = _token_ids(vocabularies)
    if codes is not None:
        found = dict.fromkeys(find_language(code, token_ids) for code in codes)
        token_ids = {code: token_ids[code] for code in found}
    languages = tuple(token_ids)
    return Directions(languages, languages, token_ids, "source", "target")


def _from_files(directory: ModelDirectory, vocabularies: Vocabularies) -> Directions:
    sources, targets = languages_of(directory)
    token_ids = _token_ids(vocabularies)
    if token_ids:
        return Directions(sources, tuple(token_ids), token_ids, "target")
    if len(targets) > 1:
        raise LanguageError(f"it has no tokens for its targets, {', '.join(targets)}")
    return Directions(sources, targets)


def _among(
    directory: ModelDirectory, vocabularies: Vocabularies, codes: Sequence[str]
) -> Directions:
    """Directions of a Marian model, with one language or a group of languages on each side."""
    given_sources, given_targets = languages_of(directory)
    token_ids = _token_ids(vocabularies)
    if not token_ids:
        target = find_language(given_targets[0], codes)
        return Directions(tuple(code for code in codes if code != target), (target,))
    sources = tuple(find_language(source, codes) for source in given_sources if _has(source, codes))
    are_listed = len(sources) > 1  # and can be targets, too
    if not sources:  # a group, whose members no file lists
        sources = tuple(code for code in codes if not _has(code, token_ids))
    others = [c for c in codes if c not in sources or (are_listed and _has(c, token_ids))]
    targets = tuple(dict.fromkeys(find_language(code, token_ids) for code in others))
    if not targets:
        raise LanguageError(f"it translates into none of {', '.join(codes)}")
    chosen = {code: token_ids[code] for code in targets}
    return Directions(sources or targets, targets, chosen, "target")  # both are one group


def _has(code: str, names: Iterable[str]) -> bool:
    try:
        find_language(code, names)
    except LanguageError as exc:
        return bool(exc.choices)
    return True


def languages_of(directory: ModelDirectory) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sources and targets of a model, as its files say: one, a group's code, or several of each.

    Raises:
        ExportError: they don't.
    """
    fields = directory.tokenizer
    source, target = fields.get("source_lang"), fields.get("target_lang")
    if isinstance(source, str) and isinstance(target, str):
        return _each(source), _each(target)
    names = (directory.path.resolve().name, str(directory.config.get("_name_or_path", "")))
    for name in names:
        found = _NAME.fullmatch(name.rpartition("/")[2])
        if found is None:
            continue
        family, *codes = found.groups()
        # Other names can end with two short words. In OPUS-MT's, these can be groups (gmw, mul).
        if family.startswith(("opus-mt", "marian-")) or all(map(is_common_code, codes)):
            return _each(codes[0]), _each(codes[1])
    raise ExportError(
        f"{directory.path} does not say which languages it translates: give --languages en,de (for "
        f"example), source first"
    )


def _each(code: str) -> tuple[str, ...]:
    """The languages of a code, which can be several languages' in one.

    Raises:
        LanguageError: one is no code.
    """
    codes = re.split(r"[+_]", code) if _SEVERAL.fullmatch(code) else [code]
    tags = tuple(dict.fromkeys(Language.parse(each).tag for each in codes))
    for tag in tags:
        if why := why_no_language(tag):
            raise LanguageError(f"its files name the language {code[:64]!r}, which {why}")
    return tags
