"""A server that can't end quickly. Arguments: a tokenizer's directory, and optionally `thread`.

Hostile readers read its documents. With `thread`, a thread works on a text forever.
"""

import asyncio
import sys
import threading
from pathlib import Path

from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer
from service import process
from service.common.fairness import FairExecutor
from service.models.registry import Registry
from service.observability import logs
from service.observability.metrics import ServerMetrics
from service.server import Server
from tests.integration.servers import any_ports, fake_runner, served
from tests.unit.service.documents.hostile_readers import MODULE


def main(directory: Path, *held: str) -> None:
    """Serve until SIGTERM."""
    logs.configure("info", "json")
    tokenizer = Tokenizer.load(directory / TOKENIZER_FILE)
    settings, metrics = any_ports(drain_seconds=0.2, document_seconds=3600), ServerMetrics()
    registry = Registry([served(fake_runner(tokenizer), tokenizer, settings, metrics)])
    tasks = []

    def make_server() -> Server:
        if "thread" in held:
            for_ever = threading.Event().wait
            tasks.append(asyncio.ensure_future(FairExecutor("markup").run(for_ever, "a client")))
            tasks.append(asyncio.ensure_future(asyncio.to_thread(for_ever)))
        return Server(settings, registry, metrics, MODULE)

    process.run(make_server)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
