"""Advantages of rollouts within their group.

Keeps true: a rollout without a verdict is no reward of 0: it leaves the group, and the group lives on with those that have
one; a group whose rewards are all equal carries no signal and is left out. Leaves to others: what a reward is.
"""

import math
from collections.abc import Sequence

MIN_GROUP = 2  # one rollout has nothing to be compared with


def group_advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """Each rollout's reward against its group, in standard deviations (GRPO, arXiv 2402.03300, section 4.1).

    Args:
        rewards: of one task's rollouts; None where there is no verdict.

    Returns:
        One value a rollout; None for those without a verdict, and for all of a group without signal.
    """
    known = [reward for reward in rewards if reward is not None]
    if len(known) < MIN_GROUP:
        return [None] * len(rewards)
    mean = math.fsum(known) / len(known)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in known) / len(known))
    if deviation == 0.0:
        return [None] * len(rewards)
    return [None if reward is None else (reward - mean) / deviation for reward in rewards]
