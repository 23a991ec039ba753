"""Reading and writing over REST, as any client would; what is refused ends the demo with the controller's words."""

from typing import Any

import httpx

from demo.stack import DemoError


def get(client: httpx.Client, path: str) -> Any:
    """Return the JSON of a GET. Raises DemoError."""
    return _checked("GET", path, client.get(path)).json()


def post(client: httpx.Client, path: str, body: Any, key: str | None = None) -> Any:
    """Return the JSON of a POST; the same idempotency key makes the same thing once. Raises DemoError."""
    headers = {"Idempotency-Key": key} if key else None
    return _checked("POST", path, client.post(path, json=body, headers=headers)).json()


def download(client: httpx.Client, path: str) -> bytes:
    """Return the bytes of a GET. Raises DemoError."""
    return _checked("GET", path, client.get(path)).content


def _checked(method: str, path: str, answer: httpx.Response) -> httpx.Response:
    if answer.is_error:
        raise DemoError(f"{method} {path}: {answer.status_code} {answer.text}")
    return answer
