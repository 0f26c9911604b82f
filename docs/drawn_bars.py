"""Bars as an SVG of its own: no font, script or image from elsewhere, its colours those of a light or a dark
page. Every bar has its name and its figure in words, so that nothing is said by colour alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

WIDTH: Final = 760
"""Of every picture."""
_LEFT, _RIGHT = 180, 150  # the names, the figures
_BAR, _STEP, _GROUP = 12, 18, 30  # heights
_TOP: Final = 74
_LOG_FROM: Final = 20.0
"""A linear scale shows no more than this between the smallest and the largest."""
STYLE: Final = """\
svg{color-scheme:light dark}
.page{fill:#fff}.word{fill:#1f2328}.quiet{fill:#57606a}.line{stroke:#d0d7de}.one{stroke:#57606a}
.bar{fill:#8c959f}.bar.ours{fill:#0969da}.range{stroke:#1f2328}
@media (prefers-color-scheme:dark){
.page{fill:#161b22}.word{fill:#e6edf3}.quiet{fill:#9da7b3}.line{stroke:#30363d}.one{stroke:#9da7b3}
.bar{fill:#6e7681}.bar.ours{fill:#4493f8}.range{stroke:#e6edf3}}
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif}.title{font-size:16px;font-weight:600}
.group{font-weight:600}.word{paint-order:stroke;stroke:#fff;stroke-width:3px}
@media (prefers-color-scheme:dark){.word{stroke:#161b22}}"""


class Bar(NamedTuple):
    """One figure, None where there is none; `low` and `high` are the least and the most of its rounds."""

    name: str
    value: float | None
    low: float = 0.0
    high: float = 0.0
    words: str = ""
    ours: bool = False


class Group(NamedTuple):
    """Bars under a heading."""

    name: str
    bars: list[Bar]


def ticks(most: float) -> list[float]:
    """Round figures from nothing to about this one, five to ten of them."""
    step = 10 ** math.floor(math.log10(most))
    step = step / 5 if most / step < 2 else step / 2 if most / step < 5 else step
    return [step * n for n in range(int(most / step) + 1)]


class _Scale(NamedTuple):
    """From a figure to its place: from `least`, logarithmic or not, to `most`."""

    least: float
    most: float
    logarithmic: bool

    def at(self, value: float) -> float:
        if self.logarithmic:
            part = math.log(max(value, self.least) / self.least) / math.log(self.most / self.least)
        else:
            part = value / self.most
        return _LEFT + part * (WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
            steps = (1, 2, 5) if self.most / self.least < 1_000 else (1,)
            candidates = [step * 10.0**power for power in powers for step in steps]
        else:
            candidates = ticks(self.most)
        return [each for each in candidates if self.least <= each <= self.most]


def bars(title: str, unit: str, caption: list[str], groups: list[Group], one: bool = False) -> str:
    """The picture. `unit` is said above the axis, `caption` below the bars; with `one`, 1 has a line."""
    scale = _scale([bar for group in groups for bar in group.bars])
    heights = [_GROUP + _STEP * len(group.bars) for group in groups]
    bottom = _TOP + sum(heights)
    height = bottom + 24 + 16 * len(caption)
    axis = f"{unit}, {'logarithmic' if scale.logarithmic else 'linear'} scale"
    lines = begun(title, _described(groups, unit), axis, height)
    for tick in scale.ticks():
        at = scale.at(tick)
        kind = "one" if one and tick == 1 else "line"
        lines.append(f'<path class="{kind}" d="M{at:.1f} {_TOP}V{bottom}"/>')
        lines.append(text(at, _TOP - 6, f"{tick:g}", "quiet", "middle"))
    top = _TOP
    for group, spent in zip(groups, heights, strict=True):
        lines += _drawn(group, top, scale)
        top += spent
    lines += [text(16, bottom + 24 + 16 * n, words, "quiet") for n, words in enumerate(caption)]
    return "\n".join([*lines, "</svg>"]) + "\n"


def begun(title: str, described: str, said: str, height: int) -> list[str]:
    """The first lines of a picture: its title, what is said below that, and all of it in words for those who
    do not see it."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(title)}</title><desc id="d">{escape(described)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        text(16, 28, title, "word title"),
        text(16, 48, said, "quiet"),
    ]


def _scale(drawn: list[Bar]) -> _Scale:
    values = [edge for bar in drawn if bar.value for edge in (bar.value, bar.low or bar.value, bar.high)]
    most, least = max(values, default=1.0), min((value for value in values if value > 0), default=1.0)
    logarithmic = most / least > _LOG_FROM
    return _Scale(least / 2 if logarithmic else 0.0, most * 1.02, logarithmic)


def _drawn(group: Group, top: float, scale: _Scale) -> Iterator[str]:
    yield text(16, top + 20, group.name, "word group")
    for n, bar in enumerate(group.bars):
        y = top + _GROUP + n * _STEP
        yield text(_LEFT - 8, y + 10, bar.name, "word", "end")
        if bar.value is None:
            yield text(_LEFT + 4, y + 10, "not measured", "quiet")
            continue
        start, end = scale.at(scale.least), scale.at(bar.value)
        kind = "bar ours" if bar.ours else "bar"
        yield f'<rect class="{kind}" x="{start:.1f}" y="{y}" width="{end - start:.1f}" height="{_BAR}"/>'
        if bar.high > bar.low:
            low, high = scale.at(bar.low), scale.at(bar.high)
            yield f'<path class="range" d="M{low:.1f} {y + _BAR / 2}H{high:.1f}"/>'
        yield text(max(end, scale.at(bar.high)) + 6, y + 10, bar.words, "word")


def _described(groups: list[Group], unit: str) -> str:
    """The figures as a text, for those who do not see the picture."""
    return (
        " ".join(
            f"{group.name}: "
            + ", ".join(f"{bar.name} {bar.words or 'not measured'}" for bar in group.bars)
            + "."
            for group in groups
        )
        or f"No figures in {unit}."
    )


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    """A line of words."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
