"""Heat maps: words, SVG, PNG and blocks."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cli.heat_map import HeatMap, heat_map
from cli.heat_map_svg import NoFontsError, png, svg
from cli.heat_map_text import text
from dragoman.results import AttentionMap, AttentionView, FinishReason, SourceToken, Token

SVG = "{http://www.w3.org/2000/svg}"
LABELS = st.text(st.characters(codec="utf-8"), max_size=12)


def view_of(*maps: AttentionMap) -> AttentionView:
    """ "No dogs" with three tokens, "Keine Hunde" with four; both with end-of-sentence."""
    facts: dict[str, Any] = dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), 1)
    return AttentionView(
        source_text="No dogs",
        translation="Keine Hunde",
        finish_reason=FinishReason.EOS,
        source_tokens=(
            SourceToken("▁No", 0, 2),
            SourceToken("▁dog", 3, 6),
            SourceToken("s", 6, 7),
            SourceToken("</s>", 7, 7),
        ),
        tokens=(
            Token("▁Kein", -0.1, 0, 4),
            Token("e", -0.1, 4, 5),
            Token("▁Hunde", -0.1, 6, 11),
            Token("</s>", -0.1, 11, 11),
        ),
        input_tokens=(
            SourceToken("<s>", 0, 0),
            SourceToken("▁Kein", 0, 4),
            SourceToken("e", 4, 5),
            SourceToken("▁Hunde", 6, 11),
        ),
        source_words=(0, 1, 1, 2),
        words=(0, 0, 1, 2),
        maps=maps,
        num_heads=1,
        model="m",
        queue_seconds=0.0,
        compute_seconds=0.0,
        request_id="",
        **facts,
    )


CROSS = AttentionMap(
    "cross",
    0,
    None,
    ((0.7, 0.1, 0.1, 0.1), (0.5, 0.2, 0.2, 0.1), (0.0, 0.6, 0.4, 0.0), (0.0, 0.0, 0.1, 0.9)),
)
DECODER = AttentionMap("decoder_self", None, 3, CROSS.rows)


def test_words_add_keys_and_average_queries() -> None:
    """Clark et al., 2019, section 4.1; rows still sum to one."""
    picture = heat_map(view_of(), CROSS, words=True)
    assert picture.rows == ["Keine", "Hunde", "</s>"]
    assert picture.columns == ["No", "dogs", "</s>"]
    expected = [[0.6, 0.3, 0.1], [0.0, 1.0, 0.0], [0.0, 0.1, 0.9]]
    for row, wanted in zip(picture.weights, expected, strict=True):
        assert list(row) == pytest.approx(wanted)


def test_tokens_are_shown_as_they_are() -> None:
    picture = heat_map(view_of(), CROSS, words=False)
    assert picture.weights == CROSS.rows
    assert picture.columns == ["▁No", "▁dog", "s", "</s>"]
    assert picture.title == "cross attention, layer 0, mean of heads"


def test_the_decoder_s_keys_are_what_it_read() -> None:
    picture = heat_map(view_of(), DECODER, words=True)
    assert picture.rows == ["Keine", "Hunde", "</s>"]
    assert picture.columns == ["<s>", "Keine", "Hunde"]
    assert picture.title == "decoder self attention, mean of layers, head 3"


def test_low_rank_attention_has_numbered_columns() -> None:
    low_rank = AttentionMap("cross", 0, 0, ((0.5, 0.5),) * 4)
    assert heat_map(view_of(), low_rank, words=True).columns == ["0", "1"]


def test_every_cell_is_drawn_once() -> None:
    root = ElementTree.fromstring(svg(heat_map(view_of(), CROSS, words=False)))
    num_cells = sum(path.attrib["d"].count("M") for path in root.iter(f"{SVG}path"))
    assert num_cells == sum(weight > 0 for row in CROSS.rows for weight in row)
    assert {"▁Hunde", "▁dog", "0.90"} <= {node.text for node in root.iter(f"{SVG}text")}


@given(st.lists(LABELS, min_size=1, max_size=4), st.lists(LABELS, min_size=1, max_size=4))
def test_any_label_gives_a_drawing(rows: list[str], columns: list[str]) -> None:
    weights = [[1 / len(columns)] * len(columns)] * len(rows)
    picture = HeatMap("t", "rows", "columns", rows, columns, weights)
    ElementTree.fromstring(svg(picture))
    assert all(line.isprintable() for line in text(picture, 80).split("\n"))


@pytest.mark.parametrize(
    "character", ["\0", "\x0b", "\x1b", "\x9b", "\xad", "\u202e", "\u2028", "\ufeff", "\ufffe"]
)
def test_a_character_without_a_shape_shows_as_such(character: str) -> None:
    picture = HeatMap("t", "r", "c", [f"a{character}b"], ["x"], [[1.0]])
    for drawing in (svg(picture), text(picture, 80)):
        assert character not in drawing
        assert "a\ufffdb" in drawing


def test_joiners_and_spaces_stay_what_they_are() -> None:
    persian, wide = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "a\u3000b"
    picture = HeatMap("t", "r", "c", [persian, wide], ["x"], [[1.0], [1.0]])
    assert f">{persian}<" in svg(picture)
    assert persian.replace("\u200c", "") in text(picture, 80)
    assert "\ufffd" not in text(picture, 80)


def test_a_png_has_the_size_of_the_drawing() -> None:
    pytest.importorskip("resvg_py")
    picture = heat_map(view_of(), CROSS, words=True)
    root = ElementTree.fromstring(svg(picture))
    try:
        content = png(svg(picture), zoom=2.0)
    except NoFontsError:
        pytest.skip("this machine has no fonts")
    assert content.startswith(b"\x89PNG")
    assert int.from_bytes(content[16:20]) == 2 * int(root.attrib["width"])


@pytest.mark.parametrize("width", [20, 30, 80])
def test_blocks_fit_into_the_terminal(width: int) -> None:
    labels = ["喜欢", "القطة", "a", "é", "longer label"]
    weights = [[float(i == j) for j in range(5)] for i in range(5)]
    drawn = text(HeatMap("t", "r", "c", labels, labels, weights), width)
    blocks = [line for line in drawn.split("\n") if "█" in line and "." not in line]
    assert sum(line.count("██") for line in blocks) == 5
    assert all(cell_len(line) <= width for line in blocks)
