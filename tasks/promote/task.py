"""The promote step as a Prefect task. Not retried: the gate's answer does not change by asking again."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.promote.promote import promote

promote_task = task(name="promote", cache_policy=NO_CACHE)(promote)
