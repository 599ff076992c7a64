"""The report step as a Prefect task: writes the page, and the same as artifacts of the flow run."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from storage.home import Home
from tasks.report.html import write_report
from tasks.report.markdown import markdown_tables


@task(name="report", cache_policy=NO_CACHE)
def report_task(home: Home, run_id: str) -> Path:
    """Write report.html and create the artifacts "night" and "paired"; returns the page's path."""
    page = write_report(home, run_id)
    artifacts = markdown_tables(home, run_id)
    create_markdown_artifact(artifacts.summary, key="night", description=f"Report: {page}")
    if artifacts.paired:
        create_table_artifact(
            artifacts.paired, key="paired", description="Task by task, incumbent against candidate"
        )
    return page
