"""The evaluation step as a Prefect task."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.evaluate.evaluate import evaluate

evaluate_task = task(name="evaluate", cache_policy=NO_CACHE)(evaluate)
