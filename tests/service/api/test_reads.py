"""Reads need no token, and lists and single things agree."""

from typing import Any

import pytest

from service.contract.errors import BackslideError
from service.ruler.metrics import METRICS
from tests.service.api import things
from tests.service.api.conftest import Bearer
from tests.service.api.inprocess import InProcess


@pytest.mark.parametrize(
    "path", ["builds", "recipes", "workloads", "requests", "bisects", "launches", "runners", "events"]
)
def test_a_list_of_nothing_is_empty(client: InProcess, path: str) -> None:
    answer = client.get(f"/api/v1/{path}")
    assert (answer.status_code, answer.json()) == (200, [])


@pytest.mark.parametrize(
    "path",
    [
        "requests/req_1",
        "bisects/bis_1",
        "bisects/bis_1/steps",
        "bisects/bis_1/report",
        "jobs/job_1",
        "launches/lau_1",
        "launches/lau_1/artifacts/x",
    ],
)
def test_a_single_unknown_thing_is_not_found(client: InProcess, path: str) -> None:
    answer = client.get(f"/api/v1/{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_health_says_what_runs(client: InProcess) -> None:
    health = client.get("/api/v1/health").json()
    assert (health["status"], health["database"], health["protocol_version"]) == ("ok", "sqlite", 1)


def test_the_registry_of_metrics_has_every_metric(client: InProcess) -> None:
    found = client.get("/api/v1/metrics").json()
    assert [metric["name"] for metric in found] == list(METRICS)
    assert all(metric["formula"] and metric["unit"] for metric in found)


@pytest.mark.usefixtures("catalog")
def test_the_same_registration_again_is_the_same_row(client: InProcess, bearer: Bearer) -> None:
    first = client.post("/api/v1/builds", json=things.BUILD, headers=bearer("submitter")).json()
    again = client.post("/api/v1/builds", json=things.BUILD, headers=bearer("submitter")).json()
    assert first["id"] == again["id"]
    assert len(client.get("/api/v1/builds").json()) == 2


@pytest.mark.usefixtures("catalog")
def test_a_request_becomes_four_jobs_a_block_and_can_be_read(client: InProcess, bearer: Bearer) -> None:
    made = client.post("/api/v1/requests", json=things.COMPARISON, headers=bearer("submitter")).json()
    assert [job["build"]["name"] for job in made["jobs"]] == ["v0.18.0", "v0.19.1", "v0.19.1", "v0.18.0"]
    assert made["submitter"] == "a submitter"
    assert client.get(f"/api/v1/requests/{made['id']}").json() == made
    (listed,) = client.get("/api/v1/requests").json()
    assert listed["id"] == made["id"]
    assert client.get(f"/api/v1/jobs/{made['jobs'][0]['id']}").json() == made["jobs"][0]
    events = client.get("/api/v1/events", params={"request": made["id"]}).json()
    assert [event["id"] for event in events] == sorted(event["id"] for event in events)
    assert client.get("/api/v1/events", params={"after": events[-1]["id"]}).json() == []


@pytest.mark.usefixtures("catalog")
def test_one_idempotency_key_is_one_request(client: InProcess, bearer: Bearer) -> None:
    def submit(**changes: Any) -> Any:
        headers = {**bearer("submitter"), "Idempotency-Key": "nightly-1"}
        return client.post("/api/v1/requests", json={**things.COMPARISON, **changes}, headers=headers)

    assert submit().json()["id"] == submit().json()["id"]
    assert len(client.get("/api/v1/requests").json()) == 1
    other = submit(seed=5)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


@pytest.mark.usefixtures("catalog")
def test_a_comparison_of_unmeasured_builds_says_how_to_measure_them(client: InProcess) -> None:
    answer = client.get("/api/v1/compare/v0.18.0...v0.19.1")
    assert answer.status_code == 404
    assert "backslide compare v0.18.0 v0.19.1 --measure" in answer.json()["detail"]


@pytest.mark.usefixtures("catalog")
def test_a_comparison_by_an_unknown_metric_names_those_there_are(client: InProcess) -> None:
    answer = client.get("/api/v1/compare/v0.18.0...v0.19.1?metric=speed").json()
    assert (answer["status"], answer["code"]) == (422, "unknown_metric")
    assert "tpot_p50_ms" in answer["allowed"]


def test_launches_of_an_unknown_build_are_refused_not_empty(client: InProcess) -> None:
    assert client.get("/api/v1/launches?build=v9").json()["code"] == "unknown_build"


@pytest.mark.usefixtures("catalog")
def test_an_open_request_has_a_comparison_without_a_verdict(client: InProcess, bearer: Bearer) -> None:
    made = client.post("/api/v1/requests", json=things.COMPARISON, headers=bearer("submitter")).json()
    view = client.get(f"/api/v1/requests/{made['id']}/comparison").json()
    assert view["verdict"] == "unknown"
    assert view["request_id"] == made["id"]
    assert client.get(f"/api/v1/requests/{made['id']}/comparison?metric=itl_p50").json()["metric"] == "itl_p50_ms"


def test_the_tree_of_errors_in_the_docstring_is_the_tree() -> None:
    import service.contract.errors as errors

    drawn = {line.split("─ ")[-1].split()[0] for line in (errors.__doc__ or "").splitlines() if "─ " in line}
    real = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BackslideError)}
    assert drawn | {"BackslideError"} == real
