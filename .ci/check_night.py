"""Checks the JSON of a shortened night: every stage ended, a verdict was reached, the report is there."""

import json
import sys
from pathlib import Path


def problems(night: dict) -> list[str]:
    """What is wrong with `nightschool nightly --json`'s document; empty where nothing is."""
    found = []
    if night["state"] != "completed":
        found.append(f"the night's state is {night['state']!r}")
    stages = {stage["name"]: stage["state"] for stage in night["stages"]}
    found += [f"stage {name} is {state!r}" for name, state in stages.items() if state != "completed"]
    if not stages:
        found.append("the night had no stages")
    if not night["promotion"].get("promoted") and not night["promotion"].get("reasons"):
        found.append("the candidate was neither promoted nor refused with a reason")
    if not Path(night["report"]).is_file():
        found.append(f"there is no report at {night['report']}")
    return found


if __name__ == "__main__":
    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = problems(document)
    print(
        "\n".join(found)
        or f"night {document['run']}: {len(document['stages'])} stages, {document['promotion']}"
    )
    sys.exit(bool(found))
