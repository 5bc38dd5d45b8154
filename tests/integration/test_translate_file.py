"""`dragoman translate-file` against a server that echoes its texts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from cli.options import as_json
from cli.segment_cache import SegmentCache
from dragoman.client import Search
from model.bundle.tokenizer import Tokenizer
from tests.fake_runner import FakeRunner, echo
from tests.integration.servers import DoneCommand, Running, done, fake_runner, running_fake
from tests.unit.service.documents import samples

TEXT = "A dog runs.\n\nIt barks!\n\nIt barks!\n"


@pytest.fixture
async def server(tokenizer: Tokenizer) -> AsyncIterator[Running]:
    runner = fake_runner(tokenizer, max_source_positions=256, max_target_positions=256)
    async with running_fake(runner, tokenizer, max_characters=1000) as made:
        yield made


async def run(server: Running, *arguments: str | Path) -> DoneCommand:
    """Run the command."""
    languages = ("--from", "en", "--to", "de")
    return await done("translate-file", "--server", server.address, *languages, *arguments)


async def test_a_document_is_written_beside_its_source(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "letter.docx"
    file.write_bytes(samples.word(samples.letter()))
    status, output, _ = await run(server, file)
    assert (status, output) == (0, f"{tmp_path / 'letter.de.docx'}: 7 parts\n")
    assert (tmp_path / "letter.de.docx").read_bytes() == file.read_bytes()
    assert len([*tmp_path.iterdir()]) == 2


async def test_the_language_is_detected_once(server: Running, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("The dog is running over the green field.\n\nOK.\n")
    status, _, errors = await run(server, file, "--from", "auto")
    assert (status, (tmp_path / "a.de.txt").read_text()) == (0, file.read_text()), errors
    file.write_text("Le chien court dans le champ vert et il est très content.\n")
    status, _, errors = await run(server, file, "--from", "auto", "--output", tmp_path / "b.txt")
    assert status == 1
    assert "seems to be fr" in errors


@pytest.mark.parametrize(
    "text",
    [
        "Der Hund läuft über die grüne Wiese und bellt sehr laut.\n",  # in the target language
        "12\n\n34\n",
        "",
        "\n\n".join(map(str, range(150))) + "\n\nThe dog is running over the green field.\n",
    ],
)
async def test_a_document_that_needs_no_translation_or_begins_with_numbers_is_no_error(
    server: Running, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "a.txt"
    file.write_text(text)
    status, _, errors = await run(server, file, "--from", "auto")
    assert (status, (tmp_path / "a.de.txt").read_text()) == (0, text), errors


async def test_a_bad_glossary_is_refused_before_any_call(server: Running, tmp_path: Path) -> None:
    file, glossary = tmp_path / "a.txt", tmp_path / "terms.tsv"
    file.write_text(TEXT)
    glossary.write_text("dog Hund\n")
    status, _, errors = await run(server, file, "--glossary", glossary)
    assert (status, sorted(tmp_path.iterdir())) == (1, [file, glossary])
    assert "line 1: needs two columns with a tab between them, has 1" in errors


@pytest.mark.parametrize(
    ("source", "kept_for", "is_used"),
    [("en", "en", True), ("auto", "en", True), ("auto", "fr", False), ("auto", "auto", False)],
)
async def test_what_an_earlier_run_left_is_used_and_removed(
    server: Running, tmp_path: Path, source: str, kept_for: str, is_used: bool
) -> None:
    """If it is a translation from the same language, detected or not."""
    file, output = tmp_path / "a.txt", tmp_path / "out.txt"
    file.write_text("The dog is running over the green field.\n\nIt barks!\n\nIt barks!\n")
    [model] = await server.client.list_models()
    options = as_json(
        dict(
            search=Search(),
            glossary=None,
            memory="",
            verbatim=None,
            adapt_letter_case=None,
            line_breaks=None,
        )
    )
    chosen = {"source": kept_for, "target": "de", "model": "", "allow_pivot": None, **options}
    with SegmentCache(output, {"models": [(model.name, model.version)], **chosen}) as cache:
        cache.add("It barks!", "text/plain", "KEPT")
    status, _, errors = await run(server, file, "--output", output, "--from", source)
    assert status == 0
    assert "going on after 1 parts" in errors
    assert output.read_text() == (
        file.read_text().replace("It barks!", "KEPT") if is_used else file.read_text()
    )
    assert sorted(tmp_path.iterdir()) == [file, output]


async def test_a_part_that_fails_leaves_no_output_but_what_was_translated(
    server: Running, tmp_path: Path
) -> None:
    file, output = tmp_path / "a.txt", tmp_path / "out.txt"
    file.write_text(f"A dog runs.\n\n{'word ' * 300}\n")
    status, _, errors = await run(server, file, "--output", output)
    assert status == 1
    assert "the limit is 1,000" in errors
    names = {path.name for path in tmp_path.iterdir()}
    assert names <= {"a.txt", ".out.txt.dragoman-cache"}


async def test_what_is_there_is_replaced_only_if_output_names_it(
    server: Running, tmp_path: Path
) -> None:
    """A glossary among them, and what appears during the translation."""
    file, output = tmp_path / "a.txt", tmp_path / "a.de.txt"
    file.write_text(TEXT)
    output.write_text("dog\tHund\n")
    for more in ((), ("--glossary", output)):
        status, _, errors = await run(server, file, *more)
        assert (status, output.read_text()) == (1, "dog\tHund\n")
        assert "a.de.txt is there already: to replace it, name it with --output" in errors
    status, _, errors = await run(server, file, "--output", output)
    assert (status, output.read_text()) == (0, TEXT), errors
    output.unlink()
    output.symlink_to(tmp_path / "elsewhere.txt")
    status, _, errors = await run(server, file)
    assert (status, (tmp_path / "elsewhere.txt").exists()) == (1, False)
    assert sorted(tmp_path.iterdir()) == [output, file]


async def test_what_appears_during_the_translation_is_not_replaced(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    file, output = tmp_path / "a.txt", tmp_path / "a.de.txt"
    file.write_text(TEXT)

    def meanwhile(source_ids: tuple[int, ...]) -> Sequence[int]:
        output.write_text("precious")
        return echo(source_ids)

    runner = FakeRunner(fake_runner(tokenizer).limits, meanwhile)
    async with running_fake(runner, tokenizer) as server:
        status, _, errors = await run(server, file)
    assert (status, output.read_text()) == (1, "precious")
    assert "is there already" in errors
    assert {path.name for path in tmp_path.iterdir()} == {
        "a.txt",
        "a.de.txt",
        ".a.de.txt.dragoman-cache",
    }


async def test_bad_files_are_refused_by_name(server: Running, tmp_path: Path) -> None:
    bad, good = tmp_path / "a.docx", tmp_path / "a.txt"
    bad.write_bytes(b"x")
    good.write_text(TEXT)
    for arguments, reason in (
        ((tmp_path / "none.txt",), "none.txt: No such file"),
        ((bad,), "a.docx: is no zip file"),
        ((tmp_path / "a.exe",), "a.exe"),
        ((good, "--to", "../x"), "--to: '../x' is no language code"),
        ((good, "--output", good), "is an input of this command"),
        ((good, "--output", tmp_path / "b.html"), "must end in .txt"),
        ((good, "--output", tmp_path / "no" / "b.txt"), "No such file"),
    ):
        status, output, errors = await run(server, *arguments)
        assert (status, output) == (1, "")
        assert reason in errors
    assert sorted(tmp_path.iterdir()) == [bad, good]
