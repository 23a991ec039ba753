"""How numbers, times and hashes are written on the pages, and where an axis has its ticks."""

import math
import shlex
from datetime import datetime

from service.contract.upload import Identity

THIN = "\u202f"
"""Narrow no-break space, between a number and its unit."""


def number(value: float | None, digits: int = 4) -> str:
    """Return a value with so many significant digits, plain: 19.94, 1,234, 0.0461; a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 9)}f}"


def interval(low: float | None, high: float | None) -> str:
    """Return ``19.84 – 20.04`` with as many decimals as the larger needs; a dash when there is none."""
    if low is None or high is None:
        return "–"
    return f"{number(low)}{THIN}–{THIN}{number(high)}"


def ratio_interval(low: float | None, high: float | None) -> str:
    """Return ``1.454 – 1.484``: as many decimals as ratios have, so that they align."""
    return "–" if low is None or high is None else f"{ratio(low)[:-1]}{THIN}–{THIN}{ratio(high)[:-1]}"


def ratio(value: float | None) -> str:
    """Return a ratio with three decimals: 1.467×."""
    return "–" if value is None else f"{value:.3f}×" if value < 100 else f"{value:,.0f}×"


def points(value: float | None) -> str:
    """Return a difference of two shares in points: +0.8 points; a true minus sign."""
    return "–" if value is None else f"{_signed(value)}{THIN}points"


def points_interval(low: float | None, high: float | None) -> str:
    """Return ``−0.3 – +1.9``."""
    return "–" if low is None or high is None else f"{_signed(low)}{THIN}–{THIN}{_signed(high)}"


def _signed(share: float) -> str:
    return f"{share * 100:+.1f}".replace("-", "−")


def change(value: float | None) -> str:
    """Return a ratio as a signed change in percent: +46.7 %; a true minus sign."""
    if value is None:
        return "–"
    percent = (value - 1) * 100
    sign = "+" if percent > 0 else "−" if percent < 0 else "±"
    return f"{sign}{abs(percent):,.{1 if abs(percent) < 1000 else 0}f}{THIN}%"


def share(value: float) -> str:
    """Return a probability with two decimals, never rounded to certainty: 0.97, >0.99, <0.01."""
    return ">0.99" if 0.995 < value < 1 else "<0.01" if 0 < value < 0.005 else f"{value:.2f}"


def size(count: int) -> str:
    """Return bytes in binary units: 1.2 MiB."""
    amount, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f}{THIN}{unit}" if unit == "B" else f"{amount:.1f}{THIN}{unit}"


def count(value: float | None) -> str:
    """Return a whole number with its thousands apart: 1,234,567; a dash for none."""
    return "–" if value is None else f"{value:,.0f}"


def shell(identity: Identity) -> str:
    """Return the command that started a server as a shell takes it, variables first."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(identity.env.items())]
    return " ".join([*variables, shlex.join(identity.command)])


def bind(sentence: str) -> str:
    """Return a sentence in which no line can end between a number and its percent sign."""
    return sentence.replace(" %", "\u00a0%")


def clock(moment: datetime | None) -> str:
    """Return a time as ``2026-12-01 15:04:05 UTC``."""
    return "–" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """Return a duration as people say it: 850 ms, 12.3 s, 4 min 05 s, 2 h 03 min."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}{THIN}ms"
    if seconds < 60:
        return f"{seconds:.1f}{THIN}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{THIN}min {rest:02d}{THIN}s"
    return f"{minutes // 60}{THIN}h {minutes % 60:02d}{THIN}min"


def short(digest: str) -> str:
    """Return the first twelve characters of a hash."""
    return digest[:12]


def tick_label(value: float) -> str:
    """Return a round number without trailing zeros: 5, 5.5, 12,000."""
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers from ``low`` to ``high``, steps of 1, 2 or 5 times a power of ten; ``about`` is 3 or up."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]
