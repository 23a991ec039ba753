"""The command line's side of REST: one small client, and errors that say what to do.

CommandFailed          exit 1
├── BadInput           exit 2
├── Refused            exit 1 or 2: the controller answered with problem+json
└── Unreachable        exit 3
"""

from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx

DEFAULT_URL = "http://127.0.0.1:8400"
TIMEOUT_S = 60.0
_LISTED_BY = {
    "unknown_build": "backslide builds list",
    "unknown_recipe": "backslide recipes list",
    "unknown_workload": "backslide workloads list",
}
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class CommandFailed(Exception):
    """What was asked for did not work; the message is what the user reads."""

    exit_code: ClassVar[int] = 1


class BadInput(CommandFailed):
    """The command line, or a file that it names, does not make sense."""

    exit_code = 2


class Unreachable(CommandFailed):
    """Nothing answers at the controller's address."""

    exit_code = 3


class Refused(CommandFailed):
    """The controller said no. ``code`` is the problem's stable code, ``problem`` all of its members."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__("\n".join(_lines(problem)))
        self.problem = problem
        self.code = str(problem.get("code", "internal"))
        # A conflict or a fault of the controller is a failure; everything else is what was sent.
        status = int(problem.get("status", 500))
        self.exit_code = 1 if status == 409 or status >= 500 else 2  # type: ignore[misc]


class Client:
    """The controller at one address, with one token (or none: reads need none)."""

    def __init__(self, url: str, token: str | None, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"BACKSLIDE_URL is {url!r}; an address such as {DEFAULT_URL} is needed.")
        self._http = httpx.Client(
            base_url=self.url + "/api/v1/",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=TIMEOUT_S,
            transport=transport,
            trust_env=parts.hostname not in _LOOPBACK,  # a proxy can't reach this machine's own loopback
        )

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON of a GET; parameters that are None are left out."""
        return self._json("GET", path, params={key: value for key, value in params.items() if value is not None})

    def post(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Return the JSON of a POST."""
        return self._json("POST", path, json={} if body is None else body, headers=headers)

    def download(self, path: str) -> bytes:
        """Return the bytes of a GET."""
        return self._send("GET", path).content

    def close(self) -> None:
        self._http.close()

    def _json(self, method: str, path: str, **options: Any) -> Any:
        response = self._send(method, path, **options)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError:
            raise CommandFailed(f"{self.url} does not answer like a Backslide controller ({response.url}).") from None

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **options)
        except httpx.TransportError as error:
            raise Unreachable(
                f"No controller answers at {self.url} ({error or type(error).__name__}).\n"
                "Start one with 'backslide serve', or set BACKSLIDE_URL to the address of another."
            ) from error
        if response.is_success:
            return response
        raise Refused(_problem(response))


def _problem(response: httpx.Response) -> dict[str, Any]:
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        found = response.json()
        if isinstance(found, dict):
            return found
    return {
        "status": response.status_code,
        "code": "internal",
        "detail": f"{response.url} answered {response.status_code} without saying why; is this a Backslide controller?",
    }


def _lines(problem: dict[str, Any]) -> list[str]:
    lines = [f"{problem.get('detail', 'failed')} [{problem.get('code', 'internal')}]"]
    for entry in problem.get("errors") or []:
        allowed = f" (allowed: {entry['allowed']})" if entry.get("allowed") else ""
        got = f", got {entry['got']}" if entry.get("got") else ""
        lines.append(f"  {entry.get('field')}: {entry.get('problem')}{got}{allowed}")
    if problem.get("allowed"):
        lines.append(f"  allowed: {', '.join(map(str, problem['allowed']))}")
    if problem.get("code") in _LISTED_BY:
        lines.append(f"  '{_LISTED_BY[problem['code']]}' names what there is.")
    if problem.get("code") in ("token_missing", "token_invalid"):
        lines.append(
            "  Set BACKSLIDE_TOKEN; 'backslide token create --name NAME --role ROLE' makes a token on the controller."
        )
    return lines
