"""The `dragoman` command. One file a subcommand; each imports what is heavy when it runs."""

from __future__ import annotations

import os

# onnxruntime reports usage to its makers unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# gRPC's core writes to standard error by itself; what matters of it we say, in our own words.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import typer

from cli.evaluate import evaluate
from cli.export import export
from cli.load import load_app
from cli.models import models
from cli.serve import serve
from cli.train import train
from cli.translate import translate

app = typer.Typer(
    name="dragoman",
    help="Machine translation over gRPC: serve models, translate, train your own.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback is for a defect, and then in plain
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serve, translate, models, train, export, evaluate):
    app.command()(command)
app.add_typer(load_app, name="load")

if __name__ == "__main__":
    app()
