"""The interface as it is described: the OpenAPI document and docs/protocol.md name every call and every error."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts
from pydantic import SecretStr

from service.actions.context import open_context
from service.api.problems import MEDIA_TYPE, every_error
from service.app import create_app
from service.clock import SystemClock
from service.settings import Settings

PROSE = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text()


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("interface"), secret=SecretStr("s" * 40))
    with open_context(settings, SystemClock()) as ctx:
        yield create_app(ctx).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_the_document_has_every_error_code(document: dict[str, Any]) -> None:
    listed = document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]
    assert listed == sorted({error.code for error in every_error()})


def test_every_call_answers_errors_with_a_problem(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        schema = operation["responses"]["default"]["content"][MEDIA_TYPE]["schema"]
        assert schema == {"$ref": "#/components/schemas/Problem"}, (method, path)
        assert "422" not in operation["responses"], (method, path)


def test_every_reference_of_the_document_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    found = set(re.findall(r"#/components/schemas/([A-Za-z0-9_.-]+)", str(document)))
    assert found - schemas.keys() == set()


def test_every_call_says_what_it_is_for(document: dict[str, Any]) -> None:
    assert [path for _, path, operation in operations(document) if not operation.get("description")] == []


def test_every_write_says_which_token_it_takes(document: dict[str, Any]) -> None:
    unprotected = [
        path for method, path, operation in operations(document) if method != "GET" and not operation.get("security")
    ]
    assert unprotected == []


def test_the_prose_names_every_call(document: dict[str, Any]) -> None:
    for _, path, _ in operations(document):
        short = path.removeprefix("/api/v1/").removeprefix("agent/")
        short = short.replace("{base}...{head}", "BASE...HEAD").replace("{sha256}", "SHA256").replace("{name}", "NAME")
        short = re.sub(r"\{\w+\}", "ID", short)
        assert re.search(rf"(?<![\w/]){re.escape(short)}(?![\w/])", PROSE), path


def test_the_prose_has_every_error_with_its_status() -> None:
    table = PROSE[PROSE.index("| code | status |") :]
    for error in every_error():
        row = next((line for line in table.splitlines() if f"`{error.code}`" in line), "")
        assert str(error.status) in row, error.code


def test_every_page_has_a_json_twin(tmp_path: Path) -> None:
    with open_context(Settings(data_dir=tmp_path, secret=SecretStr("s" * 40)), SystemClock()) as ctx:
        paths = {str(context.path) for context in iter_route_contexts(create_app(ctx).routes)}
    pages = {path for path in paths if not path.startswith(("/api/", "/static"))}
    twins = {path for path in pages if path.endswith(".json")}
    assert {"/index.json" if path == "/" else f"{path}.json" for path in pages - twins} == twins
    assert len(twins) >= 5
