"""A server with a model that hangs at its first step. Argument: a tokenizer's directory."""

import logging
import sys
from pathlib import Path

from model.bundle.tokenizer import TOKENIZER_FILE, Tokenizer
from service import process
from service.domain.plan import StepOutput, StepPlan
from service.models.registry import Registry
from service.observability import logs
from service.observability.metrics import ServerMetrics
from service.server import Server
from tests.fake_runner import FakeRunner
from tests.integration.servers import any_ports, fake_runner, served


class HangingRunner(FakeRunner):
    """Prints a line when it hangs."""

    def execute(self, plan: StepPlan) -> StepOutput:
        """Block forever."""
        logging.getLogger(__name__).warning("hanging")
        return super().execute(plan)


def main(directory: Path) -> None:
    """Serve until SIGTERM."""
    logs.configure("info", "json")
    tokenizer = Tokenizer.load(directory / TOKENIZER_FILE)
    runner = HangingRunner(fake_runner(tokenizer).limits)
    runner.hold()
    settings, metrics = any_ports(drain_seconds=0.1), ServerMetrics()
    registry = Registry([served(runner, tokenizer, settings, metrics)])
    process.run(lambda: Server(settings, registry, metrics))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
