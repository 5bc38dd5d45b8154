"""Export of a checkpoint to a bundle that passed the parity check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from export.bundle_writer import ExportOptions, ExportSource, write_bundle
from export.cache_steps import CacheSteps
from export.calibration import caches_in_int8, calibrated_steps
from export.carriers import record_carriers
from export.output_directory import check_output, new_directory
from export.parity import SENTENCES, OnProgress, ParityReport, check_parity, is_english
from export.shortlists import record_agreement, shortlist_for
from model.bundle.bundle import Bundle
from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer
from model.network.checkpoint import checkpoint_folder, load_checkpoint


def export_checkpoint(
    checkpoint: Path,
    output: Path,
    options: ExportOptions,
    sentences: Sequence[str] | None = None,
    *,
    num_carrier_sentences: int = 0,
    threads: int = 0,
    on_progress: OnProgress | None = None,
    shortlist_from: tuple[Path, Path] | None = None,
) -> ParityReport:
    """Export a checkpoint to a bundle and check the bundle's parity with the checkpoint.

    `output` is only written if the check passes. An older bundle there is replaced as a whole,
    unless its directory contains other files.

    Args:
        checkpoint: a directory that `model.network.checkpoint.save_checkpoint` wrote, or a run's.
        sentences: sentences in the source language, of the parity check and to measure the steps
            of 8-bit caches on; by default the English `export.parity.SENTENCES`.
        num_carrier_sentences: sentences to measure on which carriers the model copies; by default,
            nothing is measured.
        threads: threads for the parity check, as in `export.parity.check_parity`.
        on_progress: called by the parity check, as in `export.parity.check_parity`.
        shortlist_from: files of sentences and of their translations, to make a shortlist from; by
            default, the training's shortlist if there is one.

    Raises:
        CheckpointError: the checkpoint can't be read.
        ExportError: the model can't be exported, `output` is not a bundle, or the parity check
            failed.
    """
    options.check(shortlist_from)
    check_output(output)
    loaded = load_checkpoint(checkpoint)
    folder = checkpoint_folder(checkpoint)
    tokenizer = folder / TOKENIZER_FILE
    shortlist = shortlist_for(folder, shortlist_from, Tokenizer.load(tokenizer), loaded.config)
    in_language = sentences is not None or is_english(loaded.languages["source"])
    sentences = sentences or SENTENCES
    cache_steps: CacheSteps = {}
    if caches_in_int8(loaded.config, options, in_language=in_language):
        cache_steps = calibrated_steps(loaded.model, loaded.tokenizer, sentences)
    source = ExportSource(
        loaded.config,
        {name: tensor.numpy() for name, tensor in loaded.model.state_dict().items()},
        tokenizer,
        loaded.languages["source"],
        loaded.languages["target"],
        loaded.provenance,
        loaded.alignment_head,
        loaded.trained_length,
        shortlist=shortlist,
        cache_steps=cache_steps,
    )
    with new_directory(output) as directory:
        write_bundle(source, options, directory)
        bundle = Bundle.load(directory)
        report = check_parity(
            bundle,
            loaded.model,
            sentences,
            cache_steps=cache_steps,
            threads=threads,
            on_progress=on_progress,
        )
        record_agreement(directory, report.listed)
        if num_carrier_sentences:
            record_carriers(
                directory, loaded.model, loaded.tokenizer, sentences, num_carrier_sentences
            )
        return report
