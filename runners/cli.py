"""``backslide-runner``: enrol a node, run its agent, look at it, clean up after it.

Exit status: 0 done, 1 failed or refused, 2 bad use or state, 3 the controller can't be reached.
"""

import asyncio
import json
import logging
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from runners import AGENT_VERSION
from runners.agent import Agent
from runners.clock import SystemClock
from runners.controller import Controller, Unreachable
from runners.evaluate.questions import EvaluationError, find_questions
from runners.identity import RunnerIdentity, StateError, is_locked, load_identity, locked, save_identity
from runners.journal import Journal
from runners.load.client import run_load
from runners.recovery import find_leftovers, sweep
from runners.settings import RunnerSettings
from runners.spool import entries
from service.contract import errors
from service.contract.builds import BuildKind
from service.contract.lease import Enrolment, EnrolRequest

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The agent on a machine that measures.")


@app.command()
def enrol(
    token: Annotated[str, typer.Option(help="The single-use enrolment token (bke_…).")],
    name: Annotated[str, typer.Option(help="What people call this runner.")],
    controller: Annotated[str | None, typer.Option(help="The controller's address.")] = None,
    slots: Annotated[int | None, typer.Option(help="How many servers may run at once.")] = None,
    hardware: Annotated[list[str] | None, typer.Option(help="A class of hardware; may be repeated.")] = None,
    build_kind: Annotated[list[BuildKind] | None, typer.Option(help="A kind of build; may be repeated.")] = None,
    replace: Annotated[bool, typer.Option(help="Enrol again although this state directory has an identity.")] = False,
) -> None:
    """Trade an enrolment token for this runner's own id and token, kept in the state directory."""
    with _reported():
        settings = RunnerSettings()
        request = EnrolRequest(
            agent_version=AGENT_VERSION,
            name=name,
            hostname=socket.gethostname(),
            hardware=hardware or settings.hardware,
            build_kinds=build_kind or settings.build_kinds,
            slots=settings.slots if slots is None else slots,
        )
        url = (controller or settings.controller).rstrip("/")
        with locked(settings.state_dir):
            if (settings.state_dir / "identity.json").exists() and not replace:
                raise StateError(f"{settings.state_dir} is enrolled already: use --replace, or another folder")
            enrolment = asyncio.run(_enrol(url, token, request))
            identity = RunnerIdentity(
                **enrolment.model_dump(),
                controller=url,
                name=name,
                slots=request.slots,
                hardware=request.hardware,
                build_kinds=request.build_kinds,
            )
            save_identity(settings.state_dir, identity)
        print(f"enrolled {name} as {enrolment.runner_id}; start it with: backslide-runner run")


@app.command()
def run(
    gsm8k: Annotated[
        Path | None, typer.Option(help="Questions in gsm8k's format (JSON lines): what builds are asked.")
    ] = None,
    gsm8k_shots: Annotated[Path | None, typer.Option(help="Five more of them or more, as examples.")] = None,
) -> None:
    """Work until SIGTERM or SIGINT: once to finish what runs, twice to give it back at once."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with _reported():
        settings = _absolute(_with_questions(RunnerSettings(), gsm8k, gsm8k_shots))
        identity = load_identity(settings.state_dir)
        with locked(settings.state_dir):
            status = asyncio.run(_work(settings, identity))
    raise typer.Exit(status)


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Show who this runner is, what it has begun, what waits to be handed in, and what it left behind."""
    with _reported():
        found = _status(RunnerSettings())
        if as_json:
            print(json.dumps(found, indent=2))
            return
        for line in _described(found):
            print(line)


@app.command(name="sweep")
def sweep_command() -> None:
    """End every process that an earlier life of this runner left. Refuses while a runner is running."""
    with _reported():
        settings = RunnerSettings()
        identity = load_identity(settings.state_dir)
        with locked(settings.state_dir):
            clock = SystemClock()
            swept = sweep(Journal.peek(settings.state_dir / "journal.jsonl", clock), identity.runner_id, clock)
        print(f"ended {len(swept.ended)} processes")
        if swept.left:
            print(f"could not end: {', '.join(str(one.pid) for one in swept.left)}", file=sys.stderr)
            raise typer.Exit(1)


def main() -> None:
    """Entry point of ``backslide-runner``."""
    app(prog_name="backslide-runner")


async def _enrol(url: str, token: str, request: EnrolRequest) -> Enrolment:
    client = Controller(url, token, clock=SystemClock(), on_trouble=lambda line: print(line, file=sys.stderr))
    try:
        return await client.enrol(request)
    finally:
        await client.aclose()


async def _work(settings: RunnerSettings, identity: RunnerIdentity) -> int:
    return await Agent(settings, identity, SystemClock(), run_load).run()


