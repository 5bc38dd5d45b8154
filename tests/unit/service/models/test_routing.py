"""The choice of models for a pair of languages: one, or two through a third language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.bundle.directions import Directions
from service.errors import InvalidArgumentError, NotFoundError, StartupError
from service.models.registry import Registry
from service.models.routing import Route, Router
from service.models.routing_rules import RoutingRules
from service.models.served_model import ServedModel

CODES = ("en", "de", "fr", "es")


def model(name: str, source: str, target: str) -> ServedModel:
    """A model that is only chosen."""
    nothing = cast(Any, None)
    directions = Directions.one(source, target)
    return ServedModel(name, "1", directions, "int8", "cpu", nothing, nothing)


def registry(*pairs: str, **rules: Any) -> Registry:
    """Models "a", "b" ... for pairs such as "en-de"."""
    models = [
        model(name, *pair.rsplit("-", 1)) for name, pair in zip("abcdefgh", pairs, strict=False)
    ]
    return Registry(models, RoutingRules(**rules))


def names(route: Route) -> list[str]:
    return [leg.model.name for leg in route.legs]


class ChangingModels:
    """The models of a server, some of which are replaced."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.models = list(models)

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self.models)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(CODES), st.sampled_from((*CODES, "en-GB", ""))),
            st.tuples(st.integers(0, 3), st.sampled_from(["en-de", "de-fr", "fr-en", "en-es"])),
        ),
        max_size=12,
    )
)
def test_routes_that_were_found_before_are_those_of_a_new_router(
    operations: Sequence[tuple[str, str] | tuple[int, str]],
) -> None:
    changing = ChangingModels([model(str(number), "en", "de") for number in range(4)])
    router = Router(changing, RoutingRules())

    def found(by: Router, source: str, target: str) -> Route | str:
        try:
            return by.route(source, target)
        except (InvalidArgumentError, NotFoundError) as exc:
            return str(exc)

    for first, second in operations:
        if isinstance(first, int):
            changing.models[first] = model(str(first), *second.split("-"))
        else:
            for _ in range(2):
                new = Router(changing, RoutingRules())
                assert found(router, first, second) == found(new, first, second)


@given(
    pairs=st.lists(st.tuples(st.sampled_from(CODES), st.sampled_from(CODES)), max_size=6),
    source=st.sampled_from(CODES),
    target=st.sampled_from(CODES),
)
def test_a_route_is_direct_if_it_can_be_and_has_at_most_one_pivot(
    pairs: Sequence[tuple[str, str]], source: str, target: str
) -> None:
    pairs = [("xx", "yy"), *(pair for pair in pairs if pair[0] != pair[1])]
    made = Registry([model(str(number), *pair) for number, pair in enumerate(pairs)])
    through = [code for code in CODES if (source, code) in pairs and (code, target) in pairs]
    if (source, target) in pairs:
        route = made.route("", source, target)
        assert (route.model.name, route.pivot_language) == (str(pairs.index((source, target))), "")
    elif through and source != target:
        route = made.route("", source, target)
        assert route.pivot_language in through
        assert route.pivot_language == "en" or "en" not in through
        assert [(leg.source, leg.target) for leg in route.legs] == [
            (source, route.pivot_language),
            (route.pivot_language, target),
        ]
        assert all(leg.model.fits(leg.source, leg.target) for leg in route.legs)
        with pytest.raises(NotFoundError, match="Through"):
            made.route("", source, target, allow_pivot=False)
    else:
        with pytest.raises(NotFoundError, match="xx to yy"):
            made.route("", source, target)


@given(
    st.lists(st.permutations(CODES).map(lambda codes: tuple(codes[:2])), min_size=1, max_size=8),
    st.sampled_from([(), ("fr",)]),
)
def test_pivots_of_a_list_are_those_of_routes(
    pairs: list[tuple[str, str]], pivots: tuple[str, ...]
) -> None:
    models = [model(str(number), *pair) for number, pair in enumerate(pairs)]
    try:
        made = Registry(models, RoutingRules(pivot_languages=pivots))
    except StartupError:  # no model translates through the pivot
        return
    listed = [
        (source, target, pivot)
        for sources, targets, pivot in made.pivot_groups(models)
        for source in sources
        for target in targets
        if source != target
    ]
    assert len(listed) == len(set(listed))
    of_pair = {(source, target): pivot for source, target, pivot in listed}
    reachable = made.reachable_targets(models)
    for source in {source for source, _ in pairs}:
        for target in set(CODES) - {source}:
            try:
                through = made.route("", source, target).pivot_language
            except NotFoundError:
                assert target not in reachable[source]
                continue
            assert target in reachable[source]
            assert of_pair.get((source, target), "") == through


