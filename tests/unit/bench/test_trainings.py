"""Plans of trainings: what they become, what a variant costs, documents, and a run of the queue."""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.tensorboard import SummaryWriter
from typer.testing import CliRunner

from bench.recompute import store
from bench.studies.trainings import run
from bench.studies.trainings.compute import training_multiplications
from bench.studies.trainings.documents import TestDocuments, document_runs, document_scores
from bench.studies.trainings.plan import (
    TrainingPlanError,
    load_plan,
    merged,
    to_toml,
    variant_multiplications,
)
from bench.studies.trainings.report import to_dict
from model.bundle.config import ModelConfig, preset
from model.data.corpus import CorpusError, read_parallel
from model.data.recipe import load_recipe
from model.network.checkpoint import save_checkpoint
from tests.factories import SENTENCES, random_model, tiny_config, tiny_tokenizer

PLANS = Path(run.__file__).parent / "plans"
BASE = """
name = "base"
output = "base"
languages = { source = "en", target = "de" }
[data]
train = [{ name = "text", source = "train.en", target = "train.de" }]
valid = [{ name = "text", source = "valid.en", target = "valid.de" }]
[vocabulary]
vocab_size = 330
[model]
preset = "tiny"
num_encoder_layers = 1
num_decoder_layers = 1
[optimization]
batch_tokens = 256
max_updates = 1000
learning_rate = 1e-3
warmup_updates = 100
precision = "fp32"
[validation]
every_updates = 100
"""

_values = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def write_plan(folder: Path, text: str, base: str = BASE) -> Path:
    (folder / "base.toml").write_text(base, encoding="utf-8")
    (folder / "plan.toml").write_text(
        f'question = "Which?"\nbase = "base.toml"\n{text}', encoding="utf-8"
    )
    return folder / "plan.toml"


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=4), _values, max_size=5))
def test_toml_reads_back(fields: dict[str, object]) -> None:
    assert tomllib.loads(to_toml(fields)) == fields


def test_a_variant_replaces_single_fields() -> None:
    fields = {"model": {"preset": "tiny", "dropout": 0.1}, "name": "a"}
    changed = merged(fields, {"model": {"dropout": 0.3}, "vocabulary": {"vocab_size": 500}})
    assert changed["model"] == {"preset": "tiny", "dropout": 0.3}
    assert changed["vocabulary"] == {"vocab_size": 500}
    assert fields["model"] == {"preset": "tiny", "dropout": 0.1}


def test_a_plan_changes_all_variants_and_one_may_have_more_text(tmp_path: Path) -> None:
    more = '{ name = "more", source = "more.en", target = "more.de" }'
    plan = load_plan(
        write_plan(
            tmp_path,
            f"""
            [all]
            optimization = {{ learning_rate = 2e-3, warmup_updates = 50 }}
            [variants.a]
            [variants.b]
            optimization = {{ warmup_updates = 20 }}
            more_text = [{more}]
            """,
        )
    )
    first, second = (variant.recipe for variant in plan.variants)
    assert [each["optimization"]["learning_rate"] for each in (first, second)] == [2e-3, 2e-3]
    assert [each["optimization"]["warmup_updates"] for each in (first, second)] == [50, 20]
    assert [corpus["name"] for corpus in first["data"]["train"]] == ["text"]
    assert [corpus["name"] for corpus in second["data"]["train"]] == ["text", "more"]


