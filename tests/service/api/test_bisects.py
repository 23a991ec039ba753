"""Bisects over REST: asked for, read, held, ended; and how a bad one is refused."""

from typing import Any

import pytest

from service.actions import plan
from service.actions.context import Context
from tests.service.api import things
from tests.service.api.conftest import Bearer
from tests.service.api.inprocess import InProcess

ASKED: dict[str, Any] = {"good": "v0.18.0", "bad": "v0.19.1", "recipe": "small", "workload": "tiny"}


@pytest.fixture
def asked(client: InProcess, bearer: Bearer, catalog: None) -> dict[str, Any]:
    answer = client.post("/api/v1/bisects", json=ASKED, headers=bearer("submitter"))
    assert answer.status_code == 201
    found: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == f"/api/v1/bisects/{found['id']}"
    return found


def test_a_bisect_can_be_read_and_listed(client: InProcess, ctx: Context, asked: dict[str, Any]) -> None:
    assert plan.plan(ctx) == 1
    view = client.get(f"/api/v1/bisects/{asked['id']}").json()
    assert (view["state"], [one["name"] for one in view["lineup"]]) == ("checking_ends", ["v0.18.0", "v0.19.1"])
    assert [job["build"]["name"] for job in view["jobs"]] == ["v0.18.0", "v0.19.1", "v0.19.1", "v0.18.0"]
    assert client.get(f"/api/v1/bisects/{asked['id']}/steps").json() == view["steps"]
    assert view["steps"][0]["orders"][0]["builds"] == ["v0.18.0", "v0.19.1", "v0.19.1", "v0.18.0"]
    (listed,) = client.get("/api/v1/bisects").json()
    assert {key: view[key] for key in listed} == listed


def test_the_report_is_markdown(client: InProcess, asked: dict[str, Any]) -> None:
    answer = client.get(f"/api/v1/bisects/{asked['id']}/report")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "v0.18.0" in answer.text


def test_it_is_held_and_ended_by_a_submitter(client: InProcess, bearer: Bearer, asked: dict[str, Any]) -> None:
    path, header = f"/api/v1/bisects/{asked['id']}", bearer("submitter")
    assert client.post(f"{path}/pause", headers=header).json()["paused"] is True
    assert client.post(f"{path}/resume", headers=header).json()["paused"] is False
    assert client.post(f"{path}/cancel", headers=header).json()["state"] == "cancelled"
    assert client.post(f"{path}/cancel", headers=header).status_code == 200
    refused = client.post(f"{path}/pause", headers=header)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert client.get(f"/api/v1/requests/{asked['request_id']}").json()["state"] == "cancelled"


def test_one_key_is_one_bisect(client: InProcess, bearer: Bearer, catalog: None) -> None:
    headers = {**bearer("submitter"), "Idempotency-Key": "night-1"}
    made = [client.post("/api/v1/bisects", json=ASKED, headers=headers).json()["id"] for _ in range(2)]
    assert made[0] == made[1]
    other = client.post("/api/v1/bisects", json={**ASKED, "seed": 5}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(
    ("change", "status", "code", "said"),
    [
        ({"good": "v0.18.00"}, 404, "unknown_build", "did you mean v0.18.0"),
        ({"recipe": "big"}, 404, "unknown_recipe", "small"),
        ({"metric": "speed"}, 422, "unknown_metric", "gsm8k"),
        ({"good": "v0.19.1", "bad": "v0.18.0"}, 422, "invalid_input", "does not come before"),
        ({"smallest": 0}, 422, "invalid_input", "body.smallest"),
        ({"max_launches": 3}, 422, "invalid_input", "body.max_launches"),
        ({"lineup": ["v0.18.0"]}, 422, "invalid_input", "body.lineup"),
        ({"blocks": 2}, 422, "invalid_input", "body.blocks"),
    ],
)
def test_a_bad_one_is_refused_with_why(
    client: InProcess, bearer: Bearer, change: dict[str, Any], status: int, code: str, said: str
) -> None:
    answer = client.post("/api/v1/bisects", json={**ASKED, **change}, headers=bearer("submitter"))
    body = answer.json()
    assert (answer.status_code, body["code"], answer.headers["content-type"]) == (
        status,
        code,
        "application/problem+json",
    )
    assert said in body["detail"]
    assert client.get("/api/v1/bisects").json() == []


def test_the_same_thing_twice_is_no_lineup(client: InProcess, bearer: Bearer, catalog: None) -> None:
    twin = {**things.BUILD, "name": "v0.18.0.post1", "version": "0.18.0.post1"}
    assert client.post("/api/v1/builds", json=twin, headers=bearer("submitter")).status_code == 200
    sent = {**ASKED, "bad": "v0.18.0.post1"}
    body = client.post("/api/v1/bisects", json=sent, headers=bearer("submitter")).json()
    assert (body["code"], "serve the same thing" in body["detail"]) == ("invalid_input", True)
