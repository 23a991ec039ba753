"""A blocking client of an app in this process: real requests through every layer, without a socket."""

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI


class InProcess:
    """Requests run one after another on an event loop of this client's own. Exceptions that the app lets through
    come out here as they are: a test sees them."""

    def __init__(self, app: FastAPI) -> None:
        self._runner = asyncio.Runner()
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")

    def request(self, method: str, path: str, /, **options: Any) -> httpx.Response:
        return self._runner.run(self._http.request(method, path, **options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def put(self, path: str, **options: Any) -> httpx.Response:
        return self.request("PUT", path, **options)

    def patch(self, path: str, **options: Any) -> httpx.Response:
        return self.request("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", path, **options)

    def close(self) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()
