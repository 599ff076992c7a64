"""The nightly flow: ingest, convert, SFT, RL, evaluate, promote, report.

Keeps true: one night at a time in a home; a stage whose inputs did not change is not done again, so a night
that died goes on where it died; whatever ends it, the run's manifest says so and nothing keeps running. The
stages are in night.py.
"""

import os
from contextvars import ContextVar

from prefect import flow

from flows.config import NightConfig, load
from flows.night import Night, NightResult
from flows.runs import running
from storage.home import Home
from tasks.progress import Progress, silent

listener: ContextVar[Progress] = ContextVar("listener", default=silent)
"""Who hears of the night's progress: a function is no flow parameter."""


@flow(name="nightly")
def nightly(config: NightConfig | None = None, home: str | None = None) -> NightResult:
    """One night.

    Args:
        config: everything that can be set; None reads NIGHTSCHOOL_CONFIG or ./nightschool.toml when the night
        begins. home: where everything is kept; None: NIGHTSCHOOL_HOME, the configuration's home, or ./var.

    Raises:
        NightFailed: a stage failed; it holds the result so far.
        LockHeld: another run is at work in this home.
    """
    settings = config or load()
    place = Home.open(home or os.environ.get("NIGHTSCHOOL_HOME") or settings.home or "var")
    with running(place, "nightly", settings.model_dump(mode="json")) as run:
        night = Night(place, run, settings, listener.get())
        with night.failing_with_a_result():
            night.through()
        return night.result("completed", report=night.report())
