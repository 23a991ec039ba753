"""The runner protocol over HTTP, from enrolment to result; every call twice where a runner would repeat it."""

import hashlib
from typing import Any

import pytest

from service.actions.context import Context
from tests.service.api import things
from tests.service.api.attempts import AGENT, Attempt, Headers, bearing, completed, failed, launch_files
from tests.service.api.conftest import Bearer
from tests.service.api.inprocess import InProcess


@pytest.fixture
def runner(client: InProcess, bearer: Bearer) -> Headers:
    """The header of an enrolled runner."""
    token = client.post("/api/v1/runners/enrolment-tokens", json={}, headers=bearer("operator")).json()["token"]
    answer = client.post(f"{AGENT}/enrol", json=things.ENROL, headers=bearing(token))
    assert answer.status_code == 200
    return bearing(answer.json()["token"])


@pytest.fixture
def submitted(client: InProcess, bearer: Bearer, catalog: None) -> dict[str, Any]:
    answer = client.post("/api/v1/requests", json=things.COMPARISON, headers=bearer("submitter"))
    assert answer.status_code == 201
    request: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/api/v1/requests/{request['id']}"
    return request


@pytest.fixture
def lease(client: InProcess, runner: Headers, submitted: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(f"{AGENT}/lease", json=_wanted(), headers=runner)
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def _wanted(request_id: str = "lrq_00000001", slot: int = 0) -> dict[str, Any]:
    return {"request_id": request_id, "boot_id": things.BOOT, "slot": slot, "wait_s": 0}


def test_an_enrolment_token_enrols_one_runner_once(client: InProcess, bearer: Bearer) -> None:
    token = client.post("/api/v1/runners/enrolment-tokens", json={}, headers=bearer("operator")).json()["token"]
    assert client.post(f"{AGENT}/enrol", json=things.ENROL, headers=bearing(token)).status_code == 200
    again = client.post(f"{AGENT}/enrol", json={**things.ENROL, "name": "node2"}, headers=bearing(token))
    assert (again.status_code, again.json()["code"]) == (401, "token_invalid")
    made_up = client.post(f"{AGENT}/enrol", json=things.ENROL, headers=bearing("bke_made-up"))
    assert made_up.json()["code"] == "token_invalid"


def test_a_heartbeat_is_answered_with_what_to_do(client: InProcess, runner: Headers, bearer: Bearer) -> None:
    beat = client.post(f"{AGENT}/heartbeat", json=things.HEARTBEAT, headers=runner)
    assert beat.json() == {"directive": "continue", "interval_s": 30.0}
    (known,) = client.get("/api/v1/runners").json()
    drained = client.post(f"/api/v1/runners/{known['id']}/drain", json={}, headers=bearer("operator"))
    assert drained.json()["drain_requested"] is True
    assert client.post(f"{AGENT}/heartbeat", json=things.HEARTBEAT, headers=runner).json()["directive"] == "drain"
    client.post(f"/api/v1/runners/{known['id']}/drain", json={"on": False}, headers=bearer("operator"))
    assert client.post(f"{AGENT}/heartbeat", json=things.HEARTBEAT, headers=runner).json()["directive"] == "continue"


def test_without_work_a_lease_call_ends_empty(client: InProcess, runner: Headers) -> None:
    answer = client.post(f"{AGENT}/lease", json=_wanted(), headers=runner)
    assert (answer.status_code, answer.content) == (204, b"")


def test_the_same_lease_request_gets_the_same_lease(
    client: InProcess, runner: Headers, lease: dict[str, Any], submitted: dict[str, Any]
) -> None:
    assert lease["request_id"] == submitted["id"]
    assert client.post(f"{AGENT}/lease", json=_wanted(), headers=runner).json() == lease


def test_an_attempts_token_opens_that_attempt_and_no_other(
    client: InProcess, runner: Headers, lease: dict[str, Any], bearer: Bearer
) -> None:
    second = client.post("/api/v1/requests", json={**things.COMPARISON, "seed": 1}, headers=bearer("submitter"))
    assert second.status_code == 201
    other = client.post(f"{AGENT}/lease", json=_wanted("lrq_00000002", slot=1), headers=runner).json()
    assert other["attempt_id"] != lease["attempt_id"]
    body = {"fence": lease["fence"], "state": "preparing", "step": "prepare"}
    path = f"{AGENT}/attempts/{lease['attempt_id']}/renew"
    assert client.post(path, json=body, headers=bearing(other["token"])).json()["code"] == "token_invalid"
    assert client.post(path, json=body, headers=runner).json()["code"] == "token_invalid"
    assert client.post(path, json=body, headers=bearing(lease["token"])).json() == {"directive": "continue"}


def test_an_attempt_is_renewed_logs_uploads_and_hands_in_its_result(
    client: InProcess, lease: dict[str, Any], ctx: Context
) -> None:
    attempt = Attempt(client, lease)
    assert attempt.renew().json() == {"directive": "continue"}
    assert attempt.log(0, b"one\n").json() == {"size_bytes": 4}
    misplaced = attempt.log(99, b"two\n")
    assert (misplaced.status_code, misplaced.json()["code"], misplaced.json()["size_bytes"]) == (
        409,
        "offset_mismatch",
        4,
    )
    assert attempt.log(4, b"two\n").json() == {"size_bytes": 8}
    assert client.get(f"/api/v1/attempts/{lease['attempt_id']}/log").content == b"one\ntwo\n"
    for _ in range(2):
        stored = attempt.artifact("server.log", b"bytes")
        assert (stored.status_code, stored.content) == (204, b"")
    assert ctx.blobs.get(hashlib.sha256(b"bytes").hexdigest()) == b"bytes"
    assert attempt.result(failed(attempt.fence)).json() == {"accepted": True, "replay": False, "launch_id": None}
    assert attempt.result(failed(attempt.fence)).json()["replay"] is True
    other = attempt.result(failed(attempt.fence, "another reason"))
    assert (other.status_code, other.json()["code"]) == (409, "result_conflict")
    job = client.get(f"/api/v1/jobs/{lease['job_id']}").json()
    assert job["state"] == "failed"
    assert job["failure"]["message"] == "no such flag"
    assert client.get(f"/api/v1/requests/{lease['request_id']}").json()["state"] == "failed"


def test_a_lost_lease_is_told_apart(client: InProcess, lease: dict[str, Any]) -> None:
    attempt = Attempt(client, lease)
    assert attempt.release("shutdown").status_code == 204
    for answer in (attempt.renew(), attempt.log(0, b"x"), attempt.artifact("a", b"x")):
        assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (409, "lease_lost", False)
    assert attempt.result(failed(attempt.fence)).json() == {"accepted": False, "replay": False, "launch_id": None}


def test_a_stale_fence_writes_nothing(client: InProcess, lease: dict[str, Any]) -> None:
    attempt = Attempt(client, {**lease, "fence": lease["fence"] - 1})
    for answer in (
        attempt.renew(),
        attempt.log(0, b"x"),
        attempt.result(failed(attempt.fence)),
        attempt.release("drain"),
    ):
        assert answer.json()["code"] == "lease_lost"
    job = client.get(f"/api/v1/jobs/{lease['job_id']}").json()
    assert (job["state"], job["attempt"]["state"], job["attempt"]["log_bytes"]) == ("active", "leased", 0)


def test_a_cancel_reaches_the_runner_with_its_next_renewal(
    client: InProcess, lease: dict[str, Any], bearer: Bearer
) -> None:
    attempt = Attempt(client, lease)
    path = f"/api/v1/requests/{lease['request_id']}/cancel"
    assert client.post(path, headers=bearer("submitter")).json()["cancel_requested"] is True
    assert attempt.renew().json() == {"directive": "cancel"}
    assert attempt.release("cancelled").status_code == 204
    assert client.get(f"/api/v1/requests/{lease['request_id']}").json()["state"] == "cancelled"


def test_bytes_that_do_not_match_their_hash_are_refused(client: InProcess, lease: dict[str, Any]) -> None:
    answer = Attempt(client, lease).artifact("a", b"damaged", sha256="0" * 64)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert "damaged on the way" in answer.json()["detail"]


@pytest.mark.parametrize(("name", "sha256"), [("..%2Fetc", "0" * 64), ("a", "0" * 63), ("a", "..%2F"), ("", "0" * 64)])
def test_a_file_name_or_hash_out_of_form_is_refused(
    client: InProcess, lease: dict[str, Any], name: str, sha256: str
) -> None:
    answer = Attempt(client, lease).artifact(name, b"x", sha256=sha256)
    assert answer.status_code in (404, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_result_that_names_a_missing_artifact_may_be_sent_again(client: InProcess, lease: dict[str, Any]) -> None:
    attempt = Attempt(client, lease)
    files = launch_files(lease, step_ms=2.0)
    refused = attempt.result(completed(lease, files))
    assert (refused.status_code, refused.json()["code"]) == (409, "artifact_missing")
    for name, data in files.items():
        assert attempt.artifact(name, data).status_code == 204
    assert attempt.result(completed(lease, files)).json()["accepted"] is True


def test_a_measured_launch_can_be_read_with_its_files(client: InProcess, lease: dict[str, Any]) -> None:
    launch_id = Attempt(client, lease).complete(step_ms=2.0).json()["launch_id"]
    launch = client.get(f"/api/v1/launches/{launch_id}").json()
    assert launch["validity"] == "valid"
    assert launch["metrics"]["tpot_p50_ms"] == pytest.approx(2.0, rel=0.01)
    assert client.get("/api/v1/launches?build=v0.18.0").json() == [launch]
    assert client.get("/api/v1/launches?build=v0.19.1").json() == []
    for file in launch["artifacts"]:
        answer = client.get(f"/api/v1/launches/{launch_id}/artifacts/{file['name']}")
        assert hashlib.sha256(answer.content).hexdigest() == file["sha256"]
        assert file["name"] in answer.headers["content-disposition"]
    missing = client.get(f"/api/v1/launches/{launch_id}/artifacts/none").json()
    assert "server.log" in missing["detail"]


def test_bytes_that_are_gone_from_the_disk_are_not_found(
    client: InProcess, lease: dict[str, Any], ctx: Context
) -> None:
    launch_id = Attempt(client, lease).complete().json()["launch_id"]
    ctx.blobs.path(hashlib.sha256(b"ready\n").hexdigest()).unlink()
    answer = client.get(f"/api/v1/launches/{launch_id}/artifacts/server.log")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_revoked_runner_is_shut_out_with_its_attempts(
    client: InProcess, runner: Headers, lease: dict[str, Any], bearer: Bearer
) -> None:
    (known,) = client.get("/api/v1/runners").json()
    assert client.post(f"/api/v1/runners/{known['id']}/revoke", headers=bearer("operator")).json()["state"] == "revoked"
    beat = client.post(f"{AGENT}/heartbeat", json=things.HEARTBEAT, headers=runner)
    assert beat.json()["code"] == "token_invalid"
    assert Attempt(client, lease).renew().json()["code"] == "token_invalid"
