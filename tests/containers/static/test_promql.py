"""The tests' own reader of PromQL."""

import pytest

from tests.containers.promql import metric_names, server_metrics


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("up == 0", {"up"}),
        ('sum by (job, le) (rate(a_bucket{job=~"x|y", z="{"}[5m])) or vector(0)', {"a_bucket"}),
        ("histogram_quantile(0.99, sum by (le) (rate(b_bucket[$__rate_interval])))", {"b_bucket"}),
        ("max(a:b:c{x!=''} >= 0) / on (x) group_left (y) d", {"a:b:c", "d"}),
        ("count by (job) (count by (job, v) (info)) > 1e3", {"info"}),
    ],
)
def test_names_in_expressions(expression: str, names: set[str]) -> None:
    assert metric_names(expression) == names


def test_names_that_a_server_gives() -> None:
    names = server_metrics()
    assert {"dragoman_requests_total", "dragoman_rows", "dragoman_step_rows_bucket", "up"} <= names
    assert "process_cpu_seconds_total" in names
    assert "dragoman_requests" not in names
