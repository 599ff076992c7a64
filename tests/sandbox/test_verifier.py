"""Verdicts that an agent cannot reach: each attack scores 0, is called tampering, or does nothing."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from sandbox.agents import AgentRun
from sandbox.config import SandboxConfig
from sandbox.container import Sandbox
from sandbox.harbor import Task
from sandbox.trial import Trial, run_trial

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("no_leaks")]
MakeTask = Callable[..., Task]
BASE = "FROM nightschool-base:bookworm\nWORKDIR /app\n"
# Uses programs and modules by bare name in the working directory: what planted ones would stand in for.
PYTHON_TEST = """#!/bin/bash
cat answer.txt
echo 0 > /logs/verifier/reward.txt
[ "$(python3 -m check)" = right ] && echo 1 > /logs/verifier/reward.txt
"""
PYTHON_CHECK = """import pathlib, re
import expected
print("right" if pathlib.Path("answer.txt").read_text().strip() == expected.ANSWER else "wrong")
"""
PYTHON_FILES = {"tests/check.py": PYTHON_CHECK, "tests/expected.py": 'ANSWER = "3"\n'}
REWARDING = "import os; open('/logs/verifier/reward.txt', 'w').write('1'); os._exit(0)"


@dataclass(frozen=True)
class Script:
    """An agent that runs one command."""

    command: str
    name: str = "script"

    def run(self, task: Task, box: Sandbox, *, seed: int) -> AgentRun:
        box.exec(self.command, 15.0)
        return AgentRun()


def outcome_of(task: Task, command: str, config: SandboxConfig) -> Trial:
    return run_trial(task, Script(command), config, run_id="test")


def test_the_right_answer_passes_and_a_wrong_one_fails(make_task: MakeTask, config: SandboxConfig) -> None:
    task = make_task(test=PYTHON_TEST, files=PYTHON_FILES)
    right, wrong = (outcome_of(task, f"echo {answer} > answer.txt", config) for answer in (3, 4))
    assert (right.outcome, right.reward) == ("passed", 1.0)
    assert (wrong.outcome, wrong.reward) == ("failed", 0.0)
    assert right.verdict is not None and right.verdict.stdout.startswith("3\n")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 1 > reward.txt", id="reward"
        ),
        pytest.param(
            "(setsid bash -c 'while :; do mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.json; done'"
            " >/dev/null 2>&1 &) ; true",
            id="background loop",
        ),
        pytest.param(
            f'for m in conftest sitecustomize check re expected; do echo "{REWARDING}" > $m.py; done',
            id="python modules",
        ),
        pytest.param(
            "for n in python3 cat bash; do printf '#!/bin/sh\\necho right\\n' > $n; chmod +x $n; done",
            id="PATH",
        ),
        pytest.param(
            "echo 'echo 1 > /logs/verifier/reward.txt; exit' | tee .bashrc .profile .bash_env > /tmp/.bashrc;"
            " export BASH_ENV=/app/.bash_env LD_PRELOAD=/app/evil.so",
            id="environment",
        ),
        pytest.param("rm -rf /app/* /app; mkfifo /app/answer.txt; ln -s /dev/zero /app/zero", id="pipe"),
    ],
)
def test_an_attack_on_the_verdict_scores_0(make_task: MakeTask, config: SandboxConfig, command: str) -> None:
    task = make_task(test=PYTHON_TEST, files=PYTHON_FILES)
    trial = outcome_of(task, command, config)
    assert (trial.outcome, trial.reward) == ("failed", 0.0)


def test_a_module_path_in_the_working_directory_is_not_trusted(
    make_task: MakeTask, config: SandboxConfig
) -> None:
    dockerfile = f"{BASE}ENV PATH=/app/bin:$PATH PYTHONPATH=/app\nRUN mkdir /app/bin\n"
    task = make_task(test=PYTHON_TEST, files=PYTHON_FILES, dockerfile=dockerfile)
    program = 'printf "#!/bin/sh\\necho right\\n" > bin/python3; chmod +x bin/python3'
    planted = f'echo "{REWARDING}" > sitecustomize.py; {program}'
    assert outcome_of(task, planted, config).reward == 0.0


@pytest.mark.parametrize(
    "target", ["/tests/expected.py", "../logs/verifier/reward.txt", "root/tests/expected.py"]
)
def test_a_link_to_the_tests_is_tampering(make_task: MakeTask, config: SandboxConfig, target: str) -> None:
    task = make_task(test=PYTHON_TEST, files=PYTHON_FILES)
    trial = outcome_of(task, f"ln -s / root; ln -s {target} answer.txt", config)
    assert (trial.outcome, trial.reward) == ("tampered", 0.0)
    assert trial.error is not None and "/app/answer.txt" in trial.error


def test_a_root_agent_cannot_touch_the_programs_of_the_tests(
    make_task: MakeTask, config: SandboxConfig
) -> None:
    task = make_task(toml='[agent]\nuser = "root"\n')
    trial = outcome_of(
        task, "rm /usr/bin/cat; printf '#!/bin/sh\\necho 3\\n' > /usr/bin/cat; chmod +x /usr/bin/cat", config
    )
    assert (trial.outcome, trial.reward) == ("failed", 0.0)
    assert outcome_of(task, "echo 3 > answer.txt", config).outcome == "passed"


def test_a_root_agent_in_a_system_folder_is_refused(make_task: MakeTask, config: SandboxConfig) -> None:
    task = make_task(
        toml='[agent]\nuser = "root"\n', dockerfile="FROM nightschool-base:bookworm\nWORKDIR /etc\n"
    )
    trial = outcome_of(task, "true", config)
    assert trial.outcome == "sandbox_failed" and trial.error is not None and "WORKDIR" in trial.error


def test_what_the_agent_deleted_is_gone_and_modes_and_links_are_kept(
    make_task: MakeTask, config: SandboxConfig
) -> None:
    test = """#!/bin/bash
    [ ! -e data/one ] && [ ! -e gone ] && [ "$(cat latest)" = x ] && [ "$(stat -c %a:%u kept)" = 640:1000 ] &&
      [ kept -ef hard ]
    echo $((! $?)) > /logs/verifier/reward.txt
    """
    task = make_task(test=test)
    command = (
        "rm data/one; rm -rf data; mkdir data; echo x > kept; chmod 640 kept; ln -s kept latest; ln kept hard"
    )
    assert outcome_of(task, command, config).outcome == "passed"


def test_work_outside_the_working_directory_counts_where_the_tests_look(
    make_task: MakeTask, config: SandboxConfig
) -> None:
    dockerfile = f"{BASE}RUN mkdir -m 777 /srv/site && touch /srv/site/old && chmod 666 /srv/site/old\n"
    test = """#!/bin/bash
    [ "$(cat /tmp/out/result)" = 1 ] && [ "$(cat /srv/site/new)" = 2 ] && [ ! -e /srv/site/old ]
    echo $((! $?)) > /logs/verifier/reward.txt
    """
    task = make_task(test=test, dockerfile=dockerfile)
    command = "mkdir /tmp/out; echo 1 > /tmp/out/result; echo 2 > /srv/site/new; rm /srv/site/old"
    assert outcome_of(task, command, config).outcome == "passed"


def test_a_separate_verifier_gets_declared_artifacts_only(make_task: MakeTask, config: SandboxConfig) -> None:
    toml = 'artifacts = ["answer.txt"]\n[verifier]\nenvironment_mode = "separate"\n'
    test = "#!/bin/bash\n[ -e answer.txt ] && [ ! -e other ]; echo $((! $?)) > /logs/verifier/reward.txt\n"
    assert outcome_of(make_task(toml=toml, test=test), "touch answer.txt other", config).outcome == "passed"


def test_the_tests_may_run_as_their_own_user_with_their_own_environment(
    make_task: MakeTask, config: SandboxConfig
) -> None:
    toml = '[verifier]\nuser = "nobody"\nenv = {WANTED = "${X:-nobody}"}\n'
    test = '#!/bin/bash\n[ "$(id -un)" = "$WANTED" ]; echo $((! $?)) > /logs/verifier/reward.txt\n'
    assert outcome_of(make_task(toml=toml, test=test), "true", config).outcome == "passed"


@pytest.mark.parametrize(
    ("test", "kind"),
    [
        ("exit 1", "RewardFileNotFoundError"),
        ("echo not a number > /logs/verifier/reward.txt", "VerifierOutputParseError"),
        ("ln -s /etc/hostname /logs/verifier/reward.txt", "VerifierOutputParseError"),
        ("echo 1 > /logs/verifier/reward.txt; sleep 100", "VerifierTimeoutError"),
    ],
)
def test_no_verdict_is_verifier_failed_and_has_no_reward(
    make_task: MakeTask, config: SandboxConfig, test: str, kind: str
) -> None:
    trial = outcome_of(
        make_task(test=f"#!/bin/bash\n{test}\n", toml="[verifier]\ntimeout_sec = 3\n"), "true", config
    )
    assert (trial.outcome, trial.reward) == ("verifier_failed", None)
    assert trial.error is not None and trial.error.startswith(kind)


def test_the_exit_code_of_the_tests_says_nothing(make_task: MakeTask, config: SandboxConfig) -> None:
    test = "#!/bin/bash\necho 0.5 > /logs/verifier/reward.txt; exit 7\n"
    trial = outcome_of(make_task(test=test), "true", config)
    assert (trial.outcome, trial.reward) == ("failed", 0.5)


def test_too_much_work_is_no_verdict(make_task: MakeTask, config: SandboxConfig) -> None:
    small = config.model_copy(update={"max_work_mb": 1})
    trial = outcome_of(make_task(), "head -c 3000000 /dev/zero > big", small)
    assert trial.outcome == "sandbox_failed" and trial.error is not None and "max_work_mb" in trial.error
