"""What every chart is drawn with: escaped tags, a frame with title and description, and a linear scale."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 1120
XMLNS = "http://www.w3.org/2000/svg"


@dataclass(frozen=True)
class Scale:
    """Maps values in [low, high] to [start, end] of the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def padded(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of values with some room on either side; never empty."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = (high - low) * 0.06 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def drawing(name: str, title: str, description: str, height: float, parts: Iterable[Markup]) -> Markup:
    """Return an image with its title and description; ``name`` is the id that both are made from."""
    attributes = {
        "class": "chart",
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-desc",
        "viewBox": f"0 0 {WIDTH} {height:g}",
        "xmlns": XMLNS,
    }
    heads = [
        tag("title", {"id": f"{name}-title"}, [escape(title)]),
        tag("desc", {"id": f"{name}-desc"}, [escape(description)]),
    ]
    return tag("svg", attributes, [*heads, *parts])


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    """Return a line of a class."""
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    return tag("line", {"class": kind, **ends})


def text(kind: str, x: float, y: float, content: str) -> Markup:
    """Return a text of a class; its content is escaped here."""
    return tag("text", {"class": kind, "x": f"{x:.1f}", "y": f"{y:.1f}"}, [escape(content)])


def tag(name: str, attributes: dict[str, str], content: Iterable[Markup] = ()) -> Markup:
    """The one place where markup is made: names are ours, values are escaped, content was escaped before."""
    written = Markup("").join(Markup(' {}="{}"').format(key, value) for key, value in attributes.items())
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, Markup("").join(content))
