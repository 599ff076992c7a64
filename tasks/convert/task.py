"""The conversion step as a Prefect task."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.convert.sft import build_sft

build_sft_task = task(name="convert", cache_policy=NO_CACHE)(build_sft)
