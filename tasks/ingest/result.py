"""What one ingest reports: counts, and everything that could not be used."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class QuarantinedEntry(BaseModel):
    """What could not be used, where it stood, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    byte_offset: int
    reason: str
    detail: str


class IngestResult(BaseModel):
    """What one call did.

    `records` counts everything that was found, `new` and `duplicate` what reached the lake now or was there
    before, `conversations` the paths in this input whether new or not. A record whose history held a stray
    tool result is in the lake and has an entry in `quarantined` for the stray.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    files: int
    bytes: int
    records: int
    new: int
    duplicate: int
    conversations: int
    quarantined: list[QuarantinedEntry]
    redacted: dict[str, int]
    seconds: float
    preview: list[dict[str, Any]] | None = None
