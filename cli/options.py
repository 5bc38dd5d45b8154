"""Command-line options of several subcommands."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from cli.exits import describe, fail

if TYPE_CHECKING:
    from dragoman.client import AsyncClient, Client, Glossary
    from dragoman.tls import Tls

TlsArgument: TypeAlias = "Tls | None"

# As in `dragoman.addresses`, which imports gRPC: too slow for --help.
DEFAULT_SERVER = "127.0.0.1:50051"


def _check_server(text: str) -> str:
    from dragoman.addresses import server_address

    try:
        return server_address(text)
    except ValueError as exc:
        fail(f"--server: {exc}", 2)


ApiKey = Annotated[
    str,
    typer.Option(
        metavar="KEY",
        help="An API key for the server. Other users of this machine see options in the list of "
        "processes: prefer the variable.",
        envvar="DRAGOMAN_API_KEY",
        show_default=False,
    ),
]


Server = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="The server; dns:///NAME:PORT balances calls over all addresses of NAME.",
        envvar="DRAGOMAN_SERVER",
        callback=_check_server,
    ),
]

ProofSentences = Annotated[
    int | None,
    typer.Option(
        help="Number of the sentences that prove the import; 0 proves nothing, which the bundle "
        "records.",
        min=0,
        show_default="all",
    ),
]

Threads = Annotated[
    int, typer.Option(help="CPU threads; 0 measures the fastest number on this machine.", min=0)
]

CarrierSentences = Annotated[
    int,
    typer.Option(
        help="Sentences to measure on which stand-ins for codes and numbers the model copies; "
        "0 measures nothing.",
        min=0,
    ),
]

Precision = Annotated[str, typer.Option(help="fp32 or int8 for CPUs, fp16 for GPUs.")]
BundleName = Annotated[
    str | None, typer.Option(help="The model's name in requests.", show_default="en-de, say")
]
BundleVersion = Annotated[str, typer.Option(help="Version of the bundle, your choice.")]
TopK = Annotated[
    int,
    typer.Option(help="Candidate tokens of a step by default; a beam gets twice its size.", min=1),
]

SHORTLIST_HELP = (
    "Files of sentences and of their translations, one a line, to make a shortlist from: the "
    "target tokens that a sentence may produce, which makes processors faster."
)

SourceLanguage = Annotated[
    str, typer.Option("--from", metavar="CODE", help="Language of the texts, such as en.")
]
TargetLanguage = Annotated[
    str, typer.Option("--to", metavar="CODE", help="Language of the translations, such as de.")
]
ModelName = Annotated[
    str, typer.Option(metavar="NAME", help="Name of a model, from `dragoman models`.")
]
CallTimeout = Annotated[
    float, typer.Option("--timeout", help="Time limit of a call, in seconds.", min=0.001)
]
BeamSize = Annotated[
    int | None,
    typer.Option(help="Hypotheses searched in parallel; 1 is greedy. Default: the model's."),
]

AllowPivot = Annotated[
    bool | None,
    typer.Option(
        "--pivot/--no-pivot",
        help="Translate through a third language where no model translates directly.",
        show_default=False,
    ),
]

GlossaryFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Terms and their translations, with a tab between them. A translation may be a list "
        "of accepted forms with | between them.",
    ),
]

GlossaryName = Annotated[
    str, typer.Option(metavar="NAME", help="Name of a glossary of the server.")
]

MemoryName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Name of a translation memory of the server, whose translations come first.",
    ),
]

Verbatim = Annotated[
    bool,
    typer.Option(help="Keep placeholders, URLs, numbers and the like, or leave them to the model."),
]


def _check_line_breaks(value: str | None) -> str | None:
    if value not in (None, "keep", "join", "auto"):
        fail(f"--line-breaks: must be keep, join or auto, not {value!r}", 2)
    return value


AdaptCase = Annotated[
    bool, typer.Option(help="Translate CAPITALS and Title Case in another letter case.")
]

LineBreaks = Annotated[
    str | None,
    typer.Option(
        metavar="keep|join|auto",
        help="Meaning of a line break in a text: the end of a sentence, a space, or a space where "
        "the text is wrapped at one width. Default: as the format has them, keep for plain text.",
        callback=_check_line_breaks,
    ),
]


def _read_glossary(path: Path | None, name: str) -> Glossary | None:
    """The glossary of the options; fails if it can't be read."""
    from dragoman.client import Glossary

    if path is None:
        return Glossary(name=name) if name else None
    try:
        return replace(Glossary.read(path), name=name)
    except (OSError, ValueError) as exc:
        fail(f"--glossary: {exc}")


