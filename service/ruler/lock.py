"""The lock on the ruler: a change of what measures or computes needs a decision whether old numbers still compare.

``python -m service.ruler.lock`` checks; ``--decide keep`` notes that the change cannot move a number (the version
stays), ``--decide grow`` that it can (RULER_VERSION grows by one, so that old and new are different cells).
"""

import argparse
import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("service/ruler", "runners/load")
_VERSION = re.compile(r"^RULER_VERSION = (\d+)$", re.MULTILINE)


def fingerprint(root: Path) -> str:
    """Return the SHA-256 over names and bytes of every source of the ruler and of the load generator."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((root / folder).glob("*.py")):
            digest.update(f"{folder}/{path.name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def version(root: Path) -> int:
    """Return RULER_VERSION as the source has it."""
    found = _VERSION.search((root / "service/ruler/__init__.py").read_text())
    if found is None:
        raise ValueError("service/ruler/__init__.py has no line 'RULER_VERSION = N'")
    return int(found[1])


def problem(root: Path) -> str | None:
    """Return what is wrong with the lock and what to do about it; None if it holds."""
    path = root / "service/ruler/ruler.lock"
    locked = json.loads(path.read_text()) if path.exists() else {}
    if locked == _content(root):
        return None
    return (
        "the ruler or the load generator changed since ruler.lock was written. Decide whether the change can move a "
        "number: if it cannot, run 'make ruler-keep' (python -m service.ruler.lock --decide keep); if it can, run "
        "'make ruler-grow' (--decide grow): old and new numbers will then not be compared"
    )


def decide(root: Path, grow: bool) -> int:
    """Rewrite the lock, after letting RULER_VERSION grow by one if asked to; return the version."""
    if grow:
        source = root / "service/ruler/__init__.py"
        source.write_text(_VERSION.sub(f"RULER_VERSION = {version(root) + 1}", source.read_text()))
    (root / "service/ruler/ruler.lock").write_text(json.dumps(_content(root), indent=1) + "\n")
    return version(root)


def main() -> int:
    """Check or rewrite the lock; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m service.ruler.lock", description=__doc__)
    parser.add_argument("--decide", choices=["grow", "keep"])
    decision = parser.parse_args().decide
    if decision:
        print(f"ruler version {decide(ROOT, decision == 'grow')}")
        return 0
    wrong = problem(ROOT)
    print(wrong or f"ruler version {version(ROOT)}: the lock holds")
    return 1 if wrong else 0


def _content(root: Path) -> dict[str, object]:
    return {"ruler_version": version(root), "sources_sha256": fingerprint(root)}


if __name__ == "__main__":
    raise SystemExit(main())
