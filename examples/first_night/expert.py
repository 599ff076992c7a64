"""A scripted expert: what it does for a chore, in one of several manners.

Keeps true: it never says what it has not seen; the manner depends on the seed alone. Leaves the doing
to record.py.
"""

from dataclasses import dataclass
from random import Random

from chores import Chore

SYSTEM_PROMPT = "You do small file chores with bash. When the chore is done, say so in one sentence."
MANNERS = {"direct": 0.55, "look": 0.13, "check": 0.14, "parallel": 0.09, "correct": 0.09}


@dataclass(frozen=True)
class Step:
    """One assistant turn: what it says, and the commands it calls at once; the last turn has none."""

    text: str | None
    commands: tuple[str, ...] = ()


def manner(seed: int) -> str:
    """The manner of a session."""
    return Random(f"manner {seed}").choices(list(MANNERS), list(MANNERS.values()))[0]


def script(chore: Chore, seed: int) -> list[Step]:
    """All turns of a session."""
    act, closing = Step(None, (chore.command,)), Step(chore.closing)
    look, look_closer = chore.looks
    match manner(seed):
        case "look":
            return [Step(None, (look_closer,)), act, closing]
        case "check":
            return [act, Step(None, (chore.check,)), Step(chore.checked)]
        case "parallel":
            return [Step(None, (look, look_closer)), act, closing]
        case "correct":
            again = [Step("That failed. I look first.", (look,))] if seed % 2 else []
            return [Step(None, (chore.mistake,)), *again, act, closing]
        case _:
            return [act, closing]
