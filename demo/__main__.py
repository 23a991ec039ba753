"""``python -m demo [simulated|vllm] [--exit] [--resume] [--seed N] [--profiles DIR]``: see README.md."""

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from demo.finding import collect
from demo.stack import DemoError, Layout, Stack
from images.catalog import builds
from images.simulated.profile import ProfileError, load_profile

METRIC = "tpot_p50_ms"


@dataclass(frozen=True)
class Kind:
    """One demonstration: what it measures, with what."""

    catalog: str
    recipe: str
    workload: str
    base: str
    head: str
    blocks: int
    slots: int
    hardware: str
    note: str


KINDS = {
    "simulated": Kind(
        catalog="simulated.toml",
        recipe="simulated-mi350x-tp4",
        workload="long-prefix-decode-512",
        base="v0.18.0",
        head="v0.19.1",
        blocks=2,
        slots=2,
        hardware="simulated",
        note="Simulated builds: the published figures of vLLM issue 45943, replayed 4 times faster than they claim.",
    ),
    "vllm": Kind(
        catalog="vllm-cpu.toml",
        recipe="vllm-cpu-tiny-llama",
        workload="cpu-prefix-decode",
        base="v0.18.0",
        head="v0.24.0",
        blocks=1,
        slots=1,
        hardware="cpu",
        note="Real vLLM on this machine's CPU, with a tiny model of random weights: real, cpu.",
    ),
}


def main(argv: Sequence[str]) -> int:
    """Run one demonstration; return the exit status."""
    options = _parse(argv)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return _run(options, KINDS[options.kind])
    except DemoError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; nothing is left running. Go on with DEMO_ARGS=--resume.", file=sys.stderr)
        return 130


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=sorted(KINDS), default="simulated")
    parser.add_argument("--exit", action="store_true", help="end after the result instead of serving the dashboard")
    parser.add_argument("--resume", action="store_true", help="go on with what the last run began")
    parser.add_argument("--seed", type=int, default=0, help="seeds the simulated builds' noise (default 0)")
    parser.add_argument("--profiles", type=Path, help="directory with changed simulated profiles")
    parser.add_argument("--dir", type=Path, help="where everything is kept (default .demo or .demo-vllm)")
    parser.add_argument("--port", type=int, default=8400)
    options = parser.parse_args(argv)
    if not 0 <= options.seed < 2**31:
        parser.error(f"--seed must be between 0 and {2**31 - 1}, not {options.seed}")
    if options.dir and options.dir.exists() and not options.dir.is_dir():
        parser.error(f"--dir: {options.dir} is not a directory")
    if options.profiles:
        _check_profiles(parser, options.profiles, KINDS[options.kind])
    return options


def _check_profiles(parser: argparse.ArgumentParser, directory: Path, kind: Kind) -> None:
    """Refuse bad profiles before anything is started; an engine would only say so at its start."""
    if not directory.is_dir():
        parser.error(f"--profiles: {directory} is not a directory")
    for name in (kind.base, kind.head):
        if not (directory / f"{name}.toml").exists():
            parser.error(f"--profiles: {directory} has no {name}.toml; copy {builds.PROFILES} and change the copy")
    for path in sorted(directory.glob("v*.toml")):
        try:
            load_profile(path)
        except ProfileError as error:
            parser.error(f"--profiles: {error}")


def _run(options: argparse.Namespace, kind: Kind) -> int:
    layout = _layout(options)
    profiles = options.profiles.resolve() if options.profiles else builds.PROFILES
    environment = {
        "BACKSLIDE_RUNNER_SLOTS": str(kind.slots),
        "BACKSLIDE_RUNNER_HARDWARE": json.dumps([kind.hardware]),
        "BACKSLIDE_RUNNER_PROFILES_DIR": str(profiles),
    }
    print(kind.note, flush=True)
    with Stack(layout, environment, kind.slots) as stack:
        stack.start()
        print(f"Controller and runner are up; the dashboard is at {layout.url}", flush=True)
        request_id = stack.recall("request_id")
        if request_id is None:
            request_id = _submit(stack, kind, profiles, options.seed)
            stack.remember(request_id=request_id)
        else:
            print(f"Going on with {request_id}.", flush=True)
        status = stack.watch(["requests", "watch", request_id])
        if status:
            return status
        stack.watch(["requests", "comparison", request_id])
        with stack.client() as client:
            finding = collect(client, request_id, METRIC)
        layout.finding.write_text(json.dumps(finding, indent=2) + "\n")
        _conclude(finding, layout)
        if not options.exit:
            _serve(stack, layout)
    return 0


def _layout(options: argparse.Namespace) -> Layout:
    root = (options.dir or Path(".demo" if options.kind == "simulated" else ".demo-vllm")).resolve()
    if root.exists() and not options.resume:
        if any(root.iterdir()) and not (root / "state.json").exists():
            raise DemoError(f"{root} holds files that no demo made; name another directory with --dir.")
        shutil.rmtree(root)
    if options.resume and not (root / "state.json").exists():
        raise DemoError(f"There is nothing to resume in {root}; start without --resume.")
    root.mkdir(parents=True, exist_ok=True)
    return Layout(root, options.port)


def _submit(stack: Stack, kind: Kind, profiles: Path, seed: int) -> str:
    catalog = builds.load(kind.catalog)
    found = builds.simulated(profiles) if kind.catalog == "simulated.toml" else builds.wheels()
    with stack.client() as client:
        for group, bodies in (("builds", found), ("recipes", catalog["recipes"]), ("workloads", catalog["workloads"])):
            for body in bodies:
                _post(client, f"/{group}", body)
        print(f"Registered {len(found)} builds: {', '.join(build['name'] for build in found)}", flush=True)
        asked = {
            "kind": "comparison",
            "base": kind.base,
            "head": kind.head,
            "recipe": kind.recipe,
            "workload": kind.workload,
            "metric": METRIC,
            "blocks": kind.blocks,
            "seed": seed,
        }
        request_id: str = _post(client, "/requests", asked)["id"]
    print(
        f"Submitted {request_id}: {kind.base} against {kind.head}, {4 * kind.blocks} launches, A B B A and B A A B",
        flush=True,
    )
    return request_id


def _post(client: Any, path: str, body: Any) -> Any:
    answer = client.post(path, json=body)
    if answer.is_error:
        raise DemoError(f"POST {path}: {answer.status_code} {answer.text}")
    return answer.json()


def _conclude(finding: dict[str, Any], layout: Layout) -> None:
    print(f"\n{finding['sentence']}")
    if "truth" in finding:
        low, high = finding["interval"] or (float("nan"), float("nan"))
        held = "inside" if low <= finding["truth"] <= high else "outside (a 95 % interval misses 1 time in 20)"
        print(f"The engines' own step logs say {finding['truth']:.4f}: {held} the interval.")
    print(
        f"{len(finding['launch_ids'])} launches in {finding['seconds'] / 60:.1f} minutes; written to {layout.finding}"
    )
    print(f"Dashboard: {layout.url}/requests/{finding['request_id']}", flush=True)


def _serve(stack: Stack, layout: Layout) -> None:
    print(f"Serving {layout.url} until Ctrl-C.", flush=True)
    try:
        while True:
            time.sleep(0.5)
            stack.check()
    except KeyboardInterrupt:
        print("\nStopping.", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
