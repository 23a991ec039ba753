"""Templates to responses: escaping is always on, an unknown name is an error, and no page may load anything foreign."""

import hashlib
from importlib import resources
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from service.contract.errors import BackslideError
from service.web import figures

_SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Pages:
    """Renders the templates of this package; works from an installed wheel."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("service.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for name in (
            "number",
            "interval",
            "ratio",
            "ratio_interval",
            "change",
            "points",
            "points_interval",
            "size",
            "clock",
            "duration",
            "share",
            "short",
            "count",
            "shell",
            "bind",
        ):
            self._environment.filters[name] = getattr(figures, name)
        self._environment.globals["style"] = (
            f"/static/pages.css?v={hashlib.sha256(_read('pages.css')).hexdigest()[:12]}"
        )

    def page(self, request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page; ``json_twin`` is where the same content is as JSON, if it has a twin."""
        twin = values.pop("json_twin", None)
        if twin is not None and request.url.query:
            twin = f"{twin}?{request.url.query}"
        html = self._environment.get_template(template).render(**values, json_twin=twin, here=request.url.path)
        return HTMLResponse(html, status_code=status, headers={**_SECURITY, "Cache-Control": "no-cache"})

    def error(self, request: Request, error: BackslideError) -> HTMLResponse:
        """Return the page that says what went wrong and what to do instead."""
        lines = error.details.get("differences") or error.details.get("allowed") or []
        return self.page(request, "error.html", status=error.status, error=error, lines=lines)


def wants_page(request: Request) -> bool:
    """Return whether a browser asks for a page: outside the interface and the twins, and it takes HTML."""
    path = request.url.path
    if path.startswith("/api/") or path.endswith(".json"):
        return False
    return "text/html" in request.headers.get("accept", "")


def _read(name: str) -> bytes:
    return (resources.files("service.web") / "static" / name).read_bytes()
