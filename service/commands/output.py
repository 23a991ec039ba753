"""What the command line prints: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 200
"""Columns when the output is no terminal: wide enough that no cell is cut."""


def console() -> Console:
    """Return a console for standard output; without colour, and wide, when that is no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH, color_system=None)


def print_json(value: Any) -> None:
    """Print JSON and nothing else."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> None:
    """Print rows under their columns, or the sentence ``empty`` when there are none. Columns whose name ends in ``>``
    are numbers and stand to the right."""
    table = make_table(columns, rows)
    if table.row_count:
        console().print(table)
    else:
        print(empty)


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a table; every cell is printed as it is, never read as markup."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.removesuffix(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return table


def plain(value: Any) -> str:
    """Return one printable line: what a server or a log said must not steer the terminal."""
    if value is None:
        return "–"
    text = value if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else str(value)
    return "".join(character if character.isprintable() else " " for character in text)


def print_line(text: str) -> None:
    """Print one line at once, also into a pipe."""
    print(plain(text), flush=True)
