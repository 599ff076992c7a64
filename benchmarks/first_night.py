"""What a first night brings: the example's night for several seeds, each from nothing in a home of its own.

    python benchmarks/first_night.py [--quick] [--json FILE] [--seeds 1 2 3] [--keep DIR] [--homes DIR…]

Each night runs through the command line as a user's does, and once more, to see that the second reuses the first.
`--homes` runs nothing: it collects nights that were run before. Scores and paired differences are computed here from
the verdicts, and the gate's decision from the evidence, so the table does not rest on what a night said of itself.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from storage.atomic import write_json
from storage.runs import read_lines
from tasks.evaluate.paired import by_task, paired, score
from tasks.promote.promote import read_evidence, recompute

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "first_night"
COMMAND = (sys.executable, "-c", "from flows.cli import app; app()", "nightly", "--json")
MODELS = ("base", "sft", "rl")
PAIRS = (("sft", "base"), ("rl", "sft"), ("rl", "base"))
REUSABLE = {"ingest", "convert", "sft", "rl", "evaluate"}
VERSIONED = ("nightschool", "skyrl", "tinker", "torch", "transformers", "peft", "prefect", "duckdb", "scipy")
SAMPLE_S = 1.0
FIRST_S, SECOND_S, MEMORY_GIB, REGRESSION_MARGIN = 900.0, 60.0, 10.0, 0.10  # what was promised

type Json = dict[str, Any]


class NoNight(Exception):
    """A home without a night that can be counted; the message says what is missing."""


@dataclass(frozen=True)
class Measured:
    """One call of the command line: seconds from start to exit, and the most memory its processes had at once.

    Resident memory is summed over the tree, so what processes share is counted for each: an upper bound. Sandboxes
    are the Docker engine's children and not in it.
    """

    wall_s: float
    peak_rss_gib: float


def run_night(home: Path, config: Path, seed: int) -> Measured:
    """One night through the command line. Raises NoNight if it fails."""
    options = ("--home", str(home), "--config", str(config), "--seed", str(seed))
    started = time.monotonic()
    process = subprocess.Popen([*COMMAND, *options], cwd=ROOT, stdout=subprocess.DEVNULL)
    peak = _Peak(process.pid)
    try:
        code = process.wait()
    except BaseException:
        process.terminate()  # it cleans up after itself
        process.wait()
        raise
    finally:
        peak.stop()
    if code != 0:
        raise NoNight(f"the night with seed {seed} ended with exit code {code}; its messages are above")
    return Measured(round(time.monotonic() - started, 1), round(peak.bytes / 2**30, 2))


class _Peak(threading.Thread):
    """Watches a process and all its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.bytes, self._over = pid, 0, threading.Event()
        self.start()

    def run(self) -> None:
        """Takes a sample every second until stopped."""
        while not self._over.wait(SAMPLE_S):
            self.bytes = max(self.bytes, _resident(self.pid))

    def stop(self) -> None:
        """Ends the watch."""
        self._over.set()
        self.join()


def _resident(pid: int) -> int:
    try:
        tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return sum(map(_resident_of, tree))


