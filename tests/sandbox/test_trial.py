"""Many trials at a time: rows in order, failures as rows, cancellation that leaves nothing behind."""

import threading
import time
from collections.abc import Callable

import pytest

from sandbox.agents import AgentRun, NoopAgent, OracleAgent
from sandbox.audit import audit
from sandbox.config import SandboxConfig
from sandbox.container import Sandbox
from sandbox.harbor import Task
from sandbox.trial import Trial, TrialJob, run_trials

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("no_leaks")]
MakeTask = Callable[..., Task]


class Broken:
    """An agent with a bug."""

    name = "broken"

    def run(self, task: Task, box: Sandbox, *, seed: int) -> AgentRun:
        raise KeyError("bug")


class Sleeper:
    """An agent that would take for ever."""

    name = "sleeper"

    def run(self, task: Task, box: Sandbox, *, seed: int) -> AgentRun:
        box.exec("sleep 1000")
        return AgentRun()


def test_trials_come_back_in_order_and_a_failed_one_is_a_row(
    make_task: MakeTask, config: SandboxConfig
) -> None:
    task = make_task()
    done: list[Trial] = []
    agents = [OracleAgent(), NoopAgent(), Broken(), OracleAgent()]
    jobs = [TrialJob(task, agent, sample=index, run_id="test") for index, agent in enumerate(agents)]
    trials = run_trials(jobs, config, on_done=done.append)
    assert [trial.outcome for trial in trials] == ["passed", "failed", "sandbox_failed", "passed"]
    assert [trial.reward for trial in trials] == [1.0, 0.0, None, 1.0]
    assert [trial.sample for trial in trials] == [0, 1, 2, 3]
    assert trials[2].error == "KeyError: 'bug'"
    assert sorted(trial.sample for trial in done) == [0, 1, 2, 3]


def test_cancelling_tears_running_trials_down_and_skips_the_rest(
    make_task: MakeTask, config: SandboxConfig
) -> None:
    task, cancel = make_task(), threading.Event()
    threading.Timer(2.0, cancel.set).start()
    started = time.monotonic()
    trials = run_trials([TrialJob(task, Sleeper(), run_id="cancel-me")] * 5, config, cancel=cancel)
    assert {trial.outcome for trial in trials} == {"cancelled"} and len(trials) == 5
    assert time.monotonic() - started < 15


def test_an_interrupt_comes_through_once_the_containers_are_gone(
    make_task: MakeTask, config: SandboxConfig
) -> None:
    def interrupt(trial: Trial) -> None:
        raise KeyboardInterrupt

    jobs = [
        TrialJob(make_task(), agent, run_id="interrupt-me") for agent in (NoopAgent(), Sleeper(), Sleeper())
    ]
    with pytest.raises(KeyboardInterrupt):
        run_trials(jobs, config, on_done=interrupt)


def test_the_audit_believes_a_sound_task(make_task: MakeTask, config: SandboxConfig) -> None:
    found = audit(make_task(), config)
    assert (found.ok, found.oracle, found.noop, found.planted, found.flaky) == (True, 1.0, 0.0, 0.0, False)
    assert found.problems == []


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        ("echo 1 > /logs/verifier/reward.txt", "doing nothing passes"),
        ("cp reward.txt /logs/verifier/ || echo 0 > /logs/verifier/reward.txt", "planting"),
        ("[ -e answer.txt ] || echo 0.$RANDOM$RANDOM > /logs/verifier/reward.txt", "score differently"),
    ],
)
def test_the_audit_names_what_is_wrong(
    make_task: MakeTask, config: SandboxConfig, test: str, problem: str
) -> None:
    found = audit(make_task(test=f"#!/bin/bash\n{test}\n"), config)
    assert not found.ok and any(problem in item for item in found.problems), found


def test_the_audit_asks_for_a_solution_that_works(make_task: MakeTask, config: SandboxConfig) -> None:
    wrong = audit(make_task("wrong", solution="true\n"), config, repeats=1)
    assert wrong.oracle == 0.0 and "the task's own solution scores 0, not 1" in wrong.problems
    without = audit(make_task("without", solution=None), config, repeats=1)
    assert without.oracle is None and not without.ok
