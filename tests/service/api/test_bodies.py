"""What is sent wrongly is refused with what is wrong, where, and what is allowed."""

import json as std_json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.api.boundary import MAX_JSON_BYTES, MAX_LOG_CHUNK_BYTES
from tests.service.api import things
from tests.service.api.conftest import Bearer
from tests.service.api.inprocess import InProcess

JSON = {"Content-Type": "application/json"}


def refused(client: InProcess, bearer: Bearer, path: str, **sent: Any) -> dict[str, Any]:
    headers = {**bearer("admin"), **sent.pop("headers", {})}
    response = client.post(f"/api/v1/{path}", headers=headers, **sent)
    assert response.status_code >= 400
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == response.status_code
    return body


def test_malformed_json_is_placed_by_line_and_column(client: InProcess, bearer: Bearer) -> None:
    body = refused(client, bearer, "requests", content=b'{"kind": "comparison",\n "base": }', headers=JSON)
    assert body == {
        "type": "urn:backslide:problem:malformed_body",
        "title": "The body is not valid JSON.",
        "status": 400,
        "detail": "The body is not valid JSON at line 2, column 10: Expecting value.",
        "code": "malformed_body",
        "retryable": False,
        "line": 2,
        "column": 10,
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"name": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"blocks": ' + b"9" * 5000 + b"}", "could not be read"),
    ],
)
def test_a_body_that_no_json_reader_takes_is_malformed(
    client: InProcess, bearer: Bearer, content: bytes, said: str
) -> None:
    body = refused(client, bearer, "requests", content=content, headers=JSON)
    assert body["code"] == "malformed_body"
    assert said in body["detail"]


def test_every_bad_field_is_named_with_what_is_allowed(client: InProcess, bearer: Bearer) -> None:
    sent = {**things.COMPARISON, "blocks": 0, "sed": 1, "seed": "x"}
    del sent["base"]
    body = refused(client, bearer, "requests", json=sent)
    assert body["code"] == "invalid_input"
    errors = {entry.pop("field"): entry for entry in body["errors"]}
    assert errors == {
        "body.base": {"problem": "field required"},
        "body.blocks": {"problem": "input should be greater than or equal to 1", "allowed": ">= 1", "got": "0"},
        "body.sed": {
            "problem": "there is no such field",
            "allowed": "base, blocks, gsm8k, hardware, head, kind, metric, priority, recipe, seed, workload",
        },
        "body.seed": {
            "problem": "input should be a valid integer, unable to parse string as an integer",
            "got": "'x'",
        },
    }


def test_an_unknown_field_inside_a_union_is_explained_by_the_fields_there(client: InProcess, bearer: Bearer) -> None:
    sent = {**things.BUILD, "source": {**things.BUILD["source"], "profil": "x"}}
    (error,) = refused(client, bearer, "builds", json=sent)["errors"]
    assert error["field"] == "body.source.simulated.profil"
    assert "profile" in error["allowed"]


def test_an_unknown_kind_names_the_kinds_there_are(client: InProcess, bearer: Bearer) -> None:
    (error,) = refused(client, bearer, "builds", json={**things.BUILD, "source": {"kind": "docker"}})["errors"]
    assert "simulated" in error["allowed"]
    assert "wheels" in error["allowed"]


def test_a_rule_over_several_fields_is_told_in_its_own_words(client: InProcess, bearer: Bearer) -> None:
    body = refused(client, bearer, "workloads", json={**things.WORKLOAD, "concurrency": 9})
    assert "requests must be at least concurrency" in body["detail"]


def test_what_was_sent_is_shown_shortened(client: InProcess, bearer: Bearer) -> None:
    (error,) = refused(client, bearer, "requests", json={**things.COMPARISON, "hardware": "x y" * 5000})["errors"]
    assert len(error["got"]) == 80


def test_a_body_without_its_content_type_is_asked_for_it(client: InProcess, bearer: Bearer) -> None:
    body = refused(client, bearer, "builds", content=b"{}", headers={"Content-Type": "text/plain"})
    assert "Content-Type: application/json" in body["detail"]


def test_a_bad_query_is_named(client: InProcess) -> None:
    body = client.get("/api/v1/launches?limit=0").json()
    assert [entry["field"] for entry in body["errors"]] == ["query.limit"]


def test_another_protocol_version_is_told_so_whatever_else_is_wrong(client: InProcess, bearer: Bearer) -> None:
    made = client.post("/api/v1/runners/enrolment-tokens", json={}, headers=bearer("admin")).json()
    sent = {**things.ENROL, "protocol_version": 2, "a_field_of_version_2": True}
    body = refused(client, bearer, "agent/enrol", json=sent, headers={"Authorization": f"Bearer {made['token']}"})
    assert (body["status"], body["code"], body["allowed"]) == (426, "protocol_unsupported", ["1"])


def test_a_body_that_says_it_is_too_large_is_refused_unread(client: InProcess, bearer: Bearer) -> None:
    read = []

    async def endless() -> AsyncIterator[bytes]:
        read.append(1)
        yield b"x"

    headers = {**JSON, "Content-Length": str(MAX_JSON_BYTES + 1)}
    body = refused(client, bearer, "builds", content=endless(), headers=headers)
    assert (body["status"], body["code"], body["limit_bytes"]) == (413, "too_large", MAX_JSON_BYTES)
    assert read == []


def test_a_body_that_grows_too_large_is_refused_where_it_does(client: InProcess, bearer: Bearer) -> None:
    read = []

    async def growing() -> AsyncIterator[bytes]:
        for _ in range(100):
            read.append(1)
            yield b" " * 2**20

    assert refused(client, bearer, "builds", content=growing(), headers=JSON)["code"] == "too_large"
    assert len(read) == MAX_JSON_BYTES // 2**20 + 1


def test_a_body_of_the_largest_size_is_read(client: InProcess, bearer: Bearer) -> None:
    assert refused(client, bearer, "builds", content=b" " * MAX_JSON_BYTES, headers=JSON)["code"] == "malformed_body"


@pytest.mark.parametrize(
    ("method", "path", "json"),
    [
        ("GET", "requests/%00", None),
        ("GET", "launches?cell=%00", None),
        ("GET", f"events?after={10**30}", None),
        ("GET", f"requests?limit={10**30}", None),
        ("POST", "requests", {"\ud800": "\udfff"}),
        ("POST", "requests", {**things.COMPARISON, "base": "\ud800"}),
        ("POST", "builds", {**things.BUILD, "name": "a\x00b"}),
        ("POST", "requests", {**things.COMPARISON, "seed": float("1e400")}),
        ("POST", "workloads", {**things.WORKLOAD, "requests": True}),
    ],
)
def test_what_no_database_could_hold_is_refused_before(
    client: InProcess, bearer: Bearer, method: str, path: str, json: Any
) -> None:
    content = None if json is None else std_json.dumps(json)
    response = client.request(method, f"/api/v1/{path}", content=content, headers={**JSON, **bearer("admin")})
    assert response.status_code == 422
    assert response.json()["code"] == "invalid_input"


def test_logs_and_artifacts_have_limits_of_their_own(client: InProcess) -> None:
    log = client.patch("/api/v1/agent/attempts/att_1/log?fence=1&offset=0", content=b"x" * (MAX_LOG_CHUNK_BYTES + 1))
    assert log.json()["limit_bytes"] == MAX_LOG_CHUNK_BYTES
    file = client.put(f"/api/v1/agent/attempts/att_1/artifacts/{'a' * 64}?fence=1&name=x", content=b"x" * (2**20 + 1))
    assert file.json()["limit_bytes"] == 2**20
