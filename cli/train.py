"""`dragoman train`: trains a checkpoint from a recipe and parallel text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.exits import fail, fail_without
from cli.options import Threads
from cli.progress import log_to_standard_error


def train(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a TOML file.")],
    data_root: Annotated[
        Path | None,
        typer.Option(help="Directory of the recipe's files.", envvar="DRAGOMAN_DATA_ROOT"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Directory of the run, instead of the recipe's.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Threads = 0,
) -> None:
    """Train a model. The same command resumes an interrupted run.

    Several GPUs: `torchrun --nproc-per-node N -m cli.main train RECIPE`.
    """
    import os
    from datetime import timedelta

    from model.data.recipe import RecipeError, check_files, load_recipe
    from model.training.memory import limit_kernel_caches

    try:  # before PyTorch, which takes seconds to import
        loaded = load_recipe(recipe, data_root=data_root)
        check_files(loaded)
    except RecipeError as exc:
        fail(str(exc))
    if output is not None:
        loaded = loaded.model_copy(update={"output": output.resolve()})
    limit_kernel_caches()
    try:
        import torch
        from torch import distributed
    except ModuleNotFoundError:
        fail_without("PyTorch", "train")

    from model.bundle.tokenizer import TokenizerError
    from model.data.corpus import CorpusError
    from model.network.checkpoint import CheckpointError
    from model.training.run_state import TrainingError
    from model.training.training import Trainer

    log_to_standard_error("%(asctime)s %(levelname)s %(message)s")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # torchrun sets it
        # The other processes wait while the first one makes the vocabulary or validates.
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(backend, timeout=timedelta(hours=2))
    try:
        final = Trainer(loaded, device=device, threads=threads).run()
    except (CorpusError, TokenizerError, CheckpointError, TrainingError) as exc:
        fail(str(exc))
    except OSError as exc:
        fail(f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc))
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command resumes from the last saved state", err=True)
        raise typer.Exit(130) from None
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
    typer.echo(f"final checkpoint: {final}")