def _resident_of(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def collect(home: Path, first: Measured | None = None, second: Measured | None = None) -> Json:
    """What the first completed night of a home came to, and its repetition if there was one. Raises NoNight."""
    nights = list(_nights(home))
    index = next((i for i, (path, _) in enumerate(nights) if (path / "evaluations.json").is_file()), None)
    if index is None:
        raise NoNight(f"{home}: no completed night with an evaluation in its runs/ ({len(nights)} completed)")
    path, manifest = nights[index]
    evaluations = json.loads((path / "evaluations.json").read_bytes())
    seed = int(manifest["config"]["seed"])
    seconds, resumed = _stage_seconds(home, path)
    return {
        "seed": seed,
        "run": path.name,
        "scores": scores(evaluations, seed),
        "paired": differences(evaluations, seed),
        "trained": {name: output for name in ("sft", "rl") if (output := _trained(path, name))},
        "promotion": _promotion(path, manifest),
        "stage_seconds": seconds,
        "total_s": round(sum(seconds.values()), 1),
        "wall_s": first.wall_s if first else None,
        "resumed": resumed,
        "peak_rss_gib": first.peak_rss_gib if first else None,
        "second_night": _second(nights[index + 1 :], second),
    }


def scores(evaluations: Json, seed: int) -> Json:
    """Mean reward with its 95% interval, per model and set."""
    return {
        name: {at: score(by_task(rows), seed=seed).to_json() for at, rows in _sets(evaluations, name).items()}
        for name in MODELS
        if _sets(evaluations, name)
    }


def differences(evaluations: Json, seed: int) -> Json:
    """Paired differences per pair of models and set, from the verdicts."""
    found: Json = {}
    for later, earlier in PAIRS:
        left, right = _sets(evaluations, later), _sets(evaluations, earlier)
        if both := [at for at in left if at in right]:
            found[f"{later}_over_{earlier}"] = {
                at: paired(by_task(left[at]), by_task(right[at]), seed=seed).to_json() for at in both
            }
    return found


def ratios(results: Sequence[Json]) -> Json:
    """What was promised, and whether it held: a gain must be beyond chance for every seed."""
    found = {
        f"{later}_minus_{earlier}": _gain([r["paired"].get(f"{later}_over_{earlier}", {}) for r in results])
        for later, earlier in PAIRS
    }
    kept = [r["paired"].get("rl_over_base", {}).get("regression") for r in results]
    bounded = {
        "rl_minus_base_regression": _spread(
            [r["difference"] for r in kept if r], -REGRESSION_MARGIN, least=True
        ),
        "first_night_s": _spread([r["wall_s"] or r["total_s"] for r in results], FIRST_S),
        "second_night_s": _spread([r["second_night"] for r in results], SECOND_S),
        "peak_rss_gib": _spread([r["peak_rss_gib"] for r in results], MEMORY_GIB),
    }
    return {name: value for name, value in {**found, **bounded}.items() if value}


def _gain(pairs: Sequence[Json]) -> Json | None:
    """Median over seeds; low and high are the outermost bounds of the seeds' 95% intervals."""
    held = [pair["heldout"] for pair in pairs if pair.get("heldout", {}).get("low") is not None]
    if not held:
        return None
    low = min(each["low"] for each in held)
    return {
        "median": statistics.median(each["difference"] for each in held),
        "low": low,
        "high": max(each["high"] for each in held),
        "goal": 0.0,
        "met": len(held) == len(pairs) and low > 0.0,
    }


def _spread(values: Sequence[float | None], goal: float, *, least: bool = False) -> Json | None:
    """Median and range over seeds; the worst of them must keep to the goal (`least`: not fall below it)."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    met = min(known) >= goal if least else max(known) <= goal
    return {
        "median": statistics.median(known),
        "low": min(known),
        "high": max(known),
        "goal": goal,
        "met": met,
    }


def _nights(home: Path) -> Iterator[tuple[Path, Json]]:
    """Completed nights of a home with their manifests, the oldest first."""
    for file in sorted((home / "runs").glob("*/manifest.json")):
        manifest = json.loads(file.read_bytes())
        if manifest.get("kind") == "nightly" and manifest.get("state") == "completed":
            yield file.parent, manifest


def _stages(run: Path) -> list[Json]:
    return [each for each in read_lines(run / "events.jsonl") if each.get("name") == "stage"]


def _stage_seconds(home: Path, run: Path) -> tuple[dict[str, float], bool]:
    """Seconds per stage, and whether the night went on from an interrupted one, which then did those stages."""
    earlier: dict[str, float] = {}
    for events in sorted((home / "runs").glob("*/events.jsonl")):
        if events.parent.name < run.name:
            done = [e for e in _stages(events.parent) if e["state"] == "completed" and not e["reused"]]
            earlier.update({each["stage"]: each["seconds"] for each in done})
    stages = _stages(run)
    seconds: dict[str, float] = {s["stage"]: float(s["seconds"]) for s in stages}
    seconds.update({s["stage"]: earlier[s["stage"]] for s in stages if s["reused"] and s["stage"] in earlier})
    return seconds, any(stage["reused"] for stage in stages)


def _trained(run: Path, stage: str) -> Json | None:
    outputs = [s["output"] for s in _stages(run) if s["stage"] == stage and "output" in s]
    keys = ("checkpoint", "steps", "tokens", "metrics")
    return {key: outputs[-1].get(key) for key in keys} if outputs else None


def _promotion(run: Path, manifest: Json) -> Json:
    """The gate's outcome, and whether its evidence leads to the same one again."""
    found = {
        key: manifest.get("promotion", {}).get(key) for key in ("promoted", "outcome", "previous", "reasons")
    }
    evidence = run / "evidence.json"
    again = recompute(read_evidence(evidence)).outcome if evidence.is_file() else None
    return {**found, "recomputed": again}


def _second(nights: Sequence[tuple[Path, Json]], measured: Measured | None) -> float | None:
    """Seconds of the next night in which nothing had to be done again."""
    if measured:
        return measured.wall_s
    for path, _ in nights:
        stages = _stages(path)
        if {stage["stage"] for stage in stages if stage["reused"]} >= REUSABLE:
            return round(sum(float(stage["seconds"]) for stage in stages), 1)
    return None


def _sets(evaluations: Json, name: str) -> dict[str, list[Json]]:
    """One model's verdicts by set of tasks."""
    rows = [row for model in evaluations["models"] if model["name"] == name for row in model["results"]]
    return {at: [row for row in rows if row["set"] == at] for at in dict.fromkeys(row["set"] for row in rows)}


def machine() -> Json:
    """What it was measured on."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpu": _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
        "system": platform.platform(),
    }


def versions() -> dict[str, str | None]:
    """Python, the packages that decide, and the commit."""
    packages = {name: metadata.version(name) for name in VERSIONED}
    commit = _output("git", "-C", str(ROOT), "describe", "--always", "--dirty")
    return {"python": platform.python_version(), **packages, "commit": commit}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (ln.partition(":")[2].strip() for ln in lines if ln.startswith("model name")), platform.machine()
    )


def _output(*command: str) -> str | None:
    if not shutil.which(command[0]):
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def table(results: Sequence[Json]) -> Table:
    """One row a seed."""
    heads = (
        "seed",
        *MODELS,
        "rl − base",
        "sft − base",
        "rl − sft",
        "regression",
        "gate",
        "seconds",
        "again",
        "GiB",
    )
    made = Table(*heads, title="first night: held-out reward, 95% intervals")
    for r in results:
        mean = [_interval(r["scores"].get(name, {}).get("heldout"), "mean") for name in MODELS]
        gain = [
            _interval(r["paired"].get(f"{a}_over_{b}", {}).get(at), "difference", sign="+")
            for a, b, at in (
                ("rl", "base", "heldout"),
                ("sft", "base", "heldout"),
                ("rl", "sft", "heldout"),
                ("rl", "base", "regression"),
            )
        ]
        rest = (r["promotion"]["outcome"], r["wall_s"] or r["total_s"], r["second_night"], r["peak_rss_gib"])
        made.add_row(str(r["seed"]), *mean, *gain, *("–" if value is None else str(value) for value in rest))
    return made


def _interval(value: Json | None, key: str, sign: str = "") -> str:
    if not value or value[key] is None:
        return "–"
    bounds = "" if value["low"] is None else f"\n{value['low']:{sign}.2f} … {value['high']:{sign}.2f}"
    return f"{value[key]:{sign}.2f}{bounds}"


def verdicts(found: Json) -> Table:
    """One row a promise."""
    made = Table("what", "median", "low", "high", "goal", "met")
    for name, each in found.items():
        numbers = (f"{each[key]:.3g}" for key in ("median", "low", "high", "goal"))
        made.add_row(name, *numbers, "yes" if each["met"] else "no")
    return made


def measure(seeds: Sequence[int], config: Path, place: Path, *, twice: bool) -> Iterator[Json]:
    """Runs each seed's night in `place`; the base model is made once and shared."""
    models = ROOT / "var" / "models"
    models.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        home = place / f"seed-{seed}"
        home.mkdir(parents=True)  # a home that is there already would be reused, and not measured
        (home / "models").symlink_to(models)
        first = run_night(home, config, seed)
        second = run_night(home, config, seed) if twice else None
        yield collect(home, first, second)


def main() -> int:
    """Measures or collects, prints the tables, and writes the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="one seed of ci.toml: minutes, and no gain to see"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the homes there, and leave them")
    parser.add_argument("--homes", type=Path, nargs="+", metavar="DIR", help="collect these, and run nothing")
    options = parser.parse_args()
    config = EXAMPLE / ("ci.toml" if options.quick else "nightschool.toml")
    seeds = options.seeds[:1] if options.quick else options.seeds
    try:
        if options.homes:
            results = [collect(home) for home in options.homes]
        elif options.keep:
            results = list(measure(seeds, config, options.keep.resolve(), twice=not options.quick))
        else:
            (ROOT / "var").mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=ROOT / "var", prefix="benchmark-") as place:
                results = list(measure(seeds, config, Path(place), twice=not options.quick))
    except (NoNight, FileExistsError) as problem:
        print(problem, file=sys.stderr)
        return 1
    report(results, options.json)
    return 0


def report(results: Sequence[Json], file: Path | None) -> None:
    """The tables on stdout, the document in `file`."""
    found = ratios(results)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table(results))
    console.print(verdicts(found))
    document = {
        "name": "first_night",
        "machine": machine(),
        "versions": versions(),
        "n": len(results),
        "results": list(results),
        "ratios": found,
    }
    if file:
        write_json(file, document)


if __name__ == "__main__":
    sys.exit(main())
