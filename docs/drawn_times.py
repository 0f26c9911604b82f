"""A figure over time as an SVG of its own, with marks at what happened, in the manner of drawn_bars."""

from __future__ import annotations

from typing import Final, NamedTuple

from drawn_bars import WIDTH, begun, text, ticks

_LEFT, _RIGHT = 70, 24  # the figures, the edge
_TOP: Final = 74
_PLOT: Final = 180  # height
_MARK: Final = 14  # height of a mark's line in the list below
_MINUTE: Final = 60


class Mark(NamedTuple):
    """Something that happened, at `seconds`."""

    seconds: float
    name: str


def times(
    title: str, unit: str, caption: list[str], points: list[tuple[float, float]], marks: list[Mark]
) -> str:
    """The picture of (seconds, figure); `unit` is that of the figures. Each mark is a line with the number of
    its name in the list below."""
    names = list(dict.fromkeys(mark.name for mark in marks))
    longest = max((seconds for seconds, _ in points), default=1.0) or 1.0
    most = max((value for _, value in points), default=1.0) * 1.1 or 1.0
    bottom = _TOP + _PLOT
    listed = -(-len(names) // 2)
    height = bottom + 44 + _MARK * listed + 16 * len(caption)

    def x(seconds: float) -> float:
        return _LEFT + seconds / longest * (WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return bottom - value / most * _PLOT

    lines = begun(title, _described(title, unit, points, marks), f"{unit}, by minutes", height)
    for value in ticks(most):
        lines.append(f'<path class="line" d="M{_LEFT} {y(value):.1f}H{WIDTH - _RIGHT}"/>')
        lines.append(text(_LEFT - 6, y(value) + 4, f"{value:,.0f}", "quiet", "end"))
    for minutes in ticks(longest / _MINUTE):
        lines.append(text(x(minutes * _MINUTE), bottom + 18, f"{minutes:g}", "quiet", "middle"))
    for mark in marks:
        at = x(mark.seconds)
        lines.append(f'<path class="one" stroke-dasharray="2 3" d="M{at:.1f} {_TOP}V{bottom}"/>')
        lines.append(text(at, _TOP - 4, str(names.index(mark.name) + 1), "quiet", "middle"))
    path = " ".join(f"{x(seconds):.1f} {y(value):.1f}" for seconds, value in points)
    lines.append(f'<path class="range" fill="none" stroke-width="1.5" d="M{path}"/>' if points else "")
    for number, name in enumerate(names):
        column, row = divmod(number, listed)
        lines.append(text(_LEFT + column * 330, bottom + 40 + row * _MARK, f"{number + 1} {name}", "word"))
    below = bottom + 48 + _MARK * listed
    lines += [text(16, below + 16 * n, words, "quiet") for n, words in enumerate(caption)]
    return "\n".join(filter(None, [*lines, "</svg>"])) + "\n"


def _described(title: str, unit: str, points: list[tuple[float, float]], marks: list[Mark]) -> str:
    if not points:
        return f"No figures in {unit}."
    values = [value for _, value in points]
    happened = ", ".join(f"{mark.name} at {mark.seconds / _MINUTE:.1f}" for mark in marks)
    return (
        f"{title}: {values[0]:,.0f} {unit} at first, at most {max(values):,.0f}, {values[-1]:,.0f} at last. "
        f"Marks by minutes: {happened or 'none'}."
    )
