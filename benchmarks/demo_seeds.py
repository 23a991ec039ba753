"""``make bench-seeds``: the demo's bisect with ten seeds. Is the pair right, how wide is the interval, and does it hold
the truth?

Prints a table, writes benchmarks/out/demo_seeds.json, exits 1 when a figure is missing.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COLUMNS = (
    "seed",
    "answer",
    "last_good",
    "first_bad",
    "ratio",
    "low",
    "high",
    "width",
    "truth",
    "inside",
    "launches",
    "slot_minutes",
    "seconds",
)
OUT = Path(__file__).parent / "out"


def main() -> int:
    """Run the demo once per seed; return 1 when a run gave no complete finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--port", type=int, default=8401)
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = []
    print("  ".join(f"{column:>12}" for column in COLUMNS))
    for seed in range(options.first, options.first + options.seeds):
        rows.append(_measure(seed, options.port))
        print("  ".join(f"{_text(rows[-1].get(column)):>12}" for column in COLUMNS), flush=True)
    (OUT / "demo_seeds.json").write_text(json.dumps(rows, indent=2) + "\n")
    _summarise(rows)
    return int(any(row.get(column) is None for row in rows for column in COLUMNS))


def _summarise(rows: list[dict[str, Any]]) -> None:
    pairs = {(row.get("answer"), row.get("last_good"), row.get("first_bad")) for row in rows}
    for answer, good, bad in sorted(pairs, key=str):
        count = sum(
            (row.get("answer"), row.get("last_good"), row.get("first_bad")) == (answer, good, bad) for row in rows
        )
        print(f"{answer}, {good} → {bad}: {count} of {len(rows)}")
    inside = sum(bool(row.get("inside")) for row in rows)
    widest = max((row.get("width") or float("inf")) for row in rows)
    slowest = max(row.get("seconds") or float("inf") for row in rows)
    print(f"truth inside the interval: {inside} of {len(rows)}; widest {widest:.3f}; slowest {slowest:.0f} s")


def _measure(seed: int, port: int) -> dict[str, Any]:
    folder = OUT / "demo"
    began = time.monotonic()
    command = [sys.executable, "-m", "demo", "--exit", "--seed", str(seed), "--dir", str(folder), "--port", str(port)]
    with (OUT / "demo_seeds.log").open("ab") as log:
        status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        return {"seed": seed, "answer": f"exit {status}"}
    finding = json.loads((folder / "finding.json").read_text())
    low, high = finding["interval"] or (None, None)
    truth = finding.get("truth")
    return {
        "seed": seed,
        **{name: finding[name] for name in ("answer", "last_good", "first_bad", "ratio", "slot_minutes")},
        "low": low,
        "high": high,
        "width": None if low is None else high - low,
        "truth": truth,
        "inside": None if low is None or truth is None else low <= truth <= high,
        "launches": len(finding["launch_ids"]),
        "seconds": time.monotonic() - began,
    }


def _text(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
