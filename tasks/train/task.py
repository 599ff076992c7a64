"""The training steps as Prefect tasks: never cached, never retried (a run is resumed by its own stages instead)."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.train.rl import train_rl
from tasks.train.sft import train_sft

train_sft_task = task(name="train-sft", cache_policy=NO_CACHE)(train_sft)
train_rl_task = task(name="train-rl", cache_policy=NO_CACHE)(train_rl)
