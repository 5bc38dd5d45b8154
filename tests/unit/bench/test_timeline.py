"""The picture of a second: every sentence's time has a part, every run a bar."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from bench.engine.timeline import TimedSentence, measured, parts_of, picture, report, slowest
from model.bundle.processor import num_usable_cores
from tests.factories import SENTENCES, tiny_bundle

FOUND: dict[str, Any] = {
    "users": 2,
    "num_sentences": 2,
    "all": {"until the encode": 0.1, "encode": 0.05, "steps": 0.5, "tokens": 9.5},
    "slowest": {"until the encode": 0.2, "encode": 0.05, "steps": 0.9, "tokens": 20.0},
    "first": 5.0,
    "lanes": [[(4.9, 5.1, 3, False), (5.5, 5.6, 4, True)], [(6.5, 6.6, 1, False)]],
    "encodes": [(5.2, 5.3, 8, True)],
    "sentences": [
        {
            "submitted": 5.0,
            "encode_begins": 0.2,
            "encoded": 0.3,
            "joined": 0.3,
            "ended": 0.8,
            "num_tokens": 12,
        }
    ],
}


def bars(svg: str) -> list[tuple[float, float, str]]:
    found = re.findall(r'<rect x="([0-9.]+)" y="[0-9]+" width="([0-9.]+)" .*?<title>(.*?)</', svg)
    return [(float(x), float(width), title) for x, width, title in found]


def test_what_lies_outside_the_second_is_cut_off() -> None:
    first, second, encode, *sentence = bars(picture(FOUND))
    assert first[0] == 90.0
    assert first[1] == pytest.approx(0.1 * 960, abs=0.5)
    assert first[2] == "3, 200.0 ms"
    assert second[0] == 90.0 + 0.5 * 960
    assert encode[2] == "8, 100.0 ms"
    whole, its_encode, steps = sentence
    assert whole[1] == pytest.approx(0.8 * 960, abs=0.5)
    assert its_encode[0] == pytest.approx(90 + 0.2 * 960, abs=0.5)
    assert its_encode[1] == pytest.approx(96, abs=0.5)
    assert steps[0] + steps[1] == pytest.approx(whole[0] + whole[1], abs=0.5)


def test_a_sentence_s_parts_are_its_time() -> None:
    sentences = [
        TimedSentence(1.0 * n, 0.1 * n, 0.1 * n + 0.02, 0.2 * n + 0.02, 0.5 * n + 0.02, n)
        for n in range(1, 60)
    ]
    parts = parts_of(sentences)
    total = sum(one.ended for one in sentences) / len(sentences)
    assert sum(parts.values()) - parts["tokens"] == pytest.approx(total)
    assert [one.num_tokens for one in slowest(sentences)] == [59]


@pytest.mark.skipif(num_usable_cores() < 2, reason="lanes need two cores")
def test_the_engine_is_measured(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "bundle", precision="int8")
    found = asyncio.run(measured(bundle, SENTENCES[:4], users=3, seconds=1.0, warmup=0.1))
    assert found["num_sentences"] > 3
    assert found["sentences"]
    assert found["lanes"][0]
    assert all(found["first"] <= one.end for lane in found["lanes"] for one in lane)
    assert sum(found["all"].values()) > found["all"]["tokens"] > 0
    about = {"processor": "Some", "cpus": 2}
    text = report({"model": "m", "machine": about, "command": "c", "found": FOUND})
    assert "| the slowest 2 % | 200 ms | 50 ms | 900 ms | 20.0 |" in text
