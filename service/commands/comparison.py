"""How a comparison looks in a terminal. Every number and sentence is the controller's; nothing is computed here."""

from typing import Any
from urllib.parse import urlencode

from service.commands.output import plain, print_line, print_table

_COLUMNS = ("metric", "unit", "base>", "95 %>", "head>", "95 %>", "head / base>", "95 %>", "verdict")


def show(view: dict[str, Any], url: str) -> None:
    """Print the verdict sentence, the table of metrics, what to know about them, and the page's address."""
    print_line(view["sentence"])
    print()
    cell = view["cell"]
    print_line(f"{cell['recipe']} · {cell['workload']} · {cell['hardware']} · {view['marks']}")
    columns = [_named(column, view) for column in _COLUMNS]
    print_table(columns, map(_row, view["rows"]), "No metric could be compared.")
    if view["accuracy"]:
        print()
        print_line(view["accuracy"]["sentence"])
    used = sum(launch["used"] for launch in view["launches"])
    unused = len(view["launches"]) - used
    print()
    print_line(f"{used} launches" + (f", and {unused} that give no evidence" if unused else "") + ".")
    for note in [*view["notes"], *view["differences"]]:
        print_line(f"· {note}")
    if view["other_cells"]:
        others = ", ".join(f"{one['recipe']}/{one['workload']} ({one['digest'][:12]})" for one in view["other_cells"])
        print_line(f"· Both were also measured in: {others}. Choose with --cell.")
    print_line(page_of(view, url))


def page_of(view: dict[str, Any], url: str) -> str:
    """Return the address of the comparison's page."""
    query = {"metric": view["metric"]} | ({"request": view["request_id"]} if view["request_id"] else {})
    return f"{url}/compare/{view['base']['name']}...{view['head']['name']}?{urlencode(query)}"


def _named(column: str, view: dict[str, Any]) -> str:
    for side in ("base", "head"):
        if column == f"{side}>":
            return f"{plain(view[side]['name'])}>"
    return column.replace("95 %", f"{view['confidence'] * 100:.3g} %")


def _row(row: dict[str, Any]) -> list[Any]:
    base, head = row["base"], row["head"]
    return [
        row["label"],
        row["unit"],
        _number(base["value"]),
        _interval(base),
        _number(head["value"]),
        _interval(head),
        _number(row["ratio"], 3),
        _interval(row, 3),
        row["verdict"],
    ]


def _interval(found: dict[str, Any], digits: int | None = None) -> str:
    if found["low"] is None:
        return "–"
    return f"{_number(found['low'], digits)} … {_number(found['high'], digits)}"


def _number(value: float | None, decimals: int | None = None) -> str:
    if value is None:
        return "–"
    if decimals is None:
        decimals = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2
    return f"{value:.{decimals}f}"
