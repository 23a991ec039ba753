"""``python -m demo [simulated|compare|vllm] [--exit] [--resume] [--seed N] [--metric M] [--profiles DIR]``: see
README.md."""

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import httpx

from demo import rest
from demo.bisect import Bisect
from demo.comparison import Comparison
from demo.stack import DemoError, Layout, Stack
from images.catalog import builds
from images.simulated.profile import ProfileError, load_profile

METRICS = ("tpot_p50", "gsm8k")
FOLDERS = {"simulated": ".demo", "compare": ".demo-compare", "vllm": ".demo-vllm"}


@dataclass(frozen=True)
class Kind:
    """One demonstration: what it asks for, of which builds, on what."""

    asks: Bisect | Comparison
    catalog: str
    slots: int
    hardware: str
    note: str

    @property
    def simulated(self) -> bool:
        return self.catalog == "simulated.toml"


_SIMULATED = "Simulated builds: the published figures of vLLM issue 45943, replayed 4 times faster than they claim."
KINDS = {
    "simulated": Kind(
        asks=Bisect(
            recipe="simulated-mi350x-tp4",
            workload="long-prefix-decode-256",
            good="v0.18.0",
            bad="v0.24.0",
            metric="tpot_p50",
        ),
        catalog="simulated.toml",
        slots=2,
        hardware="simulated",
        note=_SIMULATED,
    ),
    "compare": Kind(
        asks=Comparison(
            recipe="simulated-mi350x-tp4",
            workload="long-prefix-decode-512",
            base="v0.18.0",
            head="v0.19.1",
            blocks=2,
        ),
        catalog="simulated.toml",
        slots=2,
        hardware="simulated",
        note=_SIMULATED,
    ),
    "vllm": Kind(
        asks=Comparison(
            recipe="vllm-cpu-tiny-llama", workload="cpu-prefix-decode", base="v0.18.0", head="v0.24.0", blocks=1
        ),
        catalog="vllm-cpu.toml",
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
        return _run(options, _kind(options))
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
    parser.add_argument("--metric", choices=METRICS, help="what the bisect is about (default tpot_p50)")
    parser.add_argument("--no-gsm8k", action="store_true", help="leave accuracy out of the bisect: it ends sooner")
    parser.add_argument("--workload", help="another workload of images/catalog/*.toml")
    parser.add_argument("--profiles", type=Path, help="directory with changed simulated profiles")
    parser.add_argument(
        "--dir", type=Path, help="where everything is kept (default .demo, .demo-compare or .demo-vllm)"
    )
    parser.add_argument("--port", type=int, default=8400)
    options = parser.parse_args(argv)
    if not 0 <= options.seed < 2**31:
        parser.error(f"--seed must be between 0 and {2**31 - 1}, not {options.seed}")
    if options.kind != "simulated" and (options.metric or options.no_gsm8k):
        parser.error(f"--metric and --no-gsm8k are the bisect's; the demo {options.kind!r} compares, by tpot_p50")
    known = [one["name"] for one in builds.load(KINDS[options.kind].catalog)["workloads"]]
    if options.workload and options.workload not in known:
        parser.error(f"--workload: {options.workload!r} is not among {', '.join(known)}")
    if options.dir and options.dir.exists() and not options.dir.is_dir():
        parser.error(f"--dir: {options.dir} is not a directory")
    if options.profiles:
        _check_profiles(parser, options.profiles, KINDS[options.kind].asks)
    return options


def _check_profiles(parser: argparse.ArgumentParser, directory: Path, asks: Bisect | Comparison) -> None:
    """Refuse bad profiles before anything is started; an engine would only say so at its start."""
    if not directory.is_dir():
        parser.error(f"--profiles: {directory} is not a directory")
    ends = (asks.good, asks.bad) if isinstance(asks, Bisect) else (asks.base, asks.head)
    for name in ends:
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
        with stack.client() as client:
            asked_id = stack.recall("asked_id")
            if asked_id is None:
                _register(client, kind, profiles)
                asked_id = kind.asks.submit(client, options.seed)
                stack.remember(asked_id=asked_id)
            else:
                print(f"Going on with {asked_id}.", flush=True)
        status = kind.asks.follow(stack, asked_id)
        if status:
            return status
        with stack.client() as client:
            finding = kind.asks.collect(client, asked_id)
            layout.finding.write_text(json.dumps(finding, indent=2) + "\n")
            kind.asks.conclude(finding, client, layout)
        if not options.exit:
            _serve(stack, layout)
    return 0


def _kind(options: argparse.Namespace) -> Kind:
    kind = KINDS[options.kind]
    asks = kind.asks
    if isinstance(asks, Bisect):
        asks = replace(asks, metric=options.metric or asks.metric, gsm8k=not options.no_gsm8k)
    return replace(kind, asks=replace(asks, workload=options.workload or asks.workload))


def _layout(options: argparse.Namespace) -> Layout:
    root = (options.dir or Path(FOLDERS[options.kind])).resolve()
    if root.exists() and not options.resume:
        if any(root.iterdir()) and not (root / "state.json").exists():
            raise DemoError(f"{root} holds files that no demo made; name another directory with --dir.")
        shutil.rmtree(root)
    if options.resume and not (root / "state.json").exists():
        raise DemoError(f"There is nothing to resume in {root}; start without --resume.")
    root.mkdir(parents=True, exist_ok=True)
    return Layout(root, options.port)


def _register(client: httpx.Client, kind: Kind, profiles: Path) -> None:
    catalog = builds.load(kind.catalog)
    found = builds.simulated(profiles) if kind.simulated else builds.wheels()
    for group, bodies in (("builds", found), ("recipes", catalog["recipes"]), ("workloads", catalog["workloads"])):
        for body in bodies:
            rest.post(client, f"/{group}", body)
    print(f"Registered {len(found)} builds: {', '.join(build['name'] for build in found)}", flush=True)


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