def test_the_default_of_a_pair_is_preferred_to_the_first_that_fits() -> None:
    pairs = ("en-de", "en-de", "de-fr", "de-fr")
    assert names(registry(*pairs).route("", "en", "de")) == ["a"]
    made = registry(*pairs, defaults=("en-de=b", "DE-fr=d"))
    assert names(made.route("", "en", "de")) == ["b"]
    assert names(made.route("", "EN-GB", "de-AT")) == ["b"]
    assert names(made.route("", "", "de")) == ["b"]
    assert names(made.route("a", "en", "de")) == ["a"]
    assert names(made.route("", "en", "fr")) == ["b", "d"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("en-de", "must be like en-de=NAME, not 'en-de'"),
        ("en=b", "must be like en-de=NAME"),
        ("en-de=", "must be like en-de=NAME"),
        ("en-de=z", "there is no model 'z'; there are: a, b"),
        ("en-fr=b", "b does not translate en-fr; it translates: en to de"),
    ],
)
def test_a_default_that_makes_no_sense_is_named(text: str, message: str) -> None:
    with pytest.raises(StartupError, match=f"setting default: .*{message}"):
        registry("en-de", "en-de", defaults=(text,))


def test_a_pair_has_one_default() -> None:
    with pytest.raises(StartupError, match="en-de has two models, 'a' and 'b'"):
        registry("en-de", "en-de", defaults=("en-de=a", "en-de=b"))
    registry("en-de", "en-de", defaults=("en-de=a", "en-de=a"))


def test_the_codes_of_a_default_are_cut_where_the_model_has_such_a_direction() -> None:
    models = [model("a", "pt", "en"), model("b", "pt-BR", "zh-Hant"), model("c", "pt", "en")]
    made = Registry(models, RoutingRules(("pt-BR-zh-Hant=b", "pt-en=c")))
    assert names(made.route("", "pt-BR", "zh-Hant")) == ["b"]
    assert names(made.route("", "pt", "en")) == ["c"]


def test_english_is_the_usual_pivot_and_the_rules_may_name_others() -> None:
    pairs = ("de-fr", "fr-es", "de-en", "en-es", "de-it", "it-es")
    assert names(registry(*pairs).route("", "de", "es")) == ["c", "d"]
    french = registry(*pairs, pivot_languages=("FR", "en")).route("", "de", "es")
    assert (names(french), french.pivot_language, french.pivot_model) == (["a", "b"], "fr", "a")
    with pytest.raises(NotFoundError, match=r"it translates: .*de to fr"):
        registry(*pairs[:4], pivot_languages=("en",)).route("", "fr", "de")


@pytest.mark.parametrize("code", ["pl", "de", "es"])
def test_a_pivot_that_does_not_exist_is_refused_at_the_start(code: str) -> None:
    with pytest.raises(StartupError, match=f"pivot_languages: .*through '{code}'.* there are: en"):
        registry("de-en", "en-es", pivot_languages=(code,))


def test_a_pivot_can_be_switched_off_by_the_server_and_by_the_request() -> None:
    pairs = ("de-en", "en-fr")
    made = registry(*pairs)
    assert names(made.route("", "de", "fr", allow_pivot=True)) == ["a", "b"]
    with pytest.raises(
        NotFoundError, match=r"'de' to 'fr'; it translates: de to en, en to fr. Thr"
    ):
        made.route("", "de", "fr", allow_pivot=False)
    off = registry(*pairs, pivots=False)
    for wish in (None, True):
        with pytest.raises(NotFoundError, match="--no-pivot"):
            off.route("", "de", "fr", allow_pivot=wish)


def test_a_region_is_served_by_its_language_on_both_legs() -> None:
    made = registry("de-en", "en-fr")
    assert names(made.route("", "de-AT", "fr-CA")) == ["a", "b"]
    american = Registry([model("a", "de", "en-US"), model("b", "en", "fr")])
    route = american.route("", "de", "fr")
    assert (names(route), route.pivot_language) == (["a", "b"], "en-US")
    assert names(american.route("", "de", "en-US")) == ["a"]


def test_a_named_model_translates_alone() -> None:
    made = registry("de-en", "en-fr")
    with pytest.raises(NotFoundError, match="model a does not translate from 'de' to 'fr'"):
        made.route("a", "de", "fr", allow_pivot=True)


