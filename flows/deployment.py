"""The nightly deployment on a Prefect server: the same as deploy/prefect.yaml, for this home and this
configuration.

Keeps true: registering again updates what is there; the schedule is active; two nights never meet (the pool
takes one flow at a time, the deployment one run, and a night that would come too is cancelled); a run whose
process vanished is called crashed, since it would hold the only place for ever.
"""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from storage.home import Home

POOL, DEPLOYMENT, FLOW, ENTRYPOINT = "gpu", "nightly", "nightly", "flows.nightly.nightly"
CRON = "0 2 * * *"
ZOMBIES = "nightschool: a night without a heartbeat has crashed"
SILENCE = timedelta(minutes=9)  # three heartbeats


class ServerUnreachable(Exception):
    """No Prefect server answers at PREFECT_API_URL."""


def register_night(
    home: Home, config_file: os.PathLike[str] | None, *, cron: str = CRON, timezone: str = "UTC"
) -> dict[str, Any]:
    """Create or update pool, deployment and automation.

    Raises:
        ServerUnreachable: no server answers.
        ValidationError: no such time or time zone.
    """
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.schedules import CronSchedule
    from prefect.exceptions import PrefectHTTPStatusError

    schedule = CronSchedule(cron=cron, timezone=timezone)
    try:
        with get_client(sync_client=True) as client:
            created = _pool(client)
            deployment = _deployment(client, home, config_file, schedule)
            automation = _automation(client)
    except (httpx.HTTPError, PrefectHTTPStatusError) as error:
        raise ServerUnreachable(str(error) or type(error).__name__) from error
    return {
        "deployment": f"{FLOW}/{DEPLOYMENT}",
        "id": str(deployment),
        "work_pool": POOL,
        "work_pool_created": created,
        "cron": cron,
        "timezone": timezone,
        "automation": str(automation),
        "run_now": f"prefect deployment run {FLOW}/{DEPLOYMENT}",
        "worker": f"prefect worker start --pool {POOL}",
    }


def _pool(client: Any) -> bool:
    """Whether the pool had to be made; one that is there keeps its settings, but takes one run at a time."""
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectNotFound
    from prefect.workers.process import ProcessWorker

    try:
        if client.read_work_pool(POOL).concurrency_limit != 1:
            client.update_work_pool(POOL, WorkPoolUpdate(concurrency_limit=1))
        return False
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        client.create_work_pool(
            WorkPoolCreate(name=POOL, type="process", base_job_template=template, concurrency_limit=1)
        )
        return True


def _deployment(client: Any, home: Home, config_file: os.PathLike[str] | None, schedule: Any) -> Any:
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
    from prefect.utilities.callables import parameter_schema

    from flows.nightly import nightly

    env = {"NIGHTSCHOOL_HOME": str(home.root)}
    if config_file is not None:
        env["NIGHTSCHOOL_CONFIG"] = str(Path(config_file).resolve())
    return client.create_deployment(
        client.create_flow_from_name(FLOW),
        DEPLOYMENT,
        entrypoint=ENTRYPOINT,
        pull_steps=[],
        work_pool_name=POOL,
        schedules=[DeploymentScheduleCreate(schedule=schedule, active=True, slug="nightly")],
        concurrency_limit=1,
        concurrency_options=ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
        parameters={},
        parameter_openapi_schema=parameter_schema(nightly).model_dump(),
        enforce_parameter_schema=True,
        job_variables={"env": env, "working_dir": str(Path.cwd())},
        description="Traces, training, evaluation, promotion: one night.",
        tags=["nightschool"],
    )


def _automation(client: Any) -> Any:
    """The zombie automation's id."""
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

    wanted = AutomationCore(
        name=ZOMBIES,
        description="A killed process tells nobody: without this its run stays Running, and no night begins.",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.*"},
            posture=Posture.Proactive,
            match={"prefect.resource.id": ["prefect.flow-run.*"]},
            for_each={"prefect.resource.id"},
            threshold=1,
            within=SILENCE,
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message="No heartbeat: its process is gone.")],
    )
    known = client.read_automations_by_name(ZOMBIES)
    if known:
        client.update_automation(known[0].id, wanted)
        return known[0].id
    return client.create_automation(wanted)
