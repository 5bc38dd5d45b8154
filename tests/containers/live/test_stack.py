"""Two replicas behind Envoy, watched by Prometheus."""

import json
import os
import re
import signal
import struct
import subprocess
import urllib.request

import grpc
import pytest

from dragoman.client import Client
from dragoman.v1 import translation_pb2 as pb
from dragoman.v1.translation_pb2_grpc import TranslationServiceStub
from tests.containers.live.stack import ENVOY, Stack, channel, load
from tests.containers.promql import (
    adapter_queries,
    alerts,
    keda_queries,
    metric_names,
    recorded,
)
from tests.containers.tools import DOCKER
from tests.containers.waiting import eventually

# The first test waits for the images.
pytestmark = [pytest.mark.containers, pytest.mark.timeout(1200)]

TEXTS = [line for line in (DOCKER / "load.en.txt").read_text().splitlines() if line]
PAGE = "\n".join(TEXTS * 2)


def test_our_client_translates_through_envoy(stack: Stack) -> None:
    with Client(ENVOY) as client:
        batch = client.translate(TEXTS)
        assert [item.error for item in batch.translations] == [None] * len(TEXTS)
        assert "".join(map(str, list(client.stream(PAGE))[:-1])).strip()


def test_json_is_translated_like_grpc(stack: Stack) -> None:
    status, answer = stack.post("/v1/translate", {"contents": TEXTS[:2]})
    assert status == 200
    with channel() as open_channel:
        request = pb.TranslateRequest(contents=TEXTS[:2])
        same = TranslationServiceStub(open_channel).Translate(request, timeout=60)
    texts = [item["translatedText"] for item in answer["translations"]]
    assert texts == [item.translated_text for item in same.translations]
    with urllib.request.urlopen(f"http://{ENVOY}/v1/models", timeout=30) as response:
        models = json.load(response)["models"]
    with urllib.request.urlopen(f"http://{ENVOY}/v1/models/{models[0]['name']}") as response:
        assert json.load(response) == models[0]
    with urllib.request.urlopen(f"http://{ENVOY}/v1/languages", timeout=30) as response:
        assert models[0]["name"] in json.load(response)["groups"][0]["models"]