@pytest.mark.parametrize("code", ["english", "xx", "e", "e-GB", "e" * 100, "grün"])
def test_what_is_no_language_code_is_called_so(code: str) -> None:
    made = registry("en-de")
    for pair in ((code, "de"), ("en", code)):
        with pytest.raises(
            NotFoundError, match=r" is not a language code.*; it translates: en to de"
        ):
            made.route("", *pair)
    for other in ("fr", "fra_Latn", ">>fra<<", "__sr__", "iw", "ceb", "zh-Hant-TW"):
        with pytest.raises(NotFoundError, match=r"^this server does not translate from 'en' to"):
            made.route("", "en", other)


def test_without_both_languages_there_is_no_pivot() -> None:
    made = registry("de-en", "en-fr", "en-es")
    assert names(made.route("", "de", "")) == ["a"]
    with pytest.raises(InvalidArgumentError, match="one of: es, fr"):
        made.route("", "en", "")
    with pytest.raises(NotFoundError, match="'fr' to any language"):
        made.route("", "fr", "")


def test_a_multilingual_model_takes_either_part_of_a_route() -> None:
    nothing = cast(Any, None)
    many = Directions(("en", "de", "fr"), ("en", "de", "fr"))
    models = [
        ServedModel("many", "1", many, "int8", "cpu", nothing, nothing),
        model("mg", "en", "mg"),
        model("en-de", "en", "de"),
        model("from-mg", "mg", "fr"),
    ]
    made = Registry(models, RoutingRules(("en-de=en-de",)))
    assert names(made.route("", "de", "fr")) == ["many"]
    assert names(made.route("", "en", "de")) == ["en-de"]
    into = made.route("", "fr", "mg")
    assert (names(into), into.pivot_language) == (["many", "mg"], "en")
    out_of = made.route("", "mg", "de")
    assert (names(out_of), out_of.pivot_language) == (["from-mg", "many"], "fr")
    with pytest.raises(NotFoundError, match=r"between en, de, fr, en to de, en to mg, mg to fr"):
        made.route("", "mg", "xx")


CHOICES: list[tuple[str, str]] = []


class CountedDirections(Directions):
    """Records each choice of a direction, which takes time on the event loop."""

    def choose(self, source: str, target: str) -> tuple[str, str]:
        CHOICES.append((source, target))
        return super().choose(source, target)


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize(
    ("source", "target"),
    [("en", "xx"), ("xx", "en"), ("en", "en"), ("en-GB", "en-US"), ("-".join(["aa"] * 21), "en")],
)
def test_a_bad_code_costs_a_few_choices_with_many_languages(
    source: str, target: str, allowed: bool
) -> None:
    codes = ("en", *(f"q{one}{two}" for one in "abcdefghijklmnopqrst" for two in "abcdefghij"))
    many = CountedDirections(codes, codes)
    nothing = cast(Any, None)
    made = Registry([ServedModel("many", "1", many, "int8", "cpu", nothing, nothing)])
    CHOICES.clear()
    with pytest.raises(NotFoundError):
        made.route("", source, target, allow_pivot=allowed)
    assert len(CHOICES) <= 4


def test_a_pivot_language_that_could_be_several_is_passed_over() -> None:
    nothing = cast(Any, None)
    chinese = Directions(("zh-Hans", "zh-Hant", "en"), ("en", "fr"))
    models = [
        model("a", "mg", "zh"),
        ServedModel("chinese", "1", chinese, "int8", "cpu", nothing, nothing),
        model("c", "zh", "es"),
    ]
    with pytest.raises(NotFoundError):
        Registry(models).route("", "mg", "fr")
    with pytest.raises(NotFoundError):
        Registry(models, RoutingRules(pivot_languages=("zh",))).route("", "mg", "fr")
    more = Registry([*models, model("d", "mg", "ar"), model("e", "ar", "fr")])
    assert names(more.route("", "mg", "fr")) == ["d", "e"]


def test_a_client_s_own_language_that_could_be_several_is_named() -> None:
    nothing = cast(Any, None)
    chinese = Directions(("zh-Hans", "zh-Hant", "en"), ("zh-Hans", "zh-Hant", "en"))
    models = [
        ServedModel("chinese", "1", chinese, "int8", "cpu", nothing, nothing),
        model("a", "en", "mg"),
        model("b", "mg", "en"),
    ]
    made = Registry(models)
    for pair, field in ((("zh", "mg"), "source"), (("mg", "zh"), "target")):
        with pytest.raises(InvalidArgumentError, match="zh-Hans, zh-Hant") as caught:
            made.route("", *pair)
        assert caught.value.field == f"{field}_language_code"
    with pytest.raises(NotFoundError):
        made.route("", "mg", "zh", allow_pivot=False)
