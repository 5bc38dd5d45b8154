"""The `dragoman` command. One file per subcommand; heavy imports happen when it runs."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

# onnxruntime sends telemetry unless this is set before its import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# gRPC's core writes to standard error by itself; the commands print their own messages.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

if sys.argv[1:2] == ["serve"]:
    # Before the other imports, which take seconds on a busy machine.
    from service.common.signals import end_at_signals

    end_at_signals()

import typer

from cli.attention import attention
from cli.batch.command import batch
from cli.detect import detect
from cli.evaluate import evaluate
from cli.export import export
from cli.import_model import import_model
from cli.keys import keys_app
from cli.languages import languages
from cli.load import load_app
from cli.memory import memory_app
from cli.models import models
from cli.plan.command import plan
from cli.pull import pull
from cli.reload import reload
from cli.score import score
from cli.serve import serve
from cli.train import train
from cli.translate import translate
from cli.translate_file import translate_file

# A warning is a line like an error's, not a place in the source.
warnings.formatwarning = lambda message, *_: f"dragoman: {message}\n"

app = typer.Typer(
    name="dragoman",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # plain tracebacks, of defects only
    # Plain help: rich panels keep the source's line breaks and truncate option names at 80 columns.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import dragoman

        typer.echo(f"dragoman {dragoman.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Machine translation over gRPC: serve models, translate, train your own."""


for command in (
    serve,
    translate,
    translate_file,
    batch,
    score,
    attention,
    models,
    languages,
    detect,
    reload,
    pull,
    train,
    export,
    evaluate,
    plan,
):
    app.command()(command)
app.command("import")(import_model)
app.add_typer(keys_app, name="keys")
app.add_typer(load_app, name="load")
app.add_typer(memory_app, name="memory")

if __name__ == "__main__":
    app()
