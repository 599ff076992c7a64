"""Ingest as a Prefect task. Nothing is cached by Prefect: ingest itself does nothing twice."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage.home import Home
from tasks.ingest.ingest import ingest
from tasks.ingest.result import IngestResult


@task(name="ingest", cache_policy=NO_CACHE)
def ingest_task(
    home: Path, paths: list[str], *, format: str = "auto", source: str | None = None
) -> IngestResult:
    """Add the traces at `paths` to the lake below `home`."""
    return ingest(Home.open(home), paths, format=format, source=source)
