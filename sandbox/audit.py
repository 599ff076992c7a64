"""Whether a task can be believed: its solution passes, doing nothing does not, and planting a reward gains
nothing.

Leaves to others: keeping a task that fails its audit out of training and decisions.
"""

from dataclasses import dataclass, field

from sandbox.agents import Agent, AgentRun, NoopAgent, OracleAgent
from sandbox.config import SandboxConfig
from sandbox.container import Sandbox
from sandbox.harbor import Task
from sandbox.trial import Trial, TrialJob, run_trials

_PLANT = r"""
mkdir -p /logs/verifier /tests 2>/dev/null
for d in /logs/verifier . /tmp; do
  { echo '{"reward": 1}' > "$d/reward.json"; echo 1 > "$d/reward.txt"; } 2>/dev/null
done
printf 'import os\nos._exit(0)\n' | tee conftest.py sitecustomize.py usercustomize.py > /tmp/sitecustomize.py
for name in python3 pytest bash cat grep diff test; do
  printf '#!/bin/sh\nexit 0\n' > "$name"; chmod +x "$name"
done
( while :; do echo '{"reward": 1}' > /logs/verifier/reward.json; sleep 0.05; done ) > /dev/null 2>&1 &
true
"""


@dataclass
class TaskAudit:
    """Rewards of the three agents (None where there was no verdict.

    `oracle` the worst, the others the best of the repeats).
    """

    name: str
    ok: bool = False
    oracle: float | None = None
    noop: float | None = None
    planted: float | None = None
    flaky: bool = False
    problems: list[str] = field(default_factory=list)


class PlantingAgent:
    """Plants rewards, Python hooks and programs where a careless verifier would take them."""

    name = "planted"

    def run(self, task: Task, box: Sandbox, *, seed: int) -> AgentRun:
        """Plant and leave."""
        box.exec(_PLANT, 20.0)
        return AgentRun()


def audit(task: Task, config: SandboxConfig, repeats: int = 2) -> TaskAudit:
    """Run oracle and no-op `repeats` times and the planting agent once."""
    found = TaskAudit(task.name)
    agents: list[Agent] = [NoopAgent()] * repeats + [PlantingAgent()]
    if task.has_solution:
        agents += [OracleAgent()] * repeats
    else:
        found.problems.append("no solution/solve.sh: nothing shows that the task can be solved")
    jobs = [
        TrialJob(task, agent, sample=index, run_id=f"audit-{task.digest[:12]}")
        for index, agent in enumerate(agents)
    ]
    trials: dict[str, list[Trial]] = {"oracle": [], "noop": [], "planted": []}
    for agent, trial in zip(agents, run_trials(jobs, config), strict=True):
        trials[agent.name].append(trial)
    for name, of_agent in trials.items():
        rewards = [trial.reward for trial in of_agent]
        found.flaky |= len(set(rewards)) > 1
        for error in sorted(
            {f"{name}: {trial.outcome}: {trial.error}" for trial in of_agent if trial.reward is None}
        ):
            found.problems.append(error)
        known = [reward for reward in rewards if reward is not None]
        if known:
            setattr(found, name, min(known) if name == "oracle" else max(known))
    _judge(found)
    return found


def _judge(found: TaskAudit) -> None:
    """Turn rewards into problems and a yes or no."""
    if found.oracle is not None and found.oracle < 1:
        found.problems.append(f"the task's own solution scores {found.oracle:g}, not 1")
    if found.noop is not None and found.noop >= 1:
        found.problems.append("doing nothing passes")
    if found.planted is not None and found.planted >= 1:
        found.problems.append("planting a reward or a program passes")
    if found.flaky:
        found.problems.append("repeats of one agent score differently")
    found.ok = not found.problems
