"""Numbers and foreign text as a reader sees them, the same in the page, the terminal and the artifacts."""

from __future__ import annotations

import unicodedata

NONE = "–"


def percent(value: float | None) -> str:
    """A share as a whole percentage."""
    return NONE if value is None else f"{value * 100:.0f}%"


def points(value: float | None) -> str:
    """A difference of shares in percentage points, signed."""
    if value is None:
        return NONE
    rounded = round(value * 100)
    return "0" if rounded == 0 else f"{rounded:+d}".replace("-", "−")


def between(low: float | None, high: float | None) -> str:
    """A 95% interval of a difference."""
    return "no interval" if low is None or high is None else f"{points(low)} to {points(high)}"


def p_value(value: float | None) -> str:
    """A p-value to three places."""
    if value is None:
        return NONE
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def duration(seconds: float | None) -> str:
    """Seconds as a person would say them."""
    if seconds is None:
        return NONE
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def moment(iso: str) -> str:
    """A time in UTC, to the minute."""
    from datetime import UTC, datetime

    try:
        return f"{datetime.fromisoformat(iso).astimezone(UTC):%-d %B %Y, %H:%M} UTC"
    except ValueError:
        return iso or NONE


def visible(text: str, limit: int) -> str:
    """Foreign text with its control and direction characters made visible, cut after `limit` characters.

    Escaping for HTML or Rich is left to the place that writes it.
    """
    shown = "".join(map(_visible, text[:limit]))
    return f"{shown}\n… {len(text) - limit:,} more characters" if len(text) > limit else shown


def _visible(character: str) -> str:
    if character in "\n\t":
        return character
    # Cf holds the bidirectional overrides, which could make a line read as another; Cs and Co have no glyph.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co"):
        return f"⟨U+{ord(character):04X}⟩"
    return character
