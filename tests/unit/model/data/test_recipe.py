"""Recipes: read, checked, and refused with the name of the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.data.recipe import RecipeError, check_files, load_recipe
from model.training.recipe_reference import PAGE, recipe_reference

RECIPE = """
name = "test"
output = "runs/test"
[languages]
source = "en"
target = "de"
[data]
train = [{ name = "a", source = "a.en", target = "a.de" }]
valid = [{ name = "a", source = "v.en", target = "v.de" }]
[model]
preset = "tiny"
dropout = 0.3
[optimization]
max_updates = 10
learning_rate = 1e-3
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_the_shipped_recipes_are_valid() -> None:
    recipes = sorted(Path("model/recipes").glob("*.toml"))
    assert {"small-corpus.toml", "multi30k-tiny.toml"} <= {path.name for path in recipes}
    for path in recipes:
        recipe = load_recipe(path)
        assert recipe.model_config_for(recipe.vocabulary.vocab_size).head_dim % 8 == 0


def test_preset_and_overrides_make_the_model(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, RECIPE))
    config = recipe.model_config_for(500)
    assert (config.vocab_size, config.d_model, config.dropout) == (500, 128, 0.3)


def test_a_recipe_extends_another(tmp_path: Path) -> None:
    write(tmp_path, RECIPE)
    path = tmp_path / "longer.toml"
    changes = """
extends = "recipe.toml"
name = "longer"
[model]
preset = "small"
[optimization]
max_updates = 20
"""
    path.write_text(changes)
    recipe = load_recipe(path)
    assert (recipe.name, recipe.model) == ("longer", {"preset": "small"})
    assert (recipe.optimization.max_updates, recipe.optimization.learning_rate) == (20, 1e-3)
    assert recipe.data == load_recipe(tmp_path / "recipe.toml").data
    # A checkpoint keeps the text: what it says without the other file.
    (tmp_path / "kept.toml").write_text(recipe.text)
    assert load_recipe(tmp_path / "kept.toml").name == "test"
    assert '# name = "longer"' in recipe.text
    (tmp_path / "recipe.toml").unlink()
    with pytest.raises(RecipeError, match=r"recipe\.toml: No such file"):
        load_recipe(path)


def test_data_root_is_taken_from_option_then_environment_then_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, RECIPE)
    monkeypatch.delenv("DRAGOMAN_DATA_ROOT", raising=False)
    assert load_recipe(path).data.train[0].source == Path.cwd() / "a.en"
    monkeypatch.setenv("DRAGOMAN_DATA_ROOT", "/from/environment")
    assert load_recipe(path).data.train[0].source == Path("/from/environment/a.en")
    chosen = load_recipe(path, data_root=Path("/from/option"))
    assert chosen.data.valid[0].target == Path("/from/option/v.de")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('preset = "tiny"', 'preset = "huge"', "model.preset must be one of tiny, small"),
        ("dropout = 0.3", "dropout = 1.5", r"dropout must be in \[0, 1\)"),
        ("dropout = 0.3", "d_modell = 3", "unknown field 'd_modell'"),
        ("dropout = 0.3", "vocab_size = 3", "set by vocabulary.vocab_size"),
        ("max_updates = 10", "max_updates = 0", "optimization.max_updates: .*greater than or"),
        ("max_updates = 10", "max_updates = 0", "equal to 1, not 0"),
        ("max_updates = 10", 'max_updates = "ten"', "optimization.max_updates: .*, not 'ten'"),
        ('source = "en"', 'source = "English"', "languages.source: .*, not 'English'"),
        ("max_updates = 10", "", "optimization.max_updates: Field required$"),
        ("max_updates = 10", "updates = 10", "optimization.updates: there is no such field"),
        (
            "max_updates = 10",
            "max_updates = 10\nmuon_learning_rate = 1e-3",
            'optimization: muon_learning_rate needs optimizer = "muon"',
        ),
        (
            "learning_rate = 1e-3",
            "learning_rate = 1\nextra = 1",
            "optimization.extra: there is no such field",
        ),
        ('source = "en"', 'source = "English"', "languages.source"),
        ('name = "test"', "name = ", "not TOML"),
    ],
)
def test_errors_name_the_file_and_the_field(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(RecipeError, match=rf"recipe\.toml: .*{message}"):
        load_recipe(write(tmp_path, RECIPE.replace(old, new, 1)))


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"absent\.toml: No such file"):
        load_recipe(tmp_path / "absent.toml")


def test_a_missing_corpus_is_named_with_its_data_root_and_how_to_set_it(tmp_path: Path) -> None:
    path = write(tmp_path, RECIPE)
    (tmp_path / "data").mkdir()
    for file in ("a.en", "a.de", "v.en"):
        (tmp_path / "data" / file).touch()
    recipe = load_recipe(path, data_root=tmp_path / "data")
    with pytest.raises(RecipeError) as error:
        check_files(recipe)
    for words in (
        f"{tmp_path}/data/v.de: there is no such file",
        "the target of data.valid, corpus 'a'",
        f"data root {tmp_path}/data;",
        "--data-root, by DRAGOMAN_DATA_ROOT or by data.root",
    ):
        assert words in str(error.value)
    (tmp_path / "data" / "v.de").touch()
    check_files(recipe)
    with pytest.raises(RecipeError, match=r"data root .*nowhere, which is not a folder"):
        check_files(load_recipe(path, data_root=tmp_path / "nowhere"))


def test_the_reference_is_up_to_date() -> None:
    """If not: python -m model.training.recipe_reference."""
    assert PAGE.read_text(encoding="utf-8") == recipe_reference()
