"""The cost of a sentence, from two pages of metrics."""

from __future__ import annotations

from bench.engine.cpu_time import SentenceCost, cost_of, counters

PAGE = """
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total {server}
# TYPE dragoman_model_process_cpu_seconds_total counter
dragoman_model_process_cpu_seconds_total{{model="a"}} {model}
dragoman_model_process_cpu_seconds_total{{model="b"}} 1.0
# TYPE dragoman_encoded_sentences_total counter
dragoman_encoded_sentences_total{{model="a"}} {sentences}
# TYPE dragoman_encode_duration_seconds histogram
dragoman_encode_duration_seconds_count{{model="a"}} {encodes}
# TYPE dragoman_step_rows histogram
dragoman_step_rows_count{{model="a"}} {steps}
dragoman_step_rows_sum{{model="a"}} {rows}
"""


def page(**values: float) -> str:
    return PAGE.format(**values)


def test_a_cost_is_the_growth_for_each_sentence_of_the_round() -> None:
    before = page(server=2.0, model=4.0, sentences=100, encodes=50, steps=200, rows=1000)
    after = page(server=3.0, model=9.0, sentences=1100, encodes=250, steps=700, rows=9000)
    cost = cost_of(counters(before), counters(after), rate=50.0, p50=7.0, p99=8.0)
    assert cost == SentenceCost(
        server=1.0, model=5.0, sources=5.0, rows=16.0, rate=50.0, p50=7.0, p99=8.0
    )
