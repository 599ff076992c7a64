"""report.html: one file that shows the whole night and asks nothing of the network.

Every value passes through Jinja's autoescape; only the curves, which are drawn here from numbers, go in as
markup. A Content-Security-Policy in the page forbids scripts and requests, should anything ever slip through.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from storage import atomic
from storage.home import Home
from tasks.report import lineage, plots, rollouts, wording
from tasks.report.data import load
from tasks.report.view import build

TEMPLATES = Path(__file__).parent / "templates"
FILE_NAME = "report.html"


def write_report(home: Home, run_id: str) -> Path:
    """Write the run's report.html and return its path. Raises NotFound if there is no such run."""
    data = load(home, run_id)
    view = build(data)
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            view=view,
            main_curves=plots.main_curves(data.metrics),
            small_curves=plots.small_curves(data.metrics),
            pairs=rollouts.pairs(data),
            lineage=lineage.trace(data),
        )
    )
    path = home.runs / view.id / FILE_NAME
    atomic.write_bytes(path, page.encode())
    return path


def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("percent", "points", "between", "p_value", "duration", "moment"):
        environment.filters[name] = getattr(wording, name)
    environment.globals["stylesheet"] = Markup((TEMPLATES / "report.css").read_text())
    return environment
