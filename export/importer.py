"""From a foreign model's files to a bundle that is proven to translate alike."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.bundle_writer import ExportOptions, ExportSource, write_bundle
from export.errors import ExportError
from export.exporter import check_output, new_directory
from export.huggingface.architectures import family_of, read_config
from export.huggingface.comparison import (
    TransformersComparison,
    can_compare,
    compare_with_transformers,
)
from export.huggingface.directions import read_directions
from export.huggingface.directory import ModelDirectory
from export.huggingface.generation import check_default_search, default_search
from export.huggingface.model_card import licence_of
from export.huggingface.vocabularies import read_all_vocabularies, read_vocabularies
from export.huggingface.weights import read_model
from export.marian.configuration import is_marian, refuse_binary
from export.marian.directory import MarianDirectory
from export.parity import SENTENCES, OnProgress, ParityReport, check_parity
from model.bundle.bundle import Bundle
from model.bundle.directions import Directions
from model.bundle.manifest import MANIFEST_FILE, BundleError, why_no_language
from model.evaluation.evaluation import choose_search_threads

_log = logging.getLogger("dragoman.import")


@dataclass(frozen=True)
class Imported:
    """Outcome of an import.

    Attributes:
        proof: of the bundle's graphs, against the imported network; None if none was wanted.
        agreement: of that network with `transformers`; None where it isn't installed, or if no
            proof was wanted.
        directions: the bundle's directions.
        name: the bundle's name.
        search: of the bundle, as `Bundle.search`.
    """

    proof: ParityReport | None
    agreement: TransformersComparison | None
    directions: Directions
    name: str
    search: Mapping[str, Any]


def import_directory(
    path: Path,
    output: Path,
    options: ExportOptions,
    languages: Sequence[str] | None = None,
    sentences: Sequence[str] | None = None,
    *,
    num_sentences: int | None = None,
    threads: int = 0,
    on_progress: OnProgress | None = None,
    origin: Mapping[str, Any] | None = None,
) -> Imported:
    """Make a bundle of a Hugging Face or Marian directory and prove that it translates alike.

    `output` appears whole and proven, or not at all; see `export.exporter.export_checkpoint`.

    Args:
        path: the directory.
        output: the bundle's directory.
        options: precision and names.
        languages: BCP-47 codes of source and target, or of three languages or more, between which
            the model translates; by default all that the model has.
        sentences: to prove it on; by default `export.parity.SENTENCES`.
        num_sentences: the number of these, from the first on; by default all. With 0, the bundle is
            not proven, which its provenance says.
        threads: of the proof, as in `export.parity.check_parity`.
        on_progress: likewise.
        origin: where the directory is from, for the bundle's provenance.

    Raises:
        ExportError: the model can't be read or isn't supported, `output` is something else than a
            bundle, or the bundle or the network differs from the model.
    """
    options.check()
    check_output(output)
    _check_languages(languages)
    _log.info("reading the configuration and the vocabularies")
    directory = _read_directory(path)
    family = family_of(directory)
    vocabularies = read_all_vocabularies(directory)
    directions = read_directions(directory, vocabularies, languages)
    source, target = directions.first
    if directions.is_one:
        vocabularies = read_vocabularies(directory, source, target)
    config = read_config(directory, vocabularies.num_pieces, vocabularies.unk_id)
    tokenizer = vocabularies.tokenizer(config)
    if not directions.is_one:
        options = _named(options, directory, origin)
        prefix_ids = directions.prefix_ids(source, target)
        tokenizer = tokenizer.between(prefix_ids, directions.start_ids(target))
    num_start = len(tokenizer.target.start_ids)
    search = default_search(directory, num_start)
    check_default_search(directory, search, config, num_start)
    _log.info("reading and converting the weights: %s", family.name)
    model = read_model(directory, config)
    sentences = (sentences or SENTENCES)[:num_sentences]
    if sentences:
        if not threads:
            _log.info("choosing the number of threads")
        longest = min(config.num_source_positions, config.num_target_positions) - 1
        sources = [[*tokenizer.encode(text)[:longest], config.eos_id] for text in sentences]
        threads = choose_search_threads(model, sources, threads)
    else:
        _log.warning("no proof (--proof-sentences 0): nothing is compared with the model")
    agreement = None
    if sentences and can_compare() and not isinstance(directory, MarianDirectory):
        _log.info("comparing the network with that of transformers")
        agreement = compare_with_transformers(
            path,
            model,
            tokenizer,
            sentences,
            vocabularies.language_ids,
            on_progress=on_progress,
        )
    provenance: dict[str, Any] = {
        "imported_from": {"architecture": family.name, "directory": path.resolve().name}
        | {**directory.checksums(), **(origin or {})}
        | licence_of(path),
        "agreement": agreement and dataclasses.asdict(agreement),
    }
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    with new_directory(output) as temporary:
        made_from = ExportSource(
            config, arrays, tokenizer, source, target, provenance, search=search
        )
        if not directions.is_one:
            made_from = dataclasses.replace(made_from, directions=directions)
        _log.info("writing the graphs in %s", options.precision)
        write_bundle(made_from, options, temporary)
        try:
            bundle = Bundle.load(temporary)
        except BundleError as exc:  # a name or language that the user gave
            raise ExportError(str(exc)) from exc
        proof = None
        if sentences:
            proof = check_parity(bundle, model, sentences, threads=threads, on_progress=on_progress)
        _record(temporary / MANIFEST_FILE, proof)
    return Imported(proof, agreement, directions, bundle.name, search)


def _check_languages(languages: Sequence[str] | None) -> None:
    """Refuse what no bundle can have, before any file is read."""
    seen = set[str]()
    for code in languages or ():
        if code.lower() in seen:
            raise ExportError(f"--languages names {code!r} twice")
        seen.add(code.lower())
        # A source and a target are taken as they are; of more, the model may have its own names.
        if len(languages or ()) == 2 and (why := why_no_language(code)):
            raise ExportError(f"--languages: {code!r} {why}")


def _named(
    options: ExportOptions, directory: ModelDirectory, origin: Mapping[str, Any] | None
) -> ExportOptions:
    """With the model's own name, where no two languages make one."""
    own = str((origin or {}).get("hub", directory.path.resolve().name))
    return dataclasses.replace(options, name=options.name or own.rpartition("/")[2])


def _read_directory(path: Path) -> ModelDirectory:
    """The model's files, in whichever format they are."""
    refuse_binary(path)
    return MarianDirectory.read(path) if is_marian(path) else ModelDirectory.read(path)


def _record(manifest: Path, proof: ParityReport | None) -> None:
    fields = json.loads(manifest.read_text(encoding="utf-8"))
    fields["provenance"]["proof"] = proof and dataclasses.asdict(proof)
    text = json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
    manifest.write_text(text, encoding="utf-8")
