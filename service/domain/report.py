"""A bisect's result as Markdown for a GitHub issue: what was found, how sure it is, and how to do it again.

Pure: numbers and sentences come in, nothing is decided here. The text stays below GitHub's limit of 65 536 characters:
hashes of raw logs, the only part that grows with the launches, are left out beyond that, and the report says so.
"""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.contract.builds import BuildSpec
from service.contract.recipes import Recipe
from service.contract.workloads import Workload
from service.domain import catalog_file
from service.domain.markdown import block, bullets, code, details, table, text

MAX_CHARACTERS = 60_000
_GROUPS = ("builds", "recipes", "workloads")


@dataclass(frozen=True)
class Column:
    """A metric of the table: its label and unit."""

    label: str
    unit: str

    @property
    def title(self) -> str:
        """The label, with its unit where it does not say it already."""
        return self.label if not self.unit or self.unit in self.label else f"{self.label} ({self.unit})"


@dataclass(frozen=True)
class VersionRow:
    """One version: ``values`` by column, geometric mean over its usable launches, None where it was not measured."""

    name: str
    launches: int
    values: tuple[float | None, ...]
    accuracy: str | None
    """Its gsm8k score in words, such as ``0.9204 ± 0.0075``."""
    note: str
    """``last good``, ``first bad``, or why nothing is known of it."""
    broken: bool = False


@dataclass(frozen=True)
class ConfirmationRow:
    """One launch of the confirmation, in the order of time."""

    block: int
    slot: str
    build: str
    launch_id: str
    value: float | None
    validity: str


@dataclass(frozen=True)
class EvidenceRow:
    """One launch with the SHA-256 of its raw logs."""

    launch_id: str
    build: str
    phase: str
    validity: str
    said_version: str
    raw_logs: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """Everything that the text says. Values are as measured: in compressed time where the recipe compresses it."""

    title: str
    answer: str
    sentence: str
    accuracy: str | None
    simulated: bool
    bisect_id: str
    good: str
    bad: str
    metric: Column
    metric_name: str
    metric_formula: str
    submitter: str
    asked_at: datetime
    ended_at: datetime | None
    hardware: str
    recipe: Recipe
    workload: Workload
    ruler_version: int | None
    columns: tuple[Column, ...]
    versions: tuple[VersionRow, ...]
    confirmation: tuple[ConfirmationRow, ...]
    broken: tuple[tuple[str, str], ...]
    """Builds that did not start: name, and why."""
    evidence: tuple[EvidenceRow, ...]
    launches: int
    slot_minutes: float
    body: dict[str, Any]
    """What POST /api/v1/bisects takes to do it again."""
    builds: tuple[BuildSpec, ...]
    """The lineup, in order, as registered."""
    not_claimed: tuple[str, ...]
    url: str | None = None


def write(report: Report) -> str:
    """Return the report, a title line first; at most MAX_CHARACTERS long."""
    full = _text(report, report.evidence, hashes=True)
    if len(full) <= MAX_CHARACTERS:
        return full
    short = _text(report, report.evidence, hashes=False)
    return short if len(short) <= MAX_CHARACTERS else _text(report, (), hashes=False)


