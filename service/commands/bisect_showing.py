"""How a bisect looks in a terminal. Every number and sentence is the controller's; nothing is computed here."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from service.commands.output import plain, print_line, print_table

View = dict[str, Any]
TABLE = (
    ("tpot_p50_ms", "TPOT p50 ms"),
    ("itl_p50_ms", "ITL p50 ms"),
    ("output_tok_s", "output tok/s"),
    ("ttft_p50_ms", "TTFT ms"),
)
_BLOCKS = "▁▂▃▄▅▆▇█"
_SHOWN_FROM = 0.005


def show(view: View, url: str) -> None:
    """Print a bisect as it is: what is known, the table of versions, what was left out, the cost, the page."""
    print_line(headline(view))
    for line in outcome(view):
        print_line(line)
    print()
    print_table(table_columns(view), [table_row(view, one) for one in view["lineup"]], "The lineup is empty.")
    print()
    for line in skipped(view):
        print_line(line)
    print_line(cost(view))
    print_line(f"{url}/bisects/{view['id']}")


def headline(view: View) -> str:
    """Return what a bisect is about, in one line."""
    cell = view["cell"]
    return (
        f"{view['id']}: which of {view['versions']} versions from {view['good']['name']} to {view['bad']['name']} made "
        f"{view['label']} worse, {cell['recipe']} · {cell['workload']} · {cell['hardware']} ({view['marks']})"
    )


def outcome(view: View) -> list[str]:
    """Return the sentences that matter: the finding's, or what is known so far."""
    state = state_of(view)
    finding = view["finding"]
    if finding is None:
        reason = f": {view['reason']}" if view["reason"] else ""
        lines = [f"{state}{reason}. {view['sentence']}".strip()]
        return lines if not is_open(view) else [*lines, left(view)]
    lines = [f"{state}, {view['label']}: {view['sentence']}"]
    return [*lines, *([finding["accuracy"]] if finding["accuracy"] else [])]


def state_of(view: View) -> str:
    """Return the state in a word or two; the answer once there is one."""
    if view["answer"]:
        return str(view["answer"]).replace("_", " ")
    state = str(view["state"]).replace("_", " ")
    if is_open(view) and view["cancel_requested"]:
        return f"{state}, cancel asked"
    return f"{state}, paused" if is_open(view) and view["paused"] else state


def is_open(view: View) -> bool:
    """Return whether a bisect still goes on, or would if it were not paused."""
    return view["state"] not in ("ended", "failed", "cancelled")


def left(view: View) -> str:
    """Return what is still to be spent, such as: left: about 9 launches (6 to 14), about 3 minutes."""
    forecast = view["forecast"]
    if forecast is None:
        return "left: not known yet"
    low, mean, high = (forecast[name] for name in ("launches_low", "launches", "launches_high"))
    minutes = forecast["minutes"]
    time = "" if minutes is None else f", about {minutes:.0f} min" if minutes >= 1 else f", about {minutes * 60:.0f} s"
    return f"left: about {mean:.0f} launches ({low:.0f} to {high:.0f}){time}"


def cost(view: View) -> str:
    """Return what was spent."""
    spent = f"{view['launches_done']} launches, {view['slot_minutes']:.1f} slot-minutes"
    if view["ended_at"]:
        took_s = (_time(view["ended_at"]) - _time(view["created_at"])).total_seconds()
        spent += f", {took_s / 60:.1f} minutes from asking to the end"
    return f"Spent: {spent}."


def skipped(view: View) -> Iterator[str]:
    """Yield a line for each version that could not be measured."""
    for one in view["lineup"]:
        if one["broken"]:
            yield f"· {one['name']} could not be measured and is skipped: {one['why']}"


def table_columns(view: View) -> tuple[str, ...]:
    """Return the columns of the table of versions; the asked metric is among them."""
    own = () if _is_shown(view["metric"]) else (f"{view['label']} {view['unit']}>",)
    return ("version", "launches>", *own, *(f"{label}>" for _, label in TABLE), "gsm8k>", "")


def table_row(view: View, one: dict[str, Any]) -> list[Any]:
    """Return one version of the table."""
    own = [] if _is_shown(view["metric"]) else [_number(one["metrics"].get(view["metric"], one["value"]))]
    accuracy = f"{one['gsm8k']:.4f}" if one["gsm8k"] is not None else one["gsm8k_note"] or "–"
    values = [_number(one["metrics"].get(name)) for name, _ in TABLE]
    return [one["name"], one["launches"], *own, *values, accuracy, note(view, one)]


