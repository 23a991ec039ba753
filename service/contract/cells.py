"""A cell is what must be equal for two numbers to be comparable."""

from typing import Any

from service.contract import canonical
from service.contract.builds import Name, Wire
from service.contract.recipes import Recipe
from service.contract.workloads import Workload


class Cell(Wire):
    """Recipe (with its rules, not what they resolve to), workload, hardware class and ruler version."""

    recipe: Recipe
    workload: Workload
    hardware: Name
    ruler_version: int

    @property
    def digest(self) -> str:
        """SHA-256 over everything but the names of recipe and workload."""
        return canonical.digest(self._content())

    def _content(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"recipe": {"name"}, "workload": {"name"}})


def differences(a: Cell, b: Cell) -> list[str]:
    """Name every field in which two cells differ, such as ``workload.output_tokens: 256 != 128``; empty if none."""
    return _differences(a._content(), b._content(), "")


def _differences(a: Any, b: Any, path: str) -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [
            line
            for key in sorted(a.keys() | b.keys())
            for line in _differences(a.get(key), b.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if a == b else [f"{path}: {a!r} != {b!r}"]
