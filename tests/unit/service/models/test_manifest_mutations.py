"""A manifest that contradicts its graphs is refused at the start, or makes no difference.

Such a bundle never serves and then fails its calls, and never translates differently.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.host_stream import open_on
from bench.submission import submit
from model.bundle.bundle import Bundle
from model.bundle.sessions import SessionSettings
from service.domain.plan import StepOutput, StepPlan
from service.domain.requests import (
    GenerationRequest,
    GenerationResult,
    ScoringRequest,
    SearchOptions,
)
from service.domain.sampling import Sampling
from service.engine.engine import Engine
from service.errors import StartupError
from service.models.loading import load_model
from service.observability.metrics import ServerMetrics
from service.runtime.cuda.runner import DeviceOptions, DeviceRunner
from service.settings import Settings
from service.worker.trial import try_translating
from tests.factories import random_sources, tiny_bundle
from tests.fake_runner import FakeRunner

SETTINGS = Settings(in_process=True, max_rows=4, threads=1)
Manifest = dict[str, Any]
FOR_GPUS = Path(__file__).parents[3] / "parity" / "bundles" / "for_gpus_1"  # 33 groups of tokens


class Original:
    """A bundle, and its answers without mutations."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.manifest: Manifest = dict(bundle.manifest)
        self._answers: dict[tuple[int, int], list[Any]] = {}

    async def outcome_of(self, manifest: Manifest) -> str | bool:
        """Why the manifest is refused; otherwise whether its bundle answers like the original."""
        path = self.bundle.path
        (path / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")
        try:
            limits = manifest["limits"]
            lengths = limits["max_source_positions"], limits["max_target_positions"]
            found = comparable(await answers(path, *lengths))
        except StartupError as exc:
            return str(exc)
        finally:
            (path / "bundle.json").write_text(json.dumps(self.manifest), encoding="utf-8")
        if lengths not in self._answers:
            self._answers[lengths] = comparable(await answers(path, *lengths))
        return found == self._answers[lengths]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    directory = tmp_path_factory.mktemp("bundles") / "tiny"
    return Original(tiny_bundle(directory, max_positions=24))


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """An old bundle for GPUs with groups of tokens, which has more fields."""
    directory = tmp_path_factory.mktemp("bundles") / "resident"
    shutil.copytree(FOR_GPUS, directory)
    return Original(Bundle.load(directory))


async def answers(path: Path, longest: int, most: int) -> list[GenerationResult]:
    """Answers to every kind of request, up to `longest` source tokens and `most` target tokens.

    Raises:
        StartupError: the bundle can't be served.
    """
    engine = load_model(path, SETTINGS, ServerMetrics()).engine
    assert isinstance(engine, Engine)
    await engine.start()
    try:
        await engine.prepare_scoring()
        config = Bundle.load(path, verify=False).config
        sources = [ids[-longest:] for ids in random_sources(config, 2, max_length=longest - 1)]
        sources.append((*[10] * (longest - 1), config.eos_id))
        options = [
            SearchOptions(max_new_tokens=most),
            SearchOptions(max_new_tokens=most, beam_size=3),
            SearchOptions(max_new_tokens=most, sampling=Sampling(seed=1, top_k=256)),
        ]
        requests = [
            *(GenerationRequest(*pair) for pair in itertools.product(sources, options)),
            *(ScoringRequest(ids, target_ids=(*ids[:-1][: most - 1], 3)) for ids in sources),
        ]
        return [await submit(engine, request).result() for request in requests]
    finally:
        await engine.stop()


def comparable(results: list[GenerationResult]) -> list[tuple[Any, ...]]:
    for result in results:
        assert result.error is None
    return [(result.finish_reason, result.token_ids, result.log_probability) for result in results]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """All values that are neither a mapping nor a list, with their paths."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def changed(manifest: Manifest, *changes: tuple[tuple[Any, ...], Any]) -> Manifest:
    new = copy.deepcopy(manifest)
    for (*path, last), value in changes:
        place = new
        for key in path:
            place = place[key]
        place[last] = value
    return new


def mutations(value: Any) -> list[Any]:
    """Other values: too small, too large, of another type, or names of other files."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [-1, 0, value + 1, value - 1, 2 * value + 2, 2**31, 10**30, value + 0.5, str(value)]
    if isinstance(value, float):
        return [-1.0, 2.0, math.nan, "x"]
    return ["", "../" + str(value), "\0", "\ud800", "x" * 300, "other", "weights.bin", 7]


# Which of them say nothing of what is served, so that there is nothing to mutate.
FREE = {"provenance", "sha256"}


def fields_of(manifest: Manifest) -> list[tuple[tuple[Any, ...], Any]]:
    return [(path, value) for path, value in leaves(manifest) if path[0] not in FREE]


# A field whose message may name another one, which it contradicts.
CONTRADICTED = {"num_decoder_layers": "alignment_layer"}


async def test_a_change_of_any_field_is_refused_or_harmless(original: Original) -> None:
    harmless = set()
    for path, value in fields_of(original.manifest):
        name = next(key for key in reversed(path) if isinstance(key, str))
        for other in mutations(value):
            outcome = await original.outcome_of(changed(original.manifest, (path, other)))
            assert outcome, (path, other)  # otherwise it translates otherwise
            if outcome is True:
                harmless.add(name)
                continue
            assert isinstance(outcome, str)
            names = (name.removesuffix("_id"), CONTRADICTED.get(name, name), str(other))
            assert any(name in outcome for name in names), (path, other, outcome)
            assert any(advice in outcome for advice in ("again", "update", "install")), outcome
    # Other fields about the network than the sizes of its caches are also in its graphs.
    assert {"num_heads", "num_decoder_layers", "d_model", "vocab_size"}.isdisjoint(harmless)
    assert {"bos", "eos", "unk", "encoder", "decoder_step", "files"}.isdisjoint(harmless)


def swapped(one: str, other: str) -> dict[str, Any]:
    """Mutations that swap the names of graphs."""
    return {f"graphs.{one}": f"{other}.onnx", f"graphs.{other}": f"{one}.onnx"}


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("limits.max_target_positions", {
            "architecture.max_positions": 48,
            "limits.max_source_positions": 48,
            "limits.max_target_positions": 48,
        }),
        ("limits.max_source_positions", {
            "architecture.max_positions": 25, "limits.max_source_positions": 25,
        }),
        ("architecture.bos_id", {
            "architecture.bos_id": 3, "special_ids.bos": 3,
            "architecture.eos_id": 2, "special_ids.eos": 2,
        }),
        ("architecture.num_heads", {"architecture.num_heads": 4, "architecture.d_model": 64}),
        ("architecture.num_decoder_layers", {
            "architecture.num_decoder_layers": 1, "scoring.alignment_layer": 0,
        }),
        ("precision is int8", {"precision": "int8"}),
        ("precision is fp16", {"precision": "fp16"}),
        ("graphs.encoder", swapped("encoder", "decoder_step")),
        ("graphs.scoring", swapped("encoder", "scoring")),
        ("graphs.scoring", swapped("decoder_step", "scoring")),
    ],
)  # fmt: skip
async def test_changes_that_agree_with_each_other_contradict_the_graphs(
    original: Original, message: str, changes: dict[str, Any]
) -> None:
    each = [(tuple(field.split(".")), value) for field, value in changes.items()]
    outcome = await original.outcome_of(changed(original.manifest, *each))
    assert isinstance(outcome, str)
    assert message in outcome


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("token_groups", value) for value in (-1, 0, 1, 32, 34, 10**30, 1.5, "33")),
        ("precision", "fp32"),
        ("precision", "int8"),
    ],
)
async def test_what_is_said_for_gpus_has_to_be_right_too(
    resident: Original, field: str, value: Any
) -> None:
    path = ("resident", field) if field == "token_groups" else (field,)
    assert resident.manifest["resident"]["token_groups"] > 0
    outcome = await resident.outcome_of(changed(resident.manifest, (path, value)))
    assert isinstance(outcome, str)
    assert field in outcome


def test_a_runner_for_gpus_is_tried_like_others(resident: Original) -> None:
    runner = DeviceRunner(
        resident.bundle, SessionSettings("cpu"), DeviceOptions(max_rows=2), stream=open_on
    )
    assert try_translating(resident.bundle, runner) > 0.0
    runner.close()


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_error_without_text_is_named_by_its_type(original: Original, text: str) -> None:
    class Failing(FakeRunner):
        def execute(self, plan: StepPlan) -> StepOutput:
            raise AssertionError(text)

    with pytest.raises(StartupError, match="a first step fails: AssertionError; copy"):
        try_translating(original.bundle, Failing())
