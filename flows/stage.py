"""Stages of a night: each done once for the same inputs, and every one written down.

Keeps true: a stage whose inputs and results are still there is not done again; its state, seconds and output
are in the run's events the moment it ends. Leaves to others: what a stage does, and in which order.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from storage import stages
from storage.errors import StorageError
from storage.home import Home
from storage.runs import Run

type Output = dict[str, Any]
State = Literal["completed", "failed", "interrupted", "skipped"]


class StageResult(BaseModel):
    """How one stage went; `note` says why it was skipped or failed."""

    model_config = ConfigDict(frozen=True)

    name: str
    state: State
    seconds: float
    reused: bool
    note: str = ""


class Stages:
    """The stages of one run, as they are done. `told` hears of each when it begins and when it ends."""

    def __init__(self, home: Home, run: Run, told: Callable[[str, StageResult | None], None]) -> None:
        self.home, self.run, self._told = home, run, told
        self.results: list[StageResult] = []

    def do(
        self,
        name: str,
        work: Callable[[], Output],
        inputs: Callable[[], Mapping[str, Any]] | None = None,
        there: Callable[[Output], bool] = bool,
    ) -> Output:
        """The stage's output: what was recorded for the same inputs if `there` finds it whole, else what
        `work` makes.

        Without `inputs`, the work is done in every run; it says itself, as `reused`, whether there was
        anything to do.
        """
        started = time.monotonic()
        self._told(name, None)
        try:
            key = inputs() if inputs else None
            output = stages.reuse(self.home, name, key) if key is not None else None
            if output is not None and _is_there(output, there):
                self._repeat_metrics(name, output)
                self._ended(name, "completed", started, True, output=output)
                return output
            output = {**work(), "run": self.run.id}
            if key is not None:
                stages.record(self.home, name, key, output)
        except Exception as error:
            self._ended(name, "failed", started, False, note=str(error) or type(error).__name__)
            raise
        except BaseException:
            self._ended(name, "interrupted", started, False)
            raise
        self._ended(name, "completed", started, bool(output.get("reused")), output=output)
        return output

    def skip(self, name: str, note: str) -> None:
        """Write down that a stage was not done, and why."""
        self._ended(name, "skipped", time.monotonic(), False, note=note)

    def _repeat_metrics(self, name: str, output: Output) -> None:
        """A reused stage's curves belong to this run's report as well."""
        try:
            before = Run.open(self.home, str(output["run"])).metrics(name)
        except (KeyError, StorageError):
            return  # the run that did it was removed; its result was not
        for record in before:
            values = {key: value for key, value in record.items() if key not in ("time", "stage", "step")}
            self.run.metric(name, int(record["step"]), **values)

    def _ended(
        self,
        name: str,
        state: State,
        started: float,
        reused: bool,
        *,
        note: str = "",
        output: Output | None = None,
    ) -> None:
        result = StageResult(
            name=name, state=state, seconds=round(time.monotonic() - started, 3), reused=reused, note=note
        )
        self.results.append(result)
        fields = {"stage": name, **result.model_dump(exclude={"name"})}
        self.run.event("stage", **fields, **({"output": output} if output else {}))
        self._told(name, result)


def _is_there(output: Output, there: Callable[[Output], bool]) -> bool:
    """Whether what an output refers to is still there; a damaged thing is not."""
    try:
        return there(output)
    except (StorageError, OSError, KeyError):
        return False