def _call_options(
    target: TargetLanguage = "",
    model: ModelName = "",
    beam_size: BeamSize = None,
    allow_pivot: AllowPivot = None,
    glossary: GlossaryFile = None,
    glossary_name: GlossaryName = "",
    memory: MemoryName = "",
    verbatim: Verbatim = True,
    adapt_case: AdaptCase = True,
    line_breaks: LineBreaks = None,
) -> dict[str, Any]:
    from dragoman.client import Search, VerbatimKinds

    return dict(
        target=target,
        model=model,
        search=Search(beam_size=beam_size),
        allow_pivot=allow_pivot,
        glossary=_read_glossary(glossary, glossary_name),
        memory=memory,
        verbatim=None if verbatim else VerbatimKinds.none(),
        adapt_letter_case=None if adapt_case else False,
        line_breaks=line_breaks,
    )


def with_call_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a translation.

    The command gets them as `options`: arguments of `dragoman.client.Client.translate`.
    """
    return _with_options(command, "options", _call_options)


def as_json(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call as JSON values, to see whether they have changed."""
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in arguments.items()
    }


def _tls(
    tls: Annotated[
        bool, typer.Option("--tls", help="Connect by TLS.", envvar="DRAGOMAN_USE_TLS")
    ] = False,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--ca",
            metavar="FILE",
            help="Certificates of the authorities to trust (PEM); implies --tls.",
            envvar="DRAGOMAN_CA_FILE",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            "--cert",
            metavar="FILE",
            help="Own certificate (PEM), for servers that ask for one; implies --tls.",
            envvar="DRAGOMAN_CERT_FILE",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="Private key of --cert (PEM).",
            envvar="DRAGOMAN_KEY_FILE",
        ),
    ] = None,
    tls_server_name: Annotated[
        str,
        typer.Option(
            "--server-name",
            metavar="NAME",
            help="Name in the server's certificate, if its address is another; implies --tls.",
            envvar="DRAGOMAN_SERVER_NAME",
        ),
    ] = "",
) -> TlsArgument:
    if not (tls or tls_ca or tls_cert or tls_key or tls_server_name):
        return None
    from dragoman.tls import Tls

    try:
        chosen = Tls(str(tls_ca or ""), str(tls_cert or ""), str(tls_key or ""), tls_server_name)
        chosen.credentials()  # for its checks of the files
    except ValueError as exc:
        fail(f"--tls: {str(exc).removeprefix('tls: ')}", 2)
    return chosen


def with_tls(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of TLS, which it gets as `tls`: `dragoman.Tls` or None."""
    return _with_options(command, "tls", _tls)


@dataclass(frozen=True)
class ServerAccess:
    """A server, and how to reach it.

    Attributes:
        address: HOST:PORT, or another address that gRPC knows.
        api_key: "" without one.
        tls: TLS options; None for plain text.
    """

    address: str
    api_key: str
    tls: TlsArgument

    def async_client(self, timeout: float) -> AsyncClient:
        """A client whose calls take at most `timeout` seconds. The caller closes it."""
        from dragoman.client import AsyncClient

        return AsyncClient(self.address, timeout=timeout, api_key=self.api_key, tls=self.tls)

    @contextlib.contextmanager
    def client(self, timeout: float = 60.0) -> Iterator[Client]:
        """A client; a call that fails, or takes over `timeout` seconds, ends the command."""
        from dragoman.client import Client, TranslationError

        try:
            with Client(
                self.address, timeout=timeout, api_key=self.api_key, tls=self.tls
            ) as client:
                yield client
        except TranslationError as exc:
            fail(describe(self.address, exc))
        except ValueError as exc:  # an argument that no server accepts
            fail(str(exc), 2)


def with_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a server, which it gets as `server`: a `ServerAccess`."""

    def access(
        server: Server = DEFAULT_SERVER, api_key: ApiKey = "", tls: TlsArgument = None
    ) -> ServerAccess:
        return ServerAccess(server, api_key, tls)

    return _with_options(command, "server", with_tls(access))


def _with_options(
    command: Callable[..., Any], argument: str, make: Callable[..., Any]
) -> Callable[..., Any]:
    """A command with the options of `make` in place of an argument, which `make` returns."""
    options = {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(make, eval_str=True).parameters.items()
    }

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        made = make(**{name: given.pop(name) for name in options})
        return command(**given, **{argument: made})

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != argument]
    run.__annotations__ = {}  # typer would resolve the command's own, `argument` among them
    run.__signature__ = inspect.Signature([*own, *options.values()])  # type: ignore[attr-defined]
    return run
