"""Readers that follow a command in the first line of a file, for tests of worker processes.

    loop FIFO    computes forever
    wait FIFO    waits forever
    grow         takes all memory
    defect TEXT  raises an error with this text
    kill NUMBER  sends itself a signal
    leave        ends the process

With a FIFO (a named pipe), the process first writes its id into it. Other files are read normally.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
from pathlib import Path

from service.documents import formats
from service.documents.document import Document, DocumentLimits

MODULE = "tests.unit.service.documents.hostile_readers"

_BEGIN_SECONDS = 60.0

load_readers = formats.load_readers


def read_document(file_name: str, data: bytes, limits: DocumentLimits) -> Document:
    """Carry out the command of the file."""
    command, _, argument = data.partition(b"\n")[0].decode(errors="replace").partition(" ")
    if command in ("loop", "wait"):
        Path(argument).write_text(str(os.getpid()))
    match command:
        case "loop":
            for _ in itertools.count():
                pass
        case "wait":
            signal.pause()
        case "grow":
            taken = [bytearray(2**20)]
            while True:
                taken.append(bytearray(2**20))
        case "defect":
            raise RuntimeError(argument)
        case "kill":
            os.kill(os.getpid(), int(argument))
        case "leave":
            os._exit(3)
    return formats.read_document(file_name, data, limits)


class Held:
    """A file that blocks its reader, and the reader's process.

    Args:
        directory: directory for the named pipe.
        command: loop or wait.

    Attributes:
        content: content of the file.
    """

    def __init__(self, directory: Path, command: str = "loop") -> None:
        self._pipe = directory / "pid"
        os.mkfifo(self._pipe)
        self.content = f"{command} {self._pipe}\n".encode()

    def begun(self) -> int:
        """Wait, in a thread, until reading begins; returns a process descriptor for `ended`.

        Raises:
            TimeoutError: reading does not begin, which a blocking open would not notice.
        """
        pipe = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if not select.select([pipe], [], [], _BEGIN_SECONDS)[0]:
                raise TimeoutError("no worker has begun to read the file")
            return os.pidfd_open(int(os.read(pipe, 32)))
        finally:
            os.close(pipe)


def ended(process: int) -> None:
    """Wait until a process has ended, in a thread; takes the descriptor."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.poll()
    os.close(process)
