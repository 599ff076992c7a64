"""One JSON text and its value: what a record is before anyone asks what it says.

Numbers keep their digits, NaN and infinities become null, and half a surrogate pair becomes U+FFFD.
Errors never quote the text.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Record:
    """One record: its value, or the reason why there is none. `byte_offset` counts in the unpacked file."""

    byte_offset: int
    length: int
    digest: str
    raw: bytes = field(repr=False)
    value: Any = None
    repaired: bool = False
    reason: str | None = None
    detail: str = ""


def parse_json(text: str, *, strict: bool = False) -> tuple[Any, bool]:
    """The value, and whether lone surrogates were replaced.

    NaN and infinities become null. Raises ValueError.
    """
    try:
        value = json.loads(text, strict=strict, parse_constant=lambda _: None, parse_float=_finite)
        # Only an escape can bring a surrogate in, because the text itself came from valid UTF-8.
        return _repair(value) if "\\ud" in text.lower() else (value, False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def parsed(offset: int, raw: bytes) -> Record:
    """The record in these bytes, with its value or the reason why there is none."""
    try:
        value, repaired = parse_json(raw.decode())
    except UnicodeDecodeError:
        return broken(offset, raw, "bad_utf8", "not valid UTF-8")
    except ValueError as error:
        return broken(offset, raw, "bad_json", _without_content(error))
    return Record(offset, len(raw), hashlib.sha256(raw).hexdigest(), raw, value, repaired)


def broken(offset: int, raw: bytes, reason: str, detail: str) -> Record:
    """A record without a value."""
    return Record(offset, len(raw), hashlib.sha256(raw).hexdigest(), raw, reason=reason, detail=detail)


def _without_content(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at character {error.pos}"
    return "not JSON: nested too deeply" if "deeply" in str(error) else "not JSON: a number is too long"


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _repair(value: Any) -> tuple[Any, bool]:
    if isinstance(value, str):
        repaired = _SURROGATE.sub("\ufffd", value)
        return repaired, repaired != value
    if isinstance(value, list):
        pairs = [_repair(each) for each in value]
        return [each for each, _ in pairs], any(changed for _, changed in pairs)
    if isinstance(value, dict):
        items = [(_repair(key), _repair(each)) for key, each in value.items()]
        return {k[0]: v[0] for k, v in items}, any(k[1] or v[1] for k, v in items)
    return value, False