def _with_questions(settings: RunnerSettings, questions: Path | None, shots: Path | None) -> RunnerSettings:
    """Raises StateError for files that can't be used: better now than after a launch was measured."""
    given = {name: path for name, path in (("gsm8k", questions), ("gsm8k_shots", shots)) if path is not None}
    settings = settings.model_copy(update=given)
    try:
        if settings.gsm8k is not None or settings.gsm8k_shots is not None:
            if settings.gsm8k is None:
                raise EvaluationError("examples without questions: give the file of the questions with --gsm8k")
            find_questions(settings, is_simulated=False)
    except EvaluationError as error:
        raise StateError(error.message) from error
    return settings


def _absolute(settings: RunnerSettings) -> RunnerSettings:
    """Return the settings with absolute folders: servers run in folders of their own."""
    folders = ("state_dir", "cache_dir", "profiles_dir", "wheel_sets_dir", "models_dir")
    paths = {name: getattr(settings, name).expanduser().resolve() for name in folders}
    files = ("gsm8k", "gsm8k_shots")
    paths |= {name: path.expanduser().resolve() for name in files if (path := getattr(settings, name)) is not None}
    if settings.lm_eval_python is not None:  # not resolved: the link is what makes it a virtual environment
        paths["lm_eval_python"] = settings.lm_eval_python.expanduser().absolute()
    return settings.model_copy(update=paths)


def _status(settings: RunnerSettings) -> dict[str, Any]:
    identity = load_identity(settings.state_dir)
    journal = Journal.peek(settings.state_dir / "journal.jsonl", SystemClock())
    running = is_locked(settings.state_dir)
    return {
        "runner": identity.model_dump(mode="json", exclude={"token"}),
        "running": running,
        "disk_free_bytes": shutil.disk_usage(settings.state_dir).free,
        "open_attempts": [
            {"attempt_id": one.attempt_id, "slot": one.slot, "stage": one.stage} for one in journal.state.values()
        ],
        "spool": [
            {"attempt_id": entry.attempt_id, "size_bytes": entry.size_bytes}
            for entry in entries(settings.attempts_dir)
            if entry.result() is not None
        ],
        # While it runs, its servers are no leftovers.
        "leftover_pids": [] if running else [one.pid for one in find_leftovers(journal, identity.runner_id)],
        "journal_skipped_lines": journal.skipped_lines,
    }


def _described(found: dict[str, Any]) -> list[str]:
    runner = found["runner"]
    attempts = [f"{one['attempt_id']} ({one['stage']})" for one in found["open_attempts"]]
    spool = [f"{one['attempt_id']} ({one['size_bytes']} bytes)" for one in found["spool"]]
    lines = [
        f"runner    {runner['name']} ({runner['runner_id']}) of {runner['controller']}, {runner['slots']} slots",
        f"running   {'yes' if found['running'] else 'no'}",
        f"disk      {found['disk_free_bytes'] / 1e9:.1f} GB free",
        f"attempts  {', '.join(attempts) or 'none'}",
        f"spool     {', '.join(spool) or 'empty'}",
        f"leftovers {', '.join(f'pid {pid}' for pid in found['leftover_pids']) or 'none'}",
    ]
    if found["journal_skipped_lines"]:
        lines.append(f"journal   {found['journal_skipped_lines']} damaged lines were skipped")
    return lines


def _explained(error: ValidationError | SettingsError) -> str:
    """Say which setting or option makes no sense, and what was found there."""
    if isinstance(error, SettingsError):
        return f"{error}; lists are JSON, such as BACKSLIDE_RUNNER_HARDWARE='[\"simulated\"]'"
    prefix = "BACKSLIDE_RUNNER_" if error.title == RunnerSettings.__name__ else ""
    lines = []
    for entry in error.errors():
        name = "_".join(str(part) for part in entry["loc"])
        lines.append(f"{prefix}{name.upper() if prefix else name}: {entry['msg'].lower()}, got {entry['input']!r:.80}")
    return "; ".join(lines)


@contextmanager
def _reported() -> Iterator[None]:
    """Turn what can go wrong into a line for people and an exit status."""
    try:
        yield
    except StateError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    except (ValidationError, SettingsError) as error:
        print(f"error: {_explained(error)}", file=sys.stderr)
        raise typer.Exit(2) from error
    except Unreachable as error:
        print(f"error: {error.message}; is the controller running ('backslide serve')?", file=sys.stderr)
        raise typer.Exit(3) from error
    except errors.BackslideError as error:
        print(f"error: {error.code}: {error.message}", file=sys.stderr)
        raise typer.Exit(1) from error
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    main()
