"""A bundle is read from the files that it held when it was verified, whatever lies there later."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from model.bundle.bundle import Bundle
from model.bundle.held_files import HeldFiles
from model.bundle.manifest import BundleCorruptError
from model.bundle.sessions import SessionSettings, open_session
from service.domain.plan import StepOutput
from service.errors import StartupError
from service.runtime.cpu.runner import OnnxRunner
from service.settings import Settings
from service.worker.opening import open_model
from tests.factories import random_sources, tiny_bundle
from tests.runner_loops import greedy_steps, same_steps

SOURCES, NUM_STEPS = 4, 6


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two versions of one model, with other weights."""
    folder = tmp_path_factory.mktemp("versions")
    return tuple(tiny_bundle(folder / str(n), seed=n).path for n in (1, 2))  # type: ignore[return-value]


def exchange(directory: Path, other: Path, *names: str) -> None:
    """Put files of another bundle into the places of these, by renames."""
    for name in names or tuple(file.name for file in other.iterdir()):
        shutil.copy(other / name, directory / "next")
        (directory / "next").rename(directory / name)


def steps_of(bundle: Bundle) -> list[StepOutput]:
    """The first steps of a runner of the bundle."""
    runner = OnnxRunner(bundle, intra_op_threads=1)
    return list(greedy_steps(runner, random_sources(bundle.config, SOURCES), NUM_STEPS))


@pytest.mark.parametrize("names", [("weights.bin",), ("decoder_step.onnx", "weights.bin"), ()])
def test_files_exchanged_after_they_were_verified_are_not_read(
    versions: tuple[Path, Path], tmp_path: Path, names: tuple[str, ...]
) -> None:
    live = Path(shutil.copytree(versions[0], tmp_path / "live"))
    bundle = Bundle.load(live)
    exchange(live, versions[1], *names)
    assert same_steps(steps_of(bundle), steps_of(Bundle.load(versions[0])))


def test_files_of_a_directory_that_is_deleted_are_read(
    versions: tuple[Path, Path], tmp_path: Path
) -> None:
    live = Path(shutil.copytree(versions[0], tmp_path / "live"))
    bundle = Bundle.load(live, verify=False)
    shutil.rmtree(live)
    bundle.verify(*(live / name for name in bundle.manifest["sha256"]))
    assert bundle.tokenizer().serialized() == Bundle.load(versions[0]).tokenizer().serialized()
    assert bundle.num_bytes == Bundle.load(versions[0]).num_bytes
    assert bundle.calibration() is None
    assert len(steps_of(bundle)) == NUM_STEPS


def test_a_directory_renamed_while_it_is_opened_gives_its_own_files(
    versions: tuple[Path, Path], tmp_path: Path
) -> None:
    live = Path(shutil.copytree(versions[0], tmp_path / "live"))
    files = HeldFiles(live)
    live.rename(tmp_path / "old")
    shutil.copytree(versions[1], live)
    files.hold("weights.bin")
    assert files.read(live / "weights.bin") == (versions[0] / "weights.bin").read_bytes()


def test_a_tokenizer_that_was_written_over_is_not_read(
    versions: tuple[Path, Path], tmp_path: Path
) -> None:
    live = Path(shutil.copytree(versions[0], tmp_path / "live"))
    bundle = Bundle.load(live)
    (live / "tokenizer.model").write_bytes(b"another")
    with pytest.raises(BundleCorruptError, match=r"tokenizer\.model is damaged or was written"):
        bundle.tokenizer()


def test_another_bundle_in_the_place_of_the_one_that_is_meant_is_not_opened(
    versions: tuple[Path, Path], tmp_path: Path
) -> None:
    live = Path(shutil.copytree(versions[0], tmp_path / "live"))
    meant = Bundle.load(live, verify=False)
    exchange(live, versions[1])
    with pytest.raises(StartupError, match="live was replaced while it was opened: try again"):
        open_model(live, Settings(), meant.manifest_sha256)


def test_a_name_can_be_written_in_several_ways(versions: tuple[Path, Path], tmp_path: Path) -> None:
    live = Path(shutil.copytree(versions[0], tmp_path / "live"))
    file = live / "bundle.json"
    text = file.read_text().replace('"tokenizer.model"', '"./tokenizer.model"')
    file.write_text(text)
    assert Bundle.load(live).tokenizer().vocab_size == Bundle.load(versions[0]).config.vocab_size


def test_a_named_pipe_is_no_file_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        HeldFiles(tmp_path).hold("pipe")


def test_all_sessions_read_one_mapping_as_long_as_one_of_them_lives(tmp_path: Path) -> None:
    """They use the weights where they are mapped, and none copies all of them."""
    bundle = tiny_bundle(tmp_path / "bundle", d_model=128, vocab_size=320)
    settings = SessionSettings(intra_op_threads=1)
    paths = [bundle.encoder_path, bundle.decoder_step_path, bundle.scoring_path]
    sessions = [open_session(bundle, path, settings) for path in paths if path is not None]
    mapped = bundle.weights_path
    assert mapped is not None
    assert Path("/proc/self/maps").read_text().count(str(mapped)) == 1
    encoder = sessions[0]
    expected = encoded(encoder)
    del bundle, sessions
    gc.collect()
    shutil.rmtree(tmp_path / "bundle")
    for before, after in zip(expected, encoded(encoder), strict=True):
        np.testing.assert_array_equal(before, after)
    del encoder
    gc.collect()
    assert str(mapped) not in Path("/proc/self/maps").read_text()


def encoded(encoder: ort.InferenceSession) -> list[np.ndarray]:
    feeds = {"source_ids": np.array([[9, 8, 3]]), "source_lengths": np.array([3], np.int32)}
    return list(encoder.run(None, feeds))


def test_files_are_closed_with_the_last_reference(versions: tuple[Path, Path]) -> None:
    def links() -> list[str]:
        return [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.exists()]

    bundle = Bundle.load(versions[0])
    assert str(bundle.path) in links()
    bundle.files.keep(bundle.path / "weights.bin")
    assert [link for link in links() if str(versions[0]) in link] == [
        str(bundle.path / "weights.bin")
    ]
    del bundle
    gc.collect()
    assert not any(str(versions[0]) in link for link in links())
