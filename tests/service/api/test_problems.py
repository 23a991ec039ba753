"""Errors on the wire: the golden bodies, and nothing of the inside of the controller."""

import logging
from typing import Any

import pytest
from fastapi import FastAPI

from service.actions import catalog as catalog_actions
from service.api.problems import RETRY_AFTER_S, codes, every_error
from service.contract.errors import BackslideError, Busy, OffsetMismatch
from tests.service.api import things
from tests.service.api.conftest import Bearer
from tests.service.api.inprocess import InProcess


def test_every_class_of_the_tree_has_a_code_of_its_own_and_a_client_or_server_status() -> None:
    found = list(every_error())
    assert len({error.code for error in found}) == len(found) == len(codes())
    assert all(400 <= error.status < 600 for error in found)


def test_an_unknown_path_is_a_problem(client: InProcess) -> None:
    response = client.get("/api/v1/nothing")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {
        "type": "urn:backslide:problem:not_found",
        "title": "There is no such thing.",
        "status": 404,
        "detail": "There is nothing at /api/v1/nothing. The interface is described at /api/v1/openapi.json.",
        "code": "not_found",
        "retryable": False,
    }


def test_an_unknown_path_is_a_page_for_a_browser(client: InProcess) -> None:
    response = client.get("/nothing", headers={"Accept": "text/html"})
    assert response.status_code == 404
    assert response.headers["content-type"].startswith("text/html")


def test_a_wrong_method_names_the_right_ones(client: InProcess) -> None:
    response = client.delete("/api/v1/jobs/job_1")
    assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed")
    assert response.json()["allowed"] == ["GET"]
    assert response.headers["allow"] == "GET"


@pytest.mark.usefixtures("catalog")
def test_an_unknown_build_names_the_nearest(client: InProcess, bearer: Bearer) -> None:
    sent = {**things.COMPARISON, "head": "v0.19.2"}
    body = client.post("/api/v1/requests", json=sent, headers=bearer("submitter")).json()
    assert (body["status"], body["code"]) == (404, "unknown_build")
    assert body["near"][0] == "v0.19.1"
    assert "did you mean v0.19.1" in body["detail"]


@pytest.mark.usefixtures("catalog")
@pytest.mark.parametrize(
    ("field", "code"), [("recipe", "unknown_recipe"), ("workload", "unknown_workload"), ("metric", "unknown_metric")]
)
def test_an_unknown_name_has_a_code_of_its_own(client: InProcess, bearer: Bearer, field: str, code: str) -> None:
    body = client.post(
        "/api/v1/requests", json={**things.COMPARISON, field: "nope"}, headers=bearer("submitter")
    ).json()
    assert body["code"] == code


def test_details_of_an_error_are_members_of_the_problem(
    client: InProcess, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = failing(client, monkeypatch, OffsetMismatch(size_bytes=77, status="never"))
    assert (body["code"], body["size_bytes"], body["status"]) == ("offset_mismatch", 77, 409)


def test_a_retryable_error_says_when(client: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_actions, "list_builds", _raiser(Busy()))
    response = client.get("/api/v1/builds")
    assert (response.status_code, response.json()["retryable"]) == (503, True)
    assert response.headers["retry-after"] == str(RETRY_AFTER_S)


def test_what_nobody_expected_is_logged_and_only_its_id_is_sent(
    client: InProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="backslide.api"):
        body = failing(client, monkeypatch, RuntimeError("the password is swordfish"))
    assert (body["status"], body["code"]) == (500, "internal")
    assert "swordfish" not in str(body)
    assert body["error_id"] in body["detail"]
    (record,) = caplog.records
    assert body["error_id"] in record.getMessage()
    assert record.exc_info is not None
    assert "swordfish" in str(record.exc_info[1])


def failing(client: InProcess, monkeypatch: pytest.MonkeyPatch, error: Exception) -> dict[str, Any]:
    monkeypatch.setattr(catalog_actions, "list_builds", _raiser(error))
    response = client.get("/api/v1/builds")
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    return body


def _raiser(error: Exception) -> Any:
    def fail(_ctx: Any) -> None:
        raise error

    return fail


def test_an_error_of_ours_without_a_message_says_its_docstring() -> None:
    assert BackslideError().message == "Something went wrong inside Backslide."
