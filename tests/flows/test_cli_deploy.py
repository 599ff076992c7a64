"""The nightly deployment: the file and the command say the same, and a real Prefect server takes it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows import deployment
from serving.process import Child
from serving.server import free_port

ROOT = Path(__file__).resolve().parents[2]


def test_the_deployment_file_says_what_the_command_does() -> None:
    file = yaml.safe_load((ROOT / "deploy" / "prefect.yaml").read_text(encoding="utf-8"))
    [night] = file["deployments"]

    assert file["pull"] == []
    assert night["entrypoint"] == deployment.ENTRYPOINT
    assert night["name"] == deployment.DEPLOYMENT
    assert night["work_pool"]["name"] == deployment.POOL
    assert night["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    assert night["schedules"] == [
        {"slug": "nightly", "cron": deployment.CRON, "timezone": "UTC", "active": True}
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a real Prefect server with a database of its own."""
    folder, port = tmp_path_factory.mktemp("prefect"), free_port()
    environment = {**os.environ, "PREFECT_HOME": str(folder), "PREFECT__SERVER_FINAL": "1"}
    child = Child([sys.executable, "-m", "flows.prefect_server", str(port)], folder / "log", environment)
    url = f"http://127.0.0.1:{port}/api"
    from flows.prefect_server import PrefectApi

    try:
        PrefectApi(child, url).ready()
        yield url
    finally:
        child.stop()


def deploy(folder: Path, url: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    environment = {**os.environ, "PREFECT_API_URL": url, "NIGHTSCHOOL_HOME": str(folder / "home")}
    command = [sys.executable, "-c", "from flows.cli import app; app()", "deploy", "--json", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_deploying_twice_makes_one_of_each_and_remembers_home_and_configuration(
    tmp_path: Path, server: str
) -> None:
    import httpx

    config = tmp_path / "night.toml"
    config.write_text("seed = 1\n", encoding="utf-8")

    first, again = (deploy(tmp_path, server, "--config", str(config)) for _ in range(2))

    assert (first[0], again[0]) == (0, 0)
    assert first[1]["work_pool_created"] and not again[1]["work_pool_created"]
    assert first[1]["id"] == again[1]["id"]
    found = httpx.get(f"{server}/deployments/{first[1]['id']}").json()
    assert found["entrypoint"] == "flows.nightly.nightly"
    assert found["pull_steps"] == []
    assert found["global_concurrency_limit"]["limit"] == 1
    assert found["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    assert [schedule["active"] for schedule in found["schedules"]] == [True]
    environment = {"NIGHTSCHOOL_HOME": str(tmp_path / "home"), "NIGHTSCHOOL_CONFIG": str(config)}
    assert found["job_variables"]["env"] == environment
    automations = httpx.post(f"{server}/automations/filter", json={}).json()
    assert [each["name"] for each in automations] == [deployment.ZOMBIES]
    assert httpx.get(f"{server}/work_pools/gpu").json()["concurrency_limit"] == 1


@pytest.mark.slow
def test_a_time_that_is_none_is_bad_usage(tmp_path: Path, server: str) -> None:
    code, found = deploy(tmp_path, server, "--cron", "when it suits")

    assert code == 2
    assert "when it suits" in found["error"]


@pytest.mark.slow
def test_no_server_is_said_in_words(tmp_path: Path) -> None:
    code, found = deploy(tmp_path, "http://127.0.0.1:9/api")

    assert code == 1
    assert "no Prefect server answers at http://127.0.0.1:9/api" in found["error"]
