"""The little Markdown that a report needs, as GitHub reads it. What others wrote can't leave its cell or its span."""

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~@&!])")
_LINE_ENDS = re.compile(r"\s*[\r\n]+\s*")


def text(value: str) -> str:
    """Return prose that shows as it is: nothing in it is markup, a mention, a reference or a new line."""
    return _SPECIAL.sub(r"\\\1", _LINE_ENDS.sub(" ", value)).replace("\\@", "@\u200b").replace("\\#", "\\#\u200b")


def code(value: str) -> str:
    """Return a code span, fit for a table cell too; line ends become spaces, a bar is escaped as GitHub wants it."""
    line = _LINE_ENDS.sub(" ", value)
    fence = "`" * (_longest_run(line, "`") + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line.strip() else ""
    return f"{fence}{pad}{line}{pad}{fence}".replace("|", "\\|")


def block(value: str, language: str = "") -> str:
    """Return a fenced block; the fence is longer than any run of backticks inside."""
    fence = "`" * max(3, _longest_run(value, "`") + 1)
    return f"{fence}{language}\n{value.rstrip()}\n{fence}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; columns whose name ends in ``>`` stand to the right. Cells are Markdown already."""
    heads = [column.removesuffix(">") for column in columns]
    rules = ["---:" if column.endswith(">") else "---" for column in columns]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rules, *rows))


def bullets(lines: Iterable[str]) -> str:
    """Return a list; its lines are Markdown already."""
    return "\n".join(f"- {line}" for line in lines)


def details(summary: str, body: str) -> str:
    """Return a part that GitHub shows folded."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def _longest_run(value: str, character: str) -> int:
    return max((len(run) for run in re.findall(re.escape(character) + "+", value)), default=0)
