"""Imports a foreign model into a bundle, and proves that it translates alike."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.bundle_writer import ExportOptions, ExportSource, write_bundle
from export.cache_steps import CacheSteps
from export.calibration import caches_in_int8, calibrated_steps
from export.carriers import record_carriers
from export.errors import ExportError
from export.foreign import ForeignModel
from export.huggingface.model_card import licence_of
from export.huggingface.reader import read_huggingface
from export.output_directory import check_output, new_directory
from export.parity import SENTENCES, OnProgress, ParityReport, check_parity, is_english
from export.rounding import rounded_inputs
from export.shortlists import record_agreement, shortlist_from_text
from export.students.files import is_student
from export.students.reader import read_student
from model.bundle.bundle import Bundle
from model.bundle.directions import Directions
from model.bundle.manifest import BundleError, edited_manifest, why_no_language
from model.evaluation.evaluation import choose_search_threads

_log = logging.getLogger("dragoman.import")


@dataclass(frozen=True)
class Imported:
    """Outcome of an import.

    Attributes:
        proof: parity of the bundle's graphs and the imported network; None if no proof was wanted.
        agreement: agreement of that network with another engine that reads the same files; None
            where it isn't installed, or if no proof was wanted.
        reference: the name of that engine.
        directions: the bundle's directions.
        search: the bundle's default search, as `Bundle.search`.
    """

    proof: ParityReport | None
    agreement: Any
    reference: str
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
    num_carrier_sentences: int = 0,
    threads: int = 0,
    on_progress: OnProgress | None = None,
    origin: Mapping[str, Any] | None = None,
    shortlist_from: tuple[Path, Path] | None = None,
) -> Imported:
    """Make a bundle of a foreign model's directory and prove that it translates alike.

    `output` appears whole and proven, or not at all; see `export.exporter.export_checkpoint`.

    Args:
        languages: BCP-47 codes of source and target, or of three languages or more, between which
            the model translates; by default all that the model has.
        sentences: sentences in the source language, of the proof and to measure the steps of 8-bit
            caches on; by default the English `export.parity.SENTENCES`.
        num_sentences: the number of these, from the first on; by default all, and the other engine
            may be compared with more. With 0, the bundle is not proven, which its provenance says,
            and neither its carriers nor steps of 8-bit caches are measured.
        num_carrier_sentences: sentences to measure on which carriers the model copies; by default,
            nothing is measured.
        threads: threads for the proof, as in `export.parity.check_parity`.
        on_progress: called during the proof, as in `export.parity.check_parity`.
        origin: origin of the directory, for the bundle's provenance.
        shortlist_from: files of sentences and of their translations, to make a shortlist from; by
            default the model's own, if it has one.

    Raises:
        ExportError: the model can't be read or isn't supported, `output` is something else than a
            bundle, or the bundle or the network differs from the model.
    """
    options.check(shortlist_from)
    check_output(output)
    _check_languages(languages)
    foreign = _read(path, languages)
    config, model, tokenizer = foreign.config, foreign.model, foreign.tokenizer
    directions = foreign.directions
    source, target = directions.first
    if not directions.is_one:
        options = _named(options, path, origin)
    in_language = sentences is not None or is_english(source)
    measured = sentences or SENTENCES
    sentences = measured[:num_sentences]
    if sentences:
        if not threads:
            _log.info("choosing the number of threads")
        longest = min(config.num_source_positions, config.num_target_positions) - 1
        sources = [[*tokenizer.encode(text)[:longest], config.eos_id] for text in sentences]
        threads = choose_search_threads(model, sources, threads)
    else:
        _log.warning("no proof (--proof-sentences 0): nothing is compared with the model")
    shortlist = foreign.shortlist
    if shortlist_from is not None:
        if not directions.is_one:
            raise ExportError("--shortlist-from is for models of one direction: give --languages")
        shortlist = shortlist_from_text(shortlist_from, tokenizer, config)
    agreement, engine = None, foreign.comparison
    if sentences and engine is not None and engine.is_possible():
        _log.info("comparing the network with that of %s", engine.engine)
        if compared := engine.comparable(sentences, more=num_sentences is None):
            agreement = engine.compare(compared, on_progress)
        else:
            _log.warning("nothing is compared: the vocabulary covers none of the sentences")
    provenance: dict[str, Any] = {
        "imported_from": {"architecture": foreign.architecture, "directory": path.resolve().name}
        | {**foreign.checksums, **(origin or {})}
        | licence_of(path),
        "agreement": agreement and dataclasses.asdict(agreement),
    }
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    cache_steps: CacheSteps = {}
    # One target language is not like another, and prescribed steps leave no room for further ones.
    is_plain = directions.is_one and not foreign.steps
    if sentences and is_plain and caches_in_int8(config, options, in_language=in_language):
        cache_steps = calibrated_steps(model, tokenizer, measured)
    with new_directory(output) as temporary:
        made_from = ExportSource(
            config,
            arrays,
            tokenizer,
            source,
            target,
            provenance,
            alignment_head=foreign.alignment_head,
            search=foreign.search,
            shortlist=shortlist,
            steps=foreign.steps,
            cache_steps=cache_steps,
        )
        if not directions.is_one:
            made_from = dataclasses.replace(made_from, directions=directions)
        _log.info("writing the graphs in %s", options.precision)
        try:
            write_bundle(made_from, options, temporary)
        except ExportError as exc:  # the network's sizes
            raise ExportError(f"{path}: {exc}") from exc
        try:
            bundle = Bundle.load(temporary)
        except BundleError as exc:  # a name or language that the user gave
            raise ExportError(str(exc)) from exc
        proof = None
        steps = foreign.steps if options.precision == "int8" else {}
        if sentences:
            with rounded_inputs(model, steps):
                proof = check_parity(
                    bundle,
                    model,
                    sentences,
                    cache_steps=cache_steps,
                    threads=threads,
                    on_progress=on_progress,
                )
        _record(temporary, proof)
        if sentences and num_carrier_sentences:
            _log.info("measuring what the model copies")
            record_carriers(temporary, model, tokenizer, sentences, num_carrier_sentences)
    reference = engine.engine if engine is not None else "another engine"
    return Imported(proof, agreement, reference, directions, bundle.name, foreign.search)


def _read(path: Path, languages: Sequence[str] | None) -> ForeignModel:
    """The model, in whichever format its files are."""
    reader = read_student if is_student(path) else read_huggingface
    return reader(path, languages)


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


def _named(options: ExportOptions, path: Path, origin: Mapping[str, Any] | None) -> ExportOptions:
    """The options with the model's own name, if no two languages make one."""
    own = str((origin or {}).get("hub", path.resolve().name))
    return dataclasses.replace(options, name=options.name or own.rpartition("/")[2])


def _record(directory: Path, proof: ParityReport | None) -> None:
    """Put the proof and its agreement for the shortlist into the manifest."""
    proven = None
    if proof is not None:
        record_agreement(directory, proof.listed)
        proven = dataclasses.asdict(proof)
        del proven["listed"]
    with edited_manifest(directory) as fields:
        fields["provenance"]["proof"] = proven
