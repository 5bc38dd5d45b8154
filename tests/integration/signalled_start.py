"""`dragoman serve` in which signals come at given moments of its start.

    python signalled_start.py SIGNAL:EVENT:TEXT ... serve ...

Each moment is the first one, after those before it, at which Python audits an EVENT whose arguments
contain TEXT. The event "log" is a record with the message TEXT. The thread that loads models stops
there, as if it took forever.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Any

moments: list[tuple[signal.Signals, str, str]] = []


def on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if not moments or event != moments[0][1] or moments[0][2] not in str(arguments):
        return
    number, *_ = moments.pop(0)
    os.kill(os.getpid(), number)
    if threading.current_thread().name == "load":
        threading.Event().wait()


class AuditedRecord(logging.LogRecord):
    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        on_event("log", (self.msg,))


if __name__ == "__main__":
    while ":" in sys.argv[1]:
        name, event, text = sys.argv.pop(1).split(":")
        moments.append((signal.Signals[name], event, text))
    logging.setLogRecordFactory(AuditedRecord)
    sys.addaudithook(on_event)
    from cli.main import app

    app()
