"""``backslide recompute``: a launch's stored numbers again, from its raw logs, on this machine."""

import hashlib
from pathlib import Path
from typing import Annotated, Any

import typer

from service.commands.client import BadInput, Client, CommandFailed
from service.commands.output import print_json, print_line
from service.commands.session import AsJson, client_of
from service.contract.errors import BackslideError

SEARCHED = 1000
"""Newest launches among which the one of a file is looked for."""


def recompute(
    ctx: typer.Context,
    launch_id: Annotated[str | None, typer.Argument(help="Id of a launch.")] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", help="A raw log on this machine, in place of the stored one; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute a launch's numbers again from its raw logs; exit 1 where they differ from what is stored."""
    client = client_of(ctx)
    files = _read(file or [])
    if launch_id is None and not files:
        raise BadInput("Name a launch, or raw logs with --file.")
    launch = _launch_of(client, files) if launch_id is None else client.get(f"launches/{launch_id}")
    report = compare_launch(client, launch, files)
    if as_json:
        print_json(report)
    else:
        _show(report)
    if report["differences"]:
        raise CommandFailed(f"{len(report['differences'])} stored values differ from what the raw logs give.")


def compare_launch(client: Client, launch: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    """Return ``launch``, ``values`` (how many numbers and judgements were computed again) and ``differences``.

    Raw logs come from ``files`` (by SHA-256) or from the controller. Raises BadInput for a file that is none of the
    launch's, and when another ruler than this one computed the numbers.
    """
    _check_files(launch, files)
    from service.ruler import RULER_VERSION  # numpy comes with it: slow to import, and only needed here
    from service.ruler.launch import launch_values

    found: list[tuple[str, Any, Any]] = []
    parts = []
    for one in launch["repetitions"]:
        if one["ruler_version"] != RULER_VERSION:
            raise BadInput(
                f"Repetition {one['number']} is by ruler version {one['ruler_version']}, and this is {RULER_VERSION}."
            )
        part = _again(launch, one, files.get(one["raw_log"]) or _download(client, launch, one["raw_log"]))
        parts.append(part)
        metrics, judgement = part[0].model_dump(mode="json"), part[1].model_dump(mode="json")
        label = f"repetition {one['number']}"
        found += [(f"{label} {name}", one["metrics"].get(name), value) for name, value in metrics.items()]
        found.append((f"{label} validity", one["validity"], judgement["validity"]))
        found.append(
            (f"{label} reasons", [r["code"] for r in one["reasons"]], [r["code"] for r in judgement["reasons"]])
        )
    values = {name: value.value for name, value in launch_values(parts).items()}
    found += [
        (f"launch {name}", launch["metrics"].get(name), values.get(name))
        for name in sorted(values.keys() | launch["metrics"].keys())
    ]
    differences = [{"what": what, "stored": old, "recomputed": new} for what, old, new in found if old != new]
    return {"launch": launch["id"], "values": len(found), "differences": differences}


def _again(launch: dict[str, Any], repetition: dict[str, Any], raw: bytes) -> Any:
    from service.contract.upload import ServerCounters
    from service.contract.workloads import Workload
    from service.ruler.recompute import recompute as computed

    workload = Workload.model_validate(launch["cell"]["workload"])
    counters = ServerCounters.model_validate(repetition["counters"])
    try:
        return computed(raw, workload, counters, launch["report"]["block_size"])
    except BackslideError as error:
        raise CommandFailed(f"Repetition {repetition['number']}: {error.message} [{error.code}]") from error


def _download(client: Client, launch: dict[str, Any], sha256: str) -> bytes:
    names = [one["name"] for one in launch["artifacts"] if one["sha256"] == sha256]
    if not names:
        raise CommandFailed(f"The controller has no file with SHA-256 {sha256[:12]} for {launch['id']}.")
    raw = client.download(f"launches/{launch['id']}/artifacts/{names[0]}")
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise CommandFailed(f"The controller's raw log {sha256[:12]} has other bytes than its hash says.")
    return raw


def _read(paths: list[Path]) -> dict[str, bytes]:
    try:
        contents = [path.read_bytes() for path in paths]
    except OSError as error:
        raise BadInput(f"{error.filename} can't be read: {error.strerror}.") from error
    return {hashlib.sha256(content).hexdigest(): content for content in contents}


def _check_files(launch: dict[str, Any], files: dict[str, bytes]) -> None:
    foreign = files.keys() - {one["raw_log"] for one in launch["repetitions"]}
    if foreign:
        raise BadInput(f"The file with SHA-256 {min(foreign)} is no repetition's raw log of {launch['id']}.")


def _launch_of(client: Client, files: dict[str, bytes]) -> dict[str, Any]:
    for launch in client.get("launches", limit=SEARCHED):
        if files.keys() & {one["raw_log"] for one in launch["repetitions"]}:
            return dict(launch)
    raise BadInput(f"None of the newest {SEARCHED} launches has a raw log with SHA-256 {min(files)}.")


def _show(report: dict[str, Any]) -> None:
    for one in report["differences"]:
        print_line(f"{one['what']}: stored {one['stored']}, recomputed {one['recomputed']}")
    if not report["differences"]:
        print_line(f"Equal: {report['values']} stored values of {report['launch']}, from the raw logs.")
