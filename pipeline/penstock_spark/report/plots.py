"""Plots as SVG elements of the page, in the page's colours for light and dark themes.

matplotlib draws with placeholder colours, which are then replaced by the page's variables. No text from outside goes
into a plot: names are in the page, beside it.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import matplotlib
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator

from penstock_spark.report.text import duration, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SERIES", "latency_plot", "throughput_plot"]

SERIES: Final = 6
"""Number of colours, `--s0` to `--s5`."""
_INK: Final = "#010203"
_FAINT: Final = "#040506"
_COLOURS: Final = tuple(f"#0a0b{number:02x}" for number in range(SERIES))
_ROLES: Final = {_INK: "--ink", _FAINT: "--line"} | {colour: f"--s{at}" for at, colour in enumerate(_COLOURS)}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "penstock",
    "font.family": ["sans-serif"],
    "font.size": 9,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.color": _INK,
    "text.parse_math": False,
    "timezone": "UTC",
}
_WIDTH: Final = 9.0
_LINES: Final = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (1, 1)))
_MEGA: Final = 1_000_000

Points = Mapping[int, float]
"""Values by time, in us since 1970."""


def throughput_plot(layers: Sequence[Points], records: Points, every_s: int, identity: str) -> str:
    """Plot bytes per second, as stacked coloured layers, and records per second below."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.8), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        times = _times([*layers, records], every_s)
        moments = [_moment(time) for time in times]
        base = [0.0] * len(times)
        for number, layer in enumerate(layers):
            top = [low + layer.get(time, 0) / every_s for low, time in zip(base, times, strict=True)]
            colour = _COLOURS[number % SERIES]
            above.fill_between(moments, base, top, step="post", color=colour, alpha=0.75, linewidth=0)
            base = top
        rates = [records.get(time, 0) / every_s for time in times]
        rates[-1:] = rates[-2:-1]  # the end of the last window
        below.step(moments, rates, where="post", color=_INK, linewidth=1.2)
        above.set_title("bytes per second", loc="left", fontsize=9)
        below.set_title("records per second", loc="left", fontsize=9)
        above.yaxis.set_major_locator(MultipleLocator(_binary_step(max(base, default=0))))
        above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: size(value)))
        below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        for axes in (above, below):
            axes.set_ylim(bottom=0)
        _dated(below)
        return _svg(figure, identity, "Throughput over time")


def latency_plot(panels: Sequence[tuple[str, Sequence[Points]]], every_s: int, identity: str) -> str:
    """Plot one panel for each route, with one line for each percentile, on a logarithmic scale.

    Panels have a letter, which the page explains. Empty windows are gaps in the lines.
    """
    with matplotlib.rc_context(_STYLE):
        columns = 2 if len(panels) in (2, 4) else min(len(panels), 3)
        rows = -(-len(panels) // columns)
        figure = Figure(figsize=(_WIDTH, 0.6 + 2.1 * rows), layout="constrained")
        whole = _times([points for _, lines in panels for points in lines], every_s)
        values = [value for _, lines in panels for points in lines for value in points.values()]
        subs = (1.0,) if max(values) > 200 * min(values) else (1.0, 2.0, 5.0)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for number, (title, lines) in enumerate(panels):
            axes = grid[number // columns][number % columns]
            for which, points in enumerate(lines):
                times = _times([points], every_s)
                drawn = [points.get(time, float("nan")) for time in times]
                axes.plot(
                    [_moment(time + every_s * _MEGA // 2) for time in times],
                    drawn,
                    color=_COLOURS[which % SERIES],
                    linestyle=_LINES[which % len(_LINES)],
                    linewidth=1.3,
                    marker=".",
                    markersize=3.5,
                )
            axes.set_title(title, loc="left", fontsize=9)
            axes.set_xlim(_moment(whole[0]), _moment(whole[-1]))
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=subs))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
            axes.yaxis.set_minor_formatter(FuncFormatter(lambda _value, _: ""))
            _dated(axes)
        for unused in range(len(panels), rows * columns):
            grid[unused // columns][unused % columns].set_visible(False)
            grid[unused // columns - 1][unused % columns].tick_params(labelbottom=True)
        return _svg(figure, identity, "Latency over time")


def _times(series: Sequence[Points], every_s: int) -> list[int]:
    """Return the start of every window from the first to the last, and the end of that."""
    known = [time for points in series for time in points]
    step = every_s * _MEGA
    return list(range(min(known), max(known) + step + 1, step)) if known else []


def _binary_step(most: float) -> float:
    """Return the least power of two of which four are at least `most`."""
    return 2.0 ** max(math.ceil(math.log2(most / 4)), 0) if most > 0 else 1.0


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / _MEGA, UTC)


def _dated(axes: Axes) -> None:
    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _svg(figure: Figure, identity: str, label: str) -> str:
    """Return the figure as an element of the page. `identity`: a prefix that makes its identifiers unique."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = file.getvalue()
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
    for colour, role in _ROLES.items():
        drawn = drawn.replace(colour, f"var({role})")
    drawn = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{identity}-", drawn)
    drawn = re.sub(r' width="[\d.]+pt"', "", re.sub(r' height="[\d.]+pt"', "", drawn, count=1), count=1)
    return drawn.replace("<svg", f'<svg role="img" aria-label="{label}" class="plot"', 1)