def test_curl_translates(stack: Stack) -> None:
    body = json.dumps({"contents": ["A dog is running."]})
    command = ["curl", "--silent", "--fail-with-body", "--max-time", "60", "--data", body]
    command += ["--header", "content-type: application/json", f"http://{ENVOY}/v1/translate"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["translations"][0]["translatedText"]


def test_errors_are_json_too(stack: Stack) -> None:
    status, answer = stack.post("/v1/translate", {"contents": []})
    assert status == 400
    assert answer["code"] == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    (detail,) = answer["details"]
    assert detail["fieldViolations"][0]["field"] == "contents"
    status, answer = stack.post("/v1/translate", {"contents": ["a"], "model": "none"})
    assert status == 404
    assert "none" in answer["message"]


def test_a_call_has_one_id_in_the_answer_and_in_both_logs(stack: Stack) -> None:
    def logged(container: str) -> set[str]:
        return {line.get("request_id", "") for line in stack.docker.log(container)}

    (envoy,) = stack.docker.compose("ps", "--quiet", "envoy").split()
    body = json.dumps({"contents": TEXTS[:1]}).encode()
    for own in ({}, {"x-request-id": "order:17"}):
        headers = {"content-type": "application/json", **own}
        request = urllib.request.Request(f"http://{ENVOY}/v1/translate", body, headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            found = response.headers["x-request-id"]
        assert found == own.get("x-request-id", found)
        servers = stack.replicas()
        eventually(lambda: any(found in logged(item) for item in servers), "the server's log")  # noqa: B023
        eventually(lambda: found in stack.docker("logs", envoy), "Envoy's log")  # noqa: B023


def test_an_unknown_field_is_an_error(stack: Stack) -> None:
    status, answer = stack.post("/v1/translate", {"contents": ["a"], "target_text": "b"})
    assert status == 400
    (detail,) = answer["details"]
    assert detail["fieldViolations"][0]["field"] == "target_text"


def test_streams_are_json_too(stack: Stack) -> None:
    body = json.dumps({"content": PAGE}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://{ENVOY}/v1/translate:stream", body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        lines = response.read().decode().splitlines()
    events = [json.loads(line.removeprefix("data:")) for line in lines if line[:5] == "data:"]
    assert "summary" in events[-1]
    _, whole = stack.post("/v1/translate", {"contents": [PAGE]})
    joined = "".join(event["delta"]["text"] for event in events[:-1])
    assert joined == whole["translations"][0]["translatedText"]


def test_browsers_call_it_by_grpc_web(stack: Stack) -> None:
    message = pb.TranslateRequest(contents=TEXTS[:1]).SerializeToString()
    request = urllib.request.Request(
        f"http://{ENVOY}/dragoman.v1.TranslationService/Translate",
        struct.pack(">BI", 0, len(message)) + message,
        {
            "content-type": "application/grpc-web+proto",
            "x-grpc-web": "1",
            "origin": "http://localhost:5173",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.headers["access-control-allow-origin"] == "http://localhost:5173"
        data = response.read()
    kind, length = struct.unpack(">BI", data[:5])
    assert kind == 0
    assert pb.TranslateResponse.FromString(data[5 : 5 + length]).translations[0].translated_text
    trailers = data[5 + length :]
    assert trailers[0] == 0x80  # marks trailers
    assert b"grpc-status:0" in trailers


@pytest.mark.parametrize(
    "headers", [{"origin": "https://elsewhere.example"}, {"host": "elsewhere.example"}]
)
def test_pages_and_names_of_others_are_refused(stack: Stack, headers: dict[str, str]) -> None:
    assert stack.post("/v1/translate", {"contents": TEXTS[:1]}, **headers)[0] == 403


def test_other_services_apis_and_the_page_are_behind_envoy_too(stack: Stack) -> None:
    status, answer = stack.post("/translate", {"q": TEXTS[0], "source": "en", "target": "de"})
    assert (status, bool(answer["translatedText"])) == (200, True)
    with urllib.request.urlopen(f"http://{ENVOY}/", timeout=30) as response:
        assert "text/html" in response.headers["content-type"]


def test_a_deadline_reaches_the_replica(stack: Stack) -> None:
    def ended_early() -> float:
        codes = 'dragoman_requests_total{code=~"DEADLINE_EXCEEDED|CANCELLED"}'
        return sum(float(item["value"][1]) for item in stack.query(f"sum({codes})"))

    before = ended_early()
    with channel() as open_channel:
        # Connected, so that a slow machine has the time to bring the request to a replica; and
        # more work than a quick one does in it.
        grpc.channel_ready_future(open_channel).result(timeout=60)
        request = pb.TranslateRequest(contents=[" ".join(TEXTS)] * 500)
        with pytest.raises(grpc.RpcError) as caught:
            TranslationServiceStub(open_channel).Translate(request, timeout=2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    eventually(lambda: ended_early() > before, "the replica ended the call")


def test_both_replicas_work_and_are_scraped(stack: Stack) -> None:
    with load(TEXTS, TEXTS) as running:
        running.more(10)
    assert running.failed == []
    eventually(lambda: len(stack.query('up{job="dragoman"} == 1')) == 2, "Prometheus sees both")
    busy = 'dragoman_requests_total{method="Translate", code="OK"} > 5'
    eventually(lambda: len(stack.query(busy)) == 2, "both have worked")
    eventually(lambda: len(stack.query('up{job="envoy"} == 1')) == 1, "Prometheus sees Envoy")


def test_the_profile_load_measures_it(stack: Stack) -> None:
    chosen = {**stack.environment, "LOAD_RATE": "4", "LOAD_DURATION": "3s"}
    command = ("--profile", "load", "run", "--rm", "load")
    status, report = stack.docker.compose_status(*command, **chosen)
    # 3: it says itself that this machine was too busy to measure on.
    assert status in (0, 3), report
    ((sent, answered),) = re.findall(r"requests +(\d+) \((\d+) answered\)", report)
    assert int(sent) == int(answered) > 0
    assert re.search(r"errors +none", report)


def test_every_panel_and_every_alert_has_data(stack: Stack) -> None:
    dashboard = json.loads((DOCKER / "grafana/dashboards/dragoman.json").read_text())
    expressions = [
        re.sub(r"\$(namespace|job|model)", ".*", target["expr"].replace("$__rate_interval", "1m"))
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]
    # Of GPUs, of bundles that have a graph to score with, of pairs without a model, of keys and of
    # a response cache, which this stack has none of; of translations that are wrong, and of
    # documents, of which it gets none.
    without = {
        "dragoman_device_memory_bytes",
        "dragoman_document_work_duration_seconds_bucket",
        "dragoman_document_workers_killed_total",
        "dragoman_pivoted_calls_total",
        "dragoman_response_cache_bytes",
        "dragoman_response_cache_lookups_total",
        "dragoman_response_cache_store_keys_total",
        "dragoman_translation_warnings_total",
        "dragoman_key_requests_total",
        "dragoman_key_characters_total",
    }
    pair = {"sourceText": TEXTS[0], "translatedText": "Ein Hund."}
    status, answer = stack.post("/v1/score", {"pairs": [pair]})
    if status != 200:
        assert "score" in answer["message"], answer
        without.add("dragoman_score_duration_seconds_bucket")
    expressions = [item for item in expressions if not metric_names(item) & without]
    assert len(expressions) > 45

    def has_figures(expression: str) -> bool:
        # A quantile of what did not happen is NaN: nobody lists models here.
        return any(item["value"][1] != "NaN" for item in stack.query(expression))

    named = {name for alert in alerts().values() for name in metric_names(alert["expr"])}
    with load(TEXTS, [PAGE]) as running:
        running.more(5)
        scaling = [*adapter_queries(group_by="instance").values(), *keda_queries().values()]
        for expression in [*expressions, *named, *recorded(), *scaling]:
            eventually(lambda: has_figures(expression), expression)  # noqa: B023
    assert running.failed == []


def test_a_killed_replica_costs_no_call(stack: Stack) -> None:
    def tried_again() -> float:
        found = stack.query('envoy_cluster_upstream_rq_retry{envoy_cluster_name="dragoman"}')
        return sum(float(item["value"][1]) for item in found)

    def busy(replica: str) -> bool:
        return stack.metric(replica, "dragoman_requests_in_flight", method="Translate") > 0

    before = tried_again()
    with load(TEXTS) as running:
        for replica in stack.replicas():
            running.more(5)
            about = stack.docker.inspect(replica)
            eventually(lambda: busy(replica), "it has calls in progress")  # noqa: B023
            # As the kernel does when memory runs out; the engine starts it again.
            os.kill(about["State"]["Pid"], signal.SIGKILL)
            running.more(10)
            eventually(
                lambda: stack.docker.inspect(replica)["RestartCount"] > about["RestartCount"],  # noqa: B023
                "it is started again",
            )
            stack.docker.wait_healthy(replica)
    assert running.failed == []
    eventually(lambda: tried_again() > before, "Envoy has tried calls again")


def test_a_frozen_replica_costs_no_call(stack: Stack) -> None:
    replica, _ = stack.replicas()
    with load(TEXTS) as running:
        running.more(5)
        stack.docker.pause(replica)
        try:
            # Every caller gets on, also those whose call froze.
            running.more(20)
        finally:
            stack.docker("unpause", replica)
        running.more(5)
    assert running.failed == []


def test_a_rolling_restart_costs_no_call_and_cuts_no_stream(stack: Stack) -> None:
    def streams(replica: str) -> float:
        return stack.metric(replica, "dragoman_requests_in_flight", method="StreamTranslate")

    with load(TEXTS, [PAGE]) as running:
        for replica in stack.replicas():
            running.more(1)
            eventually(lambda: streams(replica), "it has a stream in progress")  # noqa: B023
            stack.docker("restart", "--time", "40", replica)
            stack.docker.wait_healthy(replica)
        running.more(1)
    assert running.failed == []
    for replica in stack.replicas():
        messages = [line["message"] for line in stack.docker.log(replica)]
        assert "stopped" in messages
        assert not [message for message in messages if "cut off" in message]


def test_our_client_balances_by_itself(stack: Stack) -> None:
    def answered() -> dict[str, float]:
        found = stack.query('dragoman_requests_total{method="ListModels", code="OK"}')
        return {item["metric"]["instance"]: float(item["value"][1]) for item in found}

    before = answered()
    code = """
from dragoman.client import Client
with Client("dns:///dragoman:50051") as client:
    for _ in range(400):
        client.list_models()
"""
    stack.docker(
        *("run", "--rm", "--network", "dragoman_default", "--entrypoint", "python"),
        *("dragoman:cpu", "-c", code),
    )

    def shares() -> list[float]:
        return sorted(count - before.get(name, 0.0) for name, count in answered().items())

    eventually(lambda: sum(shares()) >= 400, "Prometheus sees the calls")
    # Not half of them: until it is connected to the second replica, all go to the first.
    assert shares()[-2] >= 50
