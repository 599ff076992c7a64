"""One night under way: its stages in their order, each with what it depends on.

Keeps true: a stage is keyed by the digest of everything that could change its result; a stage that has
nothing to work on is skipped and says why. The tasks are called directly: a submitted one runs in a thread,
where neither a timeout nor Ctrl-C reaches it. What a stage does is in tasks/.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from flows.base_model import base_model
from flows.config import NightConfig
from flows.stage import Output, StageResult, Stages
from sandbox.harbor import load_tasks
from sandbox.reaper import reap
from serving.model import model_digest
from serving.renderer import Renderer
from storage import atomic, datasets, manifests, stages
from storage.home import Home
from storage.lake import Lake
from storage.registry import Registry
from storage.runs import Run
from tasks.convert.task import build_sft_task
from tasks.evaluate.task import evaluate_task
from tasks.ingest.reader import find
from tasks.ingest.task import ingest_task
from tasks.progress import Progress, ProgressEvent
from tasks.promote.task import promote_task
from tasks.publish import publish
from tasks.report.html import write_report
from tasks.report.task import report_task
from tasks.train.task import train_rl_task, train_sft_task

BASE = "base"


class NightResult(BaseModel):
    """What a night came to. `promotion` is empty where nothing was there to promote."""

    model_config = ConfigDict(frozen=True)

    run: str
    state: str
    stages: list[StageResult]
    promotion: dict[str, Any]
    report: str | None
    error: str = ""


class NightFailed(Exception):
    """A stage failed; what was done until then is kept, and is reused by the next night."""

    def __init__(self, result: NightResult) -> None:
        super().__init__(result.error)
        self.result = result


class Night:
    """One night under way."""

    def __init__(self, home: Home, run: Run, config: NightConfig, progress: Progress) -> None:
        self.home, self.run, self.config, self.progress = home, run, config, progress
        self.stages = Stages(home, run, self._told)
        self.promotion: dict[str, Any] = {}
        self.model_dir = Path()

    def through(self) -> None:
        """All stages but the report."""
        if self._has_tasks():
            reap()  # and a Docker engine that does not answer is known now, and not after the training
        self.model_dir = base_model(self.home, self.config.model, self.progress)
        self._ingest()
        dataset = self._convert()
        trained = {"sft": self._sft(dataset)}
        if self._is_there("rl", self.config.tasks, "train"):
            trained["rl"] = self._rl(trained["sft"])
        if self._is_there("evaluate", self.config.evaluate, "heldout"):
            self._evaluate(trained)
            self._promote(trained[list(trained)[-1]])
        else:
            self.stages.skip("promote", "nothing was evaluated")
        self.run.finish("completed", promotion=self.promotion)

    def report(self) -> str:
        """The last stage: the page of this run."""
        return str(
            self.stages.do("report", lambda: {"page": str(report_task(self.home, self.run.id))})["page"]
        )

    def result(self, state: str, *, report: str | None = None, error: str = "") -> NightResult:
        """What there is to say so far."""
        return NightResult(
            run=self.run.id,
            state=state,
            stages=self.stages.results,
            promotion=self.promotion,
            report=report,
            error=error,
        )

    @contextlib.contextmanager
    def failing_with_a_result(self) -> Iterator[None]:
        """Turns any error into NightFailed, with a page that says how far the night came."""
        try:
            yield
        except Exception as error:
            message = str(error) or type(error).__name__
            self.run.finish("failed", error=message)
            raise NightFailed(self.result("failed", report=self._last_page(), error=message)) from error

    def _ingest(self) -> None:
        paths, source = [str(path) for path in self.config.traces.paths], self.config.traces.source
        if not paths:
            self.home.inbox.mkdir(exist_ok=True)
            paths = [str(self.home.inbox)]

        def work() -> Output:
            result = ingest_task(self.home.root, paths, source=source)
            refused = len(result.quarantined)
            return {
                **result.model_dump(exclude={"quarantined", "preview"}),
                "quarantined": refused,
                "lake": self._head(),
            }

        def inputs() -> dict[str, Any]:
            return {
                "files": sorted(
                    [file.source, atomic.digest_file(Path(file.path))] for file in find(paths, source)
                )
            }

        self.stages.do(
            "ingest", work, inputs, lambda output: any(manifests.files(self.home, output["lake"]).values())
        )

    def _convert(self) -> str:
        source, version = self.config.traces.source, self._head()
        sources = [source] if source else None

        def work() -> Output:
            return build_sft_task(
                self.home,
                self.model_dir,
                self.config.convert,
                sources=sources,
                version=version,
                progress=self.progress,
            ).model_dump(mode="json")

        def inputs() -> dict[str, Any]:
            return {
                **self._given("convert"),
                "lake": version,
                "sources": sources,
                "renderer": Renderer(self.model_dir).digest,
            }

        return str(
            self.stages.do("convert", work, inputs, lambda o: o["id"] in datasets.list_ids(self.home))["id"]
        )

    def _sft(self, dataset: str) -> str:
        def work() -> Output:
            return train_sft_task(
                self.home,
                self.run,
                self.model_dir,
                dataset,
                self.config.sft,
                self.config.engine,
                seed=self.config.seed,
                progress=self.progress,
            ).model_dump(mode="json")

        return self._trained(
            "sft", work, lambda: {**self._given("sft", "engine", "seed"), "dataset": dataset}
        )

    def _rl(self, start: str) -> str:
        def work() -> Output:
            return train_rl_task(
                self.home,
                self.run,
                self.model_dir,
                self.config.tasks.train,
                start,
                self.config.rl,
                self.config.agent,
                self.config.sandbox,
                self.config.engine,
                seed=self.config.seed,
                progress=self.progress,
            ).model_dump(mode="json")

        def inputs() -> dict[str, Any]:
            return {
                **self._given("rl", "agent", "engine", "seed"),
                "sandbox": self.config.sandbox.model_dump(mode="json", exclude={"concurrency"}),
                "start": start,
                "tasks": sorted([task.name, task.digest] for task in load_tasks(self.config.tasks.train)),
            }

        return self._trained("rl", work, inputs)

    def _evaluate(self, trained: dict[str, str]) -> None:
        candidate = list(trained)[-1]
        incumbent = self.incumbent(trained[candidate])
        refs = {**({"prod": incumbent} if incumbent != BASE else {}), BASE: BASE, **trained}

        def work() -> Output:
            result = evaluate_task(
                self.home,
                self.run,
                self.model_dir,
                refs,
                self._sets(),
                self.config.evaluate,
                self.config.agent,
                self.config.sandbox,
                self.config.engine,
                seed=self.config.seed,
                candidate=candidate,
                incumbent="prod" if "prod" in refs else BASE,
                progress=self.progress,
            )
            return {**result.model_dump(mode="json"), "reused": set(result.reused) == set(refs)}

        self.stages.do("evaluate", work)  # which keeps the verdicts of each model by their digest

    def _promote(self, candidate: str) -> None:
        evaluations = json.loads((self.run.path / "evaluations.json").read_bytes())
        digests = {task.name: task.digest for folder in self._sets().values() for task in load_tasks(folder)}
        self.run.event("tasks", digests=digests)
        key = {
            "evaluations": atomic.digest_json(evaluations),
            "gate": self.config.promote.model_dump(mode="json"),
        }

        def work() -> Output:
            before = stages.reuse(self.home, "promote", key)
            if before and before["promoted"] and Registry(self.home).refs().prod != candidate:
                reason = (
                    f"{candidate} was promoted before, and prod was moved since: that is not undone unasked"
                )
                return {**before, "promoted": False, "outcome": "keep", "reasons": [reason], "reused": True}
            promotion = promote_task(
                self.home,
                candidate,
                evaluations,
                evidence=self.run.path / "evidence.json",
                task_digests=digests,
                config=self.config.promote,
            )
            stages.record(self.home, "promote", key, promotion.to_json())
            publish(self.home, self.model_dir)
            return {**promotion.to_json(), "reused": before is not None}

        self.promotion = {
            k: v for k, v in self.stages.do("promote", work).items() if k not in ("reused", "run")
        }

    def _trained(self, name: str, work: Callable[[], Output], inputs: Callable[[], dict[str, Any]]) -> str:
        registry = Registry(self.home)
        output = self.stages.do(name, work, inputs, lambda output: bool(registry.get(output["checkpoint"])))
        return str(output["checkpoint"])

    def _given(self, *sections: str) -> dict[str, Any]:
        """The base model, and these parts of the configuration."""
        settings = self.config.model_dump(mode="json")
        return {"model": model_digest(self.model_dir), **{name: settings[name] for name in sections}}

    def _head(self) -> str | None:
        return Lake(self.home).head()

    def _has_tasks(self) -> bool:
        return self.config.tasks.train.is_dir() or self.config.evaluate.heldout.is_dir()

    def _is_there(self, stage: str, section: BaseModel, name: str) -> bool:
        """Whether a stage has its folder of tasks; it is skipped where none was named and none is at the
        usual place."""
        folder: Path = getattr(section, name)
        if folder.is_dir() or name in section.model_fields_set:
            return True
        self.stages.skip(stage, f"there are no tasks in {folder}")
        return False

    def _sets(self) -> dict[str, Path]:
        regression = self.config.evaluate.regression
        return {"heldout": self.config.evaluate.heldout, **({"regression": regression} if regression else {})}

    def incumbent(self, candidate: str) -> str:
        """What the candidate has to beat: prod, or what prod was before where the candidate is prod
        already."""
        registry = Registry(self.home)
        refs = registry.refs()
        found = refs.prod if refs.prod != candidate else refs.previous
        if found is None or registry.get(found).manifest.get("base_model") != model_digest(self.model_dir):
            return BASE
        return found

    def _last_page(self) -> str | None:
        with contextlib.suppress(Exception):  # the night's error is what matters, and not the page's
            return str(write_report(self.home, self.run.id))
        return None

    def _told(self, name: str, result: StageResult | None) -> None:
        if result is None:
            self.progress(ProgressEvent(name, 0, 0, "started"))
        else:
            note = result.note or ("reused" if result.reused else f"{result.seconds:.0f} s")
            self.progress(ProgressEvent(name, 1, 1, f"{result.state}, {note}"))