def note(view: View, one: dict[str, Any]) -> str:
    """Return what is to be said of a version: a neighbour of the step, or that it could not be measured."""
    finding = view["finding"] or {}
    if one["broken"]:
        return "could not be measured"
    marks = {finding.get("last_good"): "last good", finding.get("first_bad"): "first bad"}
    return marks.get(one["name"], "")


def sparkline(picture: dict[str, Any]) -> str:
    """Return the posterior as one bar of text: no change, then every step from good to bad."""
    return f"{_bar(picture['none'])}|{''.join(_bar(one['probability']) for one in picture['steps'])}"


def posterior(picture: dict[str, Any]) -> str:
    """Return the posterior in words, the likeliest first, what is below half a percent left out."""
    known = [(one["probability"], f"{one['last_good']} → {one['first_bad']}") for one in picture["steps"]]
    shown = [one for one in [(picture["none"], "no change"), *known] if one[0] >= _SHOWN_FROM]
    ordered = sorted(shown, key=lambda one: -one[0])
    return ", ".join(f"{what} {probability(value)}" for value, what in ordered[:5]) + (
        f" and {len(ordered) - 5} more" if len(ordered) > 5 else ""
    )


def probability(value: float) -> str:
    """Return a probability with two decimals, never rounded to certainty."""
    return ">0.99" if 0.995 < value < 1 else "<0.01" if 0 < value < 0.005 else f"{value:.2f}"


def order_lines(step: dict[str, Any]) -> Iterator[str]:
    """Yield what a step ordered, and why."""
    for order in step["orders"]:
        bits = "" if order["bits"] is None else f" [{order['bits']:.2f} bits]"
        reason = f": {order['reason']}" if order["reason"] else ""
        yield f"{' '.join(order['builds'])}{reason}{bits}"


def explain(view: View) -> Iterator[str]:
    """Yield the log of a bisect: every decision with what was known, and every launch between them, by time."""
    began = _time(view["created_at"])
    entries = [(_time(step["at"]), 1, list(_step_lines(step))) for step in view["steps"]]
    for one in view["lineup"]:
        entries += [(_time(point["at"]), 0, [_point_line(view, one, point)]) for point in one["points"]]
    for at, _, lines in sorted(entries, key=lambda entry: entry[:2]):
        yield f"{(at - began).total_seconds():7.1f} s  {lines[0]}"
        yield from (f"           {line}" for line in lines[1:])


def _step_lines(step: dict[str, Any]) -> Iterator[str]:
    phase = f", {step['phase']}" if step["phase"] else ""
    yield f"STEP {step['number']}{phase}: {step['reason']}"
    yield f"posterior {sparkline(step['picture'])}  {posterior(step['picture'])}"
    yield from (f"ordered {line}" for line in order_lines(step))
    forecast = step["forecast"]
    spent = f"{step['launches_done']} launches ended, {step['launches_pending']} pending"
    yield (
        f"{spent}, {step['slot_minutes']:.1f} slot-minutes; expected: {forecast['launches']:.0f} launches more "
        f"({forecast['launches_low']:.0f} to {forecast['launches_high']:.0f})"
    )


def _point_line(view: View, one: dict[str, Any], point: dict[str, Any]) -> str:
    value = f"{_number(point['value'])} {view['unit']}".strip()
    found = value if point["value"] is not None else f"no value: {point['unused_because']}"
    return f"{one['name']} launched for {point['phase']}, {view['label']} {found}  {point['launch_id']}"


def summary_row(item: dict[str, Any]) -> list[Any]:
    """Return a bisect as a row of the list."""
    between = f"{item['good']['name']} … {item['bad']['name']}"
    cell = item["cell"]
    return [
        item["id"],
        state_of(item),
        between,
        item["metric"],
        f"{cell['recipe']} · {cell['workload']}",
        item["launches_done"],
        item["created_at"][:19],
        plain(item["sentence"]),
    ]


def _is_shown(metric: str) -> bool:
    return metric == "gsm8k" or any(metric == name for name, _ in TABLE)


def _bar(value: float) -> str:
    return _BLOCKS[max(0, round(value * (len(_BLOCKS) - 1)))] if value >= _SHOWN_FROM else "·"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.{0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 4 if abs(value) < 1 else 3}f}"
