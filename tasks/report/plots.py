"""Curves as inline SVG that follow the page's light or dark colours.

matplotlib draws with stand-in colours, which become CSS variables afterwards. Each figure's ids get a prefix
of their own, since several figures share one page. Nothing here touches pyplot, so it is safe in threads.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.report.data import Record

COLOURS = {
    "#010203": "var(--ink-2)",
    "#010204": "var(--line)",
    "#010205": "var(--sft)",
    "#010206": "var(--rl)",
}
INK, LINE, SFT, RL = COLOURS
STAGE_COLOURS = {"sft": SFT, "rl": RL}
SMOOTHED_FROM = 12
"""With at least so many steps a running mean is drawn over the measured points."""
_ID = re.compile(r'(\sid="|xlink:href="#|url\(#)')
_PREAMBLE = re.compile(
    r"^.*?(?=<svg)|<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL
)


@dataclass(frozen=True)
class Curve:
    """One metric of one stage over steps; `change` is what it went from and to, as in "0.3 → 0.7"."""

    title: str
    explanation: str
    change: str
    svg: str


@dataclass(frozen=True)
class _Metric:
    key: str
    stage: str
    title: str
    explanation: str
    bounds: tuple[float, float] | None = None


MAIN = (
    _Metric("reward", "rl", "Reward in RL", "mean verdict of the rollouts of a step", (0.0, 1.0)),
    _Metric("loss", "sft", "Loss in SFT", "cross-entropy, nats a trained token"),
)
SMALL = (
    _Metric("entropy", "rl", "Entropy", "nats a sampled token; near 0 it has stopped exploring"),
    _Metric("kl_base", "rl", "KL to base", "nats a token away from the base model"),
    _Metric("mismatch_max", "rl", "Largest mismatch", "sampler against trainer, log-probability"),
    _Metric("mismatch_mean", "rl", "Mean mismatch", "sampler against trainer, log-probability"),
    _Metric("groups_with_signal", "rl", "Groups with signal", "groups whose rollouts did not all end alike"),
    _Metric("loss", "rl", "Loss in RL", "the policy objective; not a measure of skill"),
    _Metric("grad_norm", "rl", "Gradient norm, RL", "before clipping"),
    _Metric("grad_norm", "sft", "Gradient norm, SFT", "before clipping"),
)


def main_curves(metrics: Sequence[Record]) -> list[Curve]:
    """Reward and loss, large."""
    return _curves(metrics, MAIN, (6.4, 2.7))


def small_curves(metrics: Sequence[Record]) -> list[Curve]:
    """What tells an engineer whether training was healthy, small."""
    return _curves(metrics, SMALL, (3.1, 1.7))


def _curves(metrics: Sequence[Record], wanted: Sequence[_Metric], size: tuple[float, float]) -> list[Curve]:
    found = []
    for metric in wanted:
        points = _points(metrics, metric)
        if points:
            prefix = f"{metric.stage}-{metric.key.replace('_', '-')}-"
            change = _change(points)
            label = f"{metric.title} over {len(points)} steps: {change}"
            svg = _inline(_draw(points, metric, size), prefix, label)
            found.append(Curve(metric.title, metric.explanation, change, svg))
    return found


def _points(metrics: Sequence[Record], metric: _Metric) -> list[tuple[float, float]]:
    mine = [record for record in metrics if record.get("stage") == metric.stage]
    return [
        (float(record["step"]), float(record[metric.key]))
        for record in mine
        if isinstance(record.get(metric.key), int | float) and isinstance(record.get("step"), int | float)
    ]


def _change(points: Sequence[tuple[float, float]]) -> str:
    """From the mean of the first fifth of the steps to that of the last."""
    if len(points) == 1:
        return f"{points[0][1]:.2g}"
    fifth = max(1, len(points) // 5)
    first, last = (sum(y for _, y in part) / fifth for part in (points[:fifth], points[-fifth:]))
    return f"{first:.2g} → {last:.2g}".replace("-", "−")


def _draw(points: Sequence[tuple[float, float]], metric: _Metric, size: tuple[float, float]) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": metric.key, "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        _plot(figure.add_subplot(), points, metric)
        target = io.StringIO()
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(target, metadata=no_metadata)
    return target.getvalue()


def _plot(axes: Any, points: Sequence[tuple[float, float]], metric: _Metric) -> None:
    from matplotlib.ticker import MaxNLocator

    steps, values = zip(*points, strict=True)
    colour = STAGE_COLOURS[metric.stage]
    smooth = len(points) >= SMOOTHED_FROM
    axes.plot(
        steps, values, color=colour, lw=1 if smooth else 2, alpha=0.4 if smooth else 1, marker="o", ms=3
    )
    if smooth:
        axes.plot(steps, _running_mean(values), color=colour, lw=2.2, solid_capstyle="round")
    if metric.bounds:
        axes.set_ylim(metric.bounds[0] - 0.03, metric.bounds[1] + 0.03)
    axes.set_xlabel("step", color=INK)
    axes.tick_params(colors=INK, length=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="y", color=LINE, lw=0.8)
    axes.set_axisbelow(True)
    axes.patch.set_visible(False)
    axes.figure.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _running_mean(values: Sequence[float]) -> list[float]:
    """Centred, over about a fifth of the steps, with a narrower window at the ends."""
    half = max(1, len(values) // 10)
    windows = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _inline(svg: str, prefix: str, label: str) -> str:
    """The SVG element alone: coloured by the page, named for screen readers, its ids its own."""
    from html import escape

    svg = _ID.sub(lambda match: match[0] + prefix, _PREAMBLE.sub("", svg))
    for stand_in, variable in COLOURS.items():
        svg = svg.replace(stand_in, variable)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px var(--sans)", svg)
    svg = re.sub(r'<svg([^>]*?) width="[^"]*"', r"<svg\1", svg, count=1)
    svg = re.sub(r'<svg([^>]*?) height="[^"]*"', r"<svg\1", svg, count=1)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
