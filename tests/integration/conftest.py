"""The tiny models that the servers of these tests serve."""

from pathlib import Path

import pytest

from model.bundle.bundle import Bundle
from model.bundle.tokenizer import Tokenizer
from tests.factories import tiny_bundle
from tests.fake_runner import FakeRunner
from tests.integration.servers import fake_runner


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A random tiny model, English to German."""
    return tiny_bundle(tmp_path_factory.mktemp("bundles") / "tiny", name="tiny")


@pytest.fixture(scope="session")
def bundle_path(bundle: Bundle) -> Path:
    """The directory of the bundle."""
    return bundle.path


@pytest.fixture(scope="session")
def tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer of the bundle."""
    return bundle.tokenizer()


@pytest.fixture
def runner(tokenizer: Tokenizer) -> FakeRunner:
    """A scripted model."""
    return fake_runner(tokenizer)