@pytest.mark.parametrize("plan", sorted(PLANS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_plans_of_the_project_can_be_used(plan: Path) -> None:
    if "variants" not in tomllib.loads(plan.read_text()):
        return  # a base
    loaded = load_plan(plan)
    assert len(loaded.variants) > 1
    short = load_plan(plan, 10).variants[0].recipe
    assert short["optimization"]["max_updates"] == 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "variants is missing"),
        ("colour = 1\n[variants.a]", "no such field: colour"),
        ('equal = "hours"\n[variants.a]', "equal must be one of updates, multiplications, nothing"),
        ('equal = "multiplications"\n[variants.a]', "needs document_tokens"),
        ("[variants.a.model]\ndropout = 2", "variants.a: .*dropout must be in"),
        ("[variants.a]\n[variants.b.optimization]\nmax_updates = 200", "variants differ"),
        ("[variants.a\n", "not TOML"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TrainingPlanError, match=message):
        load_plan(write_plan(tmp_path, text))


def test_equal_multiplications_give_cheaper_kinds_more_updates() -> None:
    plan = load_plan(PLANS / "attention-kinds.toml")
    totals = {
        variant.name: variant_multiplications(variant, plan.document_tokens)
        * variant.recipe["optimization"]["max_updates"]
        for variant in plan.variants
    }
    assert max(totals.values()) == pytest.approx(min(totals.values()), rel=1e-3)
    updates = {v.name: v.recipe["optimization"]["max_updates"] for v in plan.variants}
    assert updates["full"] < updates["local"]


@given(
    kind=st.sampled_from(["local", "strided", "lsh", "linformer"]), length=st.integers(2048, 2**15)
)
def test_efficient_kinds_cost_less_at_length(kind: str, length: int) -> None:
    full = preset("small", 8000, max_positions=2**15)
    other = preset("small", 8000, max_positions=2**15, encoder_attention=kind)
    cost, least = (training_multiplications(c, length, 2) for c in (full, other))
    assert least < cost


def test_multiplications_of_a_known_network() -> None:
    config = ModelConfig(7, 4, 2, 1, 2, 6)
    encoder = 5 * (4 * 16 + 2 * 5 * 4 + 2 * 4 * 6)
    decoder = 3 * (6 * 16 + 2 * 3 * 4 + 2 * 5 * 4 + 2 * 4 * 6) + 2 * 5 * 16
    assert training_multiplications(config, 5, 3) == 2 * encoder + decoder + 3 * 4 * 7


@given(
    sentences=st.lists(st.tuples(st.integers(1, 30), st.sampled_from("ab")), max_size=30),
    most=st.integers(1, 60),
)
def test_runs_are_all_sentences_in_order(sentences: list[tuple[int, str]], most: int) -> None:
    lengths, documents = [n for n, _ in sentences], [d for _, d in sentences]
    runs = document_runs(lengths, documents, most)
    assert [i for run_ in runs for i in run_] == list(range(len(sentences)))
    for run_ in runs:
        assert len({documents[i] for i in run_}) == 1
        assert len(run_) == 1 or sum(lengths[i] for i in run_) <= most
    for left, right in itertools.pairwise(runs):  # no run could have been longer
        longer = sum(lengths[i] for i in (*left, right[0]))
        assert longer > most or documents[left[0]] != documents[right[0]]


def test_documents_are_scored_whole_and_by_sentence() -> None:
    lines = [f"the small house number {n} is red and old ." for n in range(6)]
    test = TestDocuments(lines, lines, list("aaabbb"))
    seen: list[int] = []

    def translate(texts: Sequence[str]) -> list[str]:
        seen.append(len(texts))
        return [text if len(text) < 60 else "something else" for text in texts]

    scores = document_scores(test, translate, lambda text: len(text.split()), 30)
    assert seen == [6, 2]
    assert scores["sentence BLEU"] == pytest.approx(100)
    assert scores["document BLEU, by sentence"] == pytest.approx(100)
    assert scores["document BLEU, whole"] < 1


def test_unequal_documents_are_refused(tmp_path: Path) -> None:
    for name, text in (("valid.en", "a\nb\n"), ("valid.de", "a\nb\n"), ("valid.doc", "1\n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(CorpusError, match=r"valid\.en 2, valid\.de 2, valid\.doc 1"):
        TestDocuments.read(tmp_path, "en", "de")


def test_a_variant_is_trained_and_scored_once(tmp_path: Path) -> None:
    data, trained = tmp_path / "data", []
    data.mkdir()
    for side, lines in (("en", SENTENCES[:4]), ("de", SENTENCES[4:])):
        text = [f"{line[:-1]} {n}." for n in range(20) for line in lines]
        (data / f"train.{side}").write_text("\n".join(text) + "\n", encoding="utf-8")
        (data / f"valid.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    inputs = run.ScoredText(data)

    def train(recipe: Path, data_root: Path, folder: Path) -> None:
        corpus = load_recipe(recipe, data_root=data_root).data.train[0]
        trained.append(read_parallel(corpus.source, corpus.target))
        provenance = {"updates": 2, "target_tokens": 50, "hours": 0.0}
        model, languages = random_model(tiny_config()), {"source": "en", "target": "de"}
        tokenizer = tiny_tokenizer(tmp_path)
        save_checkpoint(
            folder / "final", model, tokenizer, languages=languages, provenance=provenance
        )
        validations = [{"update": update, "loss": 9 - update} for update in (1, 2)]
        (folder / "report.json").write_text(json.dumps({"validations": validations}))
        with SummaryWriter(str(folder / "tensorboard")) as writer:
            for update in (1, 2):
                writer.add_scalar("train/cpu_seconds", 1.5 * update, update)

    def run_all(numbers: Sequence[int]) -> None:
        tables = "".join(f"[variants.{n}]\npairs = {n}\n" for n in numbers)
        plan = load_plan(write_plan(tmp_path, f'equal = "nothing"\n{tables}'))
        for variant in plan.variants:
            run.run_variant(plan, variant, tmp_path / "out", inputs, train)
        store(tmp_path / "report", to_dict(plan, run.results(plan, tmp_path / "out"), {}))

    run_all([20])
    run_all([20, 40])

    assert [len(pairs) for pairs in trained] == [20, 40]
    assert trained[1].sources[:20] == trained[0].sources  # a larger part holds the smaller one
    assert "2 of 2 are done" in (tmp_path / "report" / "report.md").read_text()
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert summary["results"]["20"]["losses"] == {"1": 8, "2": 7}
    assert summary["results"]["20"]["cpu_seconds"] == {"1": 1.5, "2": 3.0}
    with pytest.raises(typer.BadParameter, match="pairs is 90, but there are 80"):
        run_all([90])


def test_a_training_that_fails_ends_the_queue(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(BASE, encoding="utf-8")
    with pytest.raises(typer.Exit):
        run.train_by_command(tmp_path / "recipe.toml", tmp_path, tmp_path / "run", threads=1)
    assert "train.en: there is no such file" in (tmp_path / "train.log").read_text()


def test_unknown_variants_and_missing_documents_are_refused(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(run.main)
    options = ["--data-root", str(tmp_path), "--output", str(tmp_path / "out"), "--nice", "0"]
    plan = str(write_plan(tmp_path, "[variants.a]\n[variants.b]\n"))
    done = CliRunner().invoke(app, [plan, *options, "--only", "c"])
    assert done.exit_code == 2
    assert "'c' is not one of a, b" in done.output
    done = CliRunner().invoke(app, [str(PLANS / "attention-kinds.toml"), *options])
    assert done.exit_code == 2
    assert "translates documents" in done.output