def _text(report: Report, evidence: Sequence[EvidenceRow], *, hashes: bool) -> str:
    parts = [
        f"# {text(report.title)}",
        _warning(report),
        f"**{text(report.sentence)}**",
        _asked(report),
        _versions(report),
        _confirmation(report),
        _accuracy(report),
        _broken(report),
        _environment(report),
        _repeat(report),
        _evidence(report, evidence, hashes),
        _not_claimed(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _warning(report: Report) -> str:
    factor = report.recipe.time_compression
    lines = []
    if report.simulated:
        lines.append(
            "**SIMULATED BUILDS.** No GPU and no vLLM took part: a simulated server replays step times made from "
            "published figures. Nothing here is a measurement of vLLM."
        )
    if factor != 1:
        lines.append(
            f"**TIME COMPRESSED {factor:g}x.** Milliseconds and rates are as measured, {factor:g} times faster than "
            f"the server claims; multiply milliseconds by {factor:g} to compare them with published ones. Ratios stand."
        )
    return "> [!WARNING]\n" + "\n>\n".join(f"> {line}" for line in lines) if lines else ""


def _asked(report: Report) -> str:
    ended = f", ended {_time(report.ended_at)}" if report.ended_at else ""
    return "## What was asked\n\n" + bullets(
        [
            f"which version between {code(report.good)} (good) and {code(report.bad)} (bad) made "
            f"{text(report.metric.title)} worse",
            f"{text(report.metric.label)}: {text(report.metric_formula)}",
            f"asked by {text(report.submitter)} at {_time(report.asked_at)}{ended}; answer: **{text(report.answer)}**",
            f"cost: {report.launches} launches (server starts), {report.slot_minutes:.1f} slot-minutes",
        ]
    )


def _versions(report: Report) -> str:
    columns = ["version", "launches>", *(f"{text(one.title)}>" for one in report.columns)]
    rows = [
        [
            code(row.name),
            str(row.launches),
            *(_number(value) for value in row.values),
            text(row.accuracy or "–"),
            text(row.note),
        ]
        for row in report.versions
    ]
    return (
        "## Versions\n\n"
        + table([*columns, "gsm8k>", ""], rows)
        + "\n\nGeometric means over the usable launches of a version, search and confirmation together. They show "
        "where the step lies; the size of the step is from the confirmation launches alone."
    )


def _confirmation(report: Report) -> str:
    if not report.confirmation:
        return ""
    unit = text(report.metric.title)
    rows = [
        [
            str(row.block),
            text(row.slot),
            code(row.build),
            _number(row.value) + ("" if row.validity == "valid" else f" ({text(row.validity)})"),
            code(row.launch_id),
        ]
        for row in report.confirmation
    ]
    return (
        "## Confirmation\n\nFresh launches of the two neighbours, in the order A B B A, each block on one slot; "
        "none of them took part in the search. The size above is from these launches alone.\n\n"
        + table(["block", "slot", "version", f"{unit}>", "launch"], rows)
    )


def _accuracy(report: Report) -> str:
    if report.accuracy is None:
        return ""
    return f"## Accuracy\n\n{text(report.accuracy)}"


def _broken(report: Report) -> str:
    if not report.broken:
        return ""
    lines = [f"{code(name)}: {code(why)}" for name, why in report.broken]
    return (
        "## Builds that could not be measured\n\nThey are skipped, never blamed: a step between one of them and its "
        "neighbour can't be told apart from one on its other side.\n\n" + bullets(lines)
    )


def _environment(report: Report) -> str:
    recipe, load = report.recipe, report.workload
    order = {build.name: at for at, build in enumerate(report.builds)}
    rows = sorted(report.evidence, key=lambda row: order.get(row.build, len(order)))
    said = {row.build: row.said_version for row in rows}
    lines = [
        f"hardware class {code(report.hardware)}, {'simulated' if report.simulated else 'real'}; model "
        f"{code(recipe.model)}, tensor parallel {recipe.tensor_parallel}",
        f"recipe {code(recipe.name)}: arguments {code(shlex.join(recipe.args)) if recipe.args else 'none'}"
        + (f", environment {code(_environment_line(recipe.env))}" if recipe.env else ""),
        *(f"rule for {_range(rule.since, rule.until)}: {code(_rule(rule.args, rule.env))}" for rule in recipe.rules),
        f"workload {code(load.name)}: {load.prefix_tokens} tokens of shared prefix and {load.suffix_tokens} of its own "
        f"in every prompt, {load.output_tokens} output tokens, {load.concurrency} requests at once, {load.requests} a "
        f"repetition after {load.warmup_requests} of warm-up, {load.repetitions} repetitions a launch, "
        f"seed {load.seed}",
        "ruler version " + ("–" if report.ruler_version is None else str(report.ruler_version)),
        "versions, as the servers themselves said: "
        + (", ".join(f"{code(build)} said {code(version)}" for build, version in said.items()) or "none"),
    ]
    return "## Environment\n\n" + bullets(lines)


def _repeat(report: Report) -> str:
    body = json.dumps(report.body, indent=2, ensure_ascii=False)
    where = report.url or "http://127.0.0.1:8400"
    commands = [command(report.body)]
    if report.evidence:
        commands.append(f"backslide recompute {report.evidence[-1].launch_id}  # every number again, from its raw log")
    return (
        "## How to repeat it\n\n"
        + block("\n".join(commands), "sh")
        + f"\n\nThe same over REST, {code(f'POST {where}/api/v1/bisects')} with a token of role submitter:\n\n"
        + block(body, "json")
        + "\n\n"
        + details(
            f"bisect.toml: {len(report.builds)} builds, recipe and workload, for a controller that lacks them",
            block(catalog_file.write(report.builds, report.recipe, report.workload), "toml")
            + "\n\n"
            + block("\n".join(f"backslide {group} register bisect.toml" for group in _GROUPS), "sh"),
        )
    )


def command(body: dict[str, Any]) -> str:
    """Return the command line that asks for a bisect again; ``body`` is what POST /api/v1/bisects took."""
    words = ["backslide", "bisect", "start", str(body["good"]), str(body["bad"])]
    for name, value in body.items():
        option = "--" + name.replace("_", "-")
        if name in ("good", "bad", "kind") or value is None:
            continue
        if isinstance(value, bool):
            words += [option] if value else ["--no-" + name.replace("_", "-")]
        elif isinstance(value, list):
            words += [option, ",".join(map(str, value))]
        else:
            words += [option, f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def _evidence(report: Report, evidence: Sequence[EvidenceRow], hashes: bool) -> str:
    head = f"## Evidence\n\nBisect {code(report.bisect_id)}"
    head += f", {report.url}/bisects/{report.bisect_id}." if report.url else "."
    if not report.evidence:
        return head + " Nothing was measured."
    if not evidence:
        return head + f" {len(report.evidence)} launches; the list would be too long here and is on the bisect's page."
    rows = [
        [
            code(row.launch_id),
            code(row.build),
            text(row.phase),
            text(row.validity),
            " ".join(code(one) for one in row.raw_logs) if hashes else "–",
        ]
        for row in evidence
    ]
    left_out = "" if hashes else "\n\nThe hashes would make this too long; they are on the pages of the launches."
    folded = details(
        f"{len(evidence)} launches with the SHA-256 of their raw logs",
        table(["launch", "version", "phase", "validity", "raw logs"], rows) + left_out,
    )
    return f"{head}\n\n{folded}"


def _not_claimed(report: Report) -> str:
    return "## What is not claimed\n\n" + bullets(text(line) for line in report.not_claimed)


def _range(since: str | None, until: str | None) -> str:
    return f"{since or 'the first'} ≤ version" + (f" < {until}" if until else "")


def _rule(args: Sequence[str], env: dict[str, str]) -> str:
    return " ".join(part for part in (_environment_line(env), shlex.join(args)) if part)


def _environment_line(env: dict[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(env.items()))


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _number(value: float | None) -> str:
    """Four significant digits, with zeros at the end too: a column of them aligns."""
    if value is None:
        return "–"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"
