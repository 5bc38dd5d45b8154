import io
import json
import logging
import os
import threading

from service.observability import logs


def written(log_format: str, level: str, log: logging.Logger) -> list[str]:
    stream = io.StringIO()
    logs.configure(level, log_format, stream)
    log.debug("too little")
    log.warning("two\nlines %d", 7, extra={"seconds": 0.5, "name_of": "ü"})
    try:
        raise ValueError("inner")
    except ValueError:
        log.exception("failed")
    logs.close()
    return stream.getvalue().splitlines()


def test_json_is_one_object_a_line(root: logging.Logger) -> None:
    first, second = map(json.loads, written("json", "info", logging.getLogger("a.b")))
    assert first["message"] == "two\nlines 7"
    assert (first["level"], first["logger"]) == ("warning", "a.b")
    assert (first["seconds"], first["name_of"]) == (0.5, "ü")
    assert first["time"].endswith("Z")
    assert "request_id" not in first
    assert "ValueError: inner" in second["exception"]


def test_the_request_s_id_is_on_every_line_of_its_task(root: logging.Logger) -> None:
    token = logs.request_id.set("r-1")
    try:
        lines = written("json", "info", logging.getLogger("a.b"))
        text = written("text", "info", logging.getLogger("a.b"))
    finally:
        logs.request_id.reset(token)
    assert {json.loads(line)["request_id"] for line in lines} == {"r-1"}
    assert "request_id=r-1" in "\n".join(text)


def test_text_is_for_people(root: logging.Logger) -> None:
    lines = written("text", "info", logging.getLogger("a.b"))
    assert "warning" in lines[0]
    assert "seconds=0.5" in "\n".join(lines)
    assert lines[-1] == "ValueError: inner"


def test_the_level_holds(root: logging.Logger) -> None:
    assert len(written("json", "error", logging.getLogger("a.b"))) == 1


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_by_itself_it_is_text_for_people_and_json_for_programs(root: logging.Logger) -> None:
    streams = io.StringIO(), Terminal()
    for stream in streams:
        logs.configure("info", "auto", stream)
        logging.getLogger("a.b").info("ready")
        logs.close()
    file, terminal = (stream.getvalue() for stream in streams)
    assert json.loads(file)["message"] == "ready"
    assert terminal.endswith("ready\n")
    assert not terminal.startswith("{")


class Clogged:
    """A stream that accepts lines only while it is open."""

    def __init__(self) -> None:
        self.blocked, self.open = threading.Event(), threading.Event()
        self.lines: list[str] = []

    def write(self, lines: bytes) -> None:
        self.blocked.set()
        self.open.wait()
        self.lines += lines.decode().splitlines()


def record(message: str) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": message, "levelno": logging.INFO})


def test_lines_that_can_t_be_written_are_dropped_and_counted() -> None:
    pipe = Clogged()
    handler = logs.QueuedHandler(pipe.write, max_lines=3)
    handler.handle(record("first"))
    pipe.blocked.wait()
    for number in range(10):
        handler.handle(record(f"{number}"))
    assert handler.num_dropped == 7
    pipe.open.set()
    handler.close()
    assert pipe.lines[0] == "first"
    assert [line for line in pipe.lines if line.isdigit()] == ["0", "1", "2"]
    assert [line for line in pipe.lines if "were dropped" in line] == [pipe.lines[1]]


def test_the_line_about_dropped_ones_has_their_number(root: logging.Logger) -> None:
    pipe = Clogged()
    handler = logs.QueuedHandler(pipe.write, max_lines=1)
    handler.setFormatter(logs.JsonFormatter())
    handler.handle(record("first"))
    pipe.blocked.wait()
    for _ in range(5):
        handler.handle(record("more"))
    pipe.open.set()
    handler.close()
    (told,) = [entry for line in pipe.lines if "num_lines" in (entry := json.loads(line))]
    assert (told["level"], told["num_lines"]) == ("warning", 4)


def test_an_end_does_not_wait_for_a_line_that_can_t_be_written() -> None:
    pipe = Clogged()
    handler = logs.QueuedHandler(pipe.write)
    handler.handle(record("first"))
    handler.close()
    assert pipe.lines == []
    pipe.open.set()


def test_a_reader_that_has_gone_costs_lines_and_nothing_else() -> None:
    def gone(lines: bytes) -> None:
        raise BrokenPipeError

    handler = logs.QueuedHandler(gone)
    for number in range(10):
        handler.handle(record(f"{number}"))
    handler.close()
    assert handler.num_dropped == 10


def test_lines_that_were_written_are_not_counted_as_dropped() -> None:
    """The line about dropped ones may fail by itself, and comes later then."""
    pipe = Clogged()

    def write(lines: bytes) -> None:
        pipe.write(lines)
        if len(pipe.lines) == 2:
            assert b"were dropped" in lines
            raise BrokenPipeError

    handler = logs.QueuedHandler(write, max_lines=1)
    handler.handle(record("first"))
    pipe.blocked.wait()
    for _ in range(5):
        handler.handle(record("more"))
    pipe.open.set()
    handler.close()
    assert handler.num_dropped == 4
    assert len([line for line in pipe.lines if "were dropped" in line]) == 2


def test_a_line_after_one_that_was_cut_off_stands_alone(root: logging.Logger) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with os.fdopen(reader, "rb") as pipe, os.fdopen(writer, "w") as stream:
        logs.configure("info", "json", stream)
        logging.info("x" * 1_000_000)  # more than a pipe holds
        while not logs.num_dropped():
            pass
        os.read(reader, 1_000_000)
        logging.info("next")
        logs.close()
        stream.close()
        _, *lines = pipe.read().splitlines()
    following, told = map(json.loads, lines)
    assert (following["message"], told["num_lines"]) == ("next", 1)


def test_what_clients_do_wrong_is_not_quoted(root: logging.Logger) -> None:
    """Metadata may contain a key."""
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    of_grpc = logging.getLogger("grpc._cython.cygrpc")
    of_grpc.error("Invalid encoding on %s", b"secret\xff")
    of_grpc.error("Unexpected [%s] raised by servicer method [%s]", "ValueError", "/x")
    logs.close()
    assert "secret" not in stream.getvalue()
    assert "Unexpected [ValueError]" in stream.getvalue()
