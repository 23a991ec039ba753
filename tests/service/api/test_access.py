"""Who may write: every write route has exactly one guard, and the guard refuses everybody else."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

from service import security
from service.actions import tokens
from tests.service.api.conftest import Bearer
from tests.service.api.inprocess import InProcess

GUARDS = (security.runner_only, security.attempt_only, security.enrolment_bearer)
ROLE_OF = {
    "/api/v1/builds": "submitter",
    "/api/v1/recipes": "submitter",
    "/api/v1/workloads": "submitter",
    "/api/v1/requests": "submitter",
    "/api/v1/requests/{request_id}/cancel": "submitter",
    "/api/v1/bisects": "submitter",
    "/api/v1/bisects/{bisect_id}/pause": "submitter",
    "/api/v1/bisects/{bisect_id}/resume": "submitter",
    "/api/v1/bisects/{bisect_id}/cancel": "submitter",
    "/api/v1/runners/enrolment-tokens": "operator",
    "/api/v1/runners/{runner_id}/drain": "operator",
    "/api/v1/runners/{runner_id}/revoke": "operator",
}


def write_routes(app: FastAPI) -> Iterator[tuple[str, str, Dependant]]:
    """Every (method, path, dependant) that is no read."""
    for context in iter_route_contexts(app.routes):
        route: Any = context
        original = getattr(context, "original_route", context)
        if not isinstance(original, APIRoute):
            continue
        for method in sorted((original.methods or set()) - {"GET", "HEAD", "OPTIONS"}):
            yield method, route.path, route.dependant


def guards_of(dependant: Dependant) -> list[Any]:
    found = [inner.call for inner in dependant.dependencies if _is_guard(inner.call)]
    return found + [guard for inner in dependant.dependencies for guard in guards_of(inner)]


def _is_guard(call: Any) -> bool:
    return isinstance(call, security.RequireRole) or call in GUARDS


def send(client: InProcess, method: str, path: str, token: str | None) -> tuple[int, str]:
    """Send a body that is fine for no route: the guard must answer before the body is looked at."""
    filled = re.sub(r"\{[^}]+\}", "something", path)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    response = client.request(method, filled, json={"surely": "wrong"}, headers=headers)
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["code"]


def test_every_write_route_has_exactly_one_guard(app: FastAPI) -> None:
    found = {(method, path): guards_of(dependant) for method, path, dependant in write_routes(app)}
    assert len(found) >= 15
    assert {key: guards for key, guards in found.items() if len(set(guards)) != 1} == {}


def test_every_write_route_of_people_needs_the_role_that_the_protocol_names(app: FastAPI) -> None:
    found = {
        path: guards_of(dependant)[0].role
        for _, path, dependant in write_routes(app)
        if not path.startswith("/api/v1/agent")
    }
    assert found == ROLE_OF


def test_no_write_works_without_a_token(app: FastAPI, client: InProcess) -> None:
    for method, path, _ in write_routes(app):
        assert send(client, method, path, None) == (401, "token_missing"), path


@pytest.mark.parametrize("prefix", ["bku_", "bkr_", "bka_", "bke_", "", "Bearer "])
def test_no_write_works_with_a_made_up_token(app: FastAPI, client: InProcess, prefix: str) -> None:
    for method, path, _ in write_routes(app):
        if path.endswith("/enrol") and prefix == "bke_":
            continue  # spent by the action, after the body was understood: test_agent.py
        assert send(client, method, path, f"{prefix}made-up") == (401, "token_invalid"), path


def test_no_write_of_people_works_with_a_lower_role(app: FastAPI, client: InProcess, bearer: Bearer) -> None:
    for method, path, _ in write_routes(app):
        if path in ROLE_OF:
            below = tokens.ROLES[tokens.ROLES.index(ROLE_OF[path]) - 1]
            token = bearer(below)["Authorization"].removeprefix("Bearer ")
            assert send(client, method, path, token) == (403, "role_insufficient"), path


def test_a_write_works_with_the_role_and_with_each_higher_one(client: InProcess, bearer: Bearer) -> None:
    for role in ("operator", "admin"):
        made = client.post("/api/v1/runners/enrolment-tokens", json={}, headers=bearer(role))
        assert made.status_code == 201
        assert made.json()["token"].startswith("bke_")


def test_a_refusal_names_the_roles_that_are_allowed(client: InProcess, bearer: Bearer) -> None:
    refused = client.post("/api/v1/runners/enrolment-tokens", headers=bearer("viewer"))
    assert refused.json()["allowed"] == ["operator", "admin"]


def test_a_token_of_another_kind_is_named_in_the_refusal(client: InProcess, bearer: Bearer) -> None:
    refused = client.post("/api/v1/agent/heartbeat", json={}, headers=bearer("admin"))
    assert refused.status_code == 401
    assert "this is a user's token" in refused.json()["detail"]
    assert refused.headers["www-authenticate"].startswith("Bearer")


def test_a_revoked_token_opens_nothing(client: InProcess, ctx: Any, bearer: Bearer) -> None:
    header = bearer("operator")
    assert client.post("/api/v1/runners/enrolment-tokens", json={}, headers=header).status_code == 201
    tokens.revoke_user_token(ctx, "a operator")
    refused = client.post("/api/v1/runners/enrolment-tokens", json={}, headers=header)
    assert (refused.status_code, refused.json()["code"]) == (401, "token_invalid")


def test_another_scheme_than_bearer_is_no_token(client: InProcess) -> None:
    refused = client.post("/api/v1/builds", json={}, headers={"Authorization": "Basic bku_x"})
    assert refused.json()["code"] == "token_missing"
