"""The plots of benchmarks and loads: from what a run writes, also where much was not measured, to what is
drawn."""

import importlib
import json
import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.benchmarks.__main__ import arguments as of_all
from tests.benchmarks.served import report
from tests.benchmarks.served.__main__ import arguments as of_served
from tests.benchmarks.served.subjects import SUBJECTS
from tests.benchmarks.served.works import works
from tests.load.report import Asked, Report
from tests.load.results import Result
from tests.load.watch import Sample
from tests.support.documents import blocks_of, commands_of
from tests.support.shared import REPOSITORY

WORKS = works(quick=True)
MEMORY = {"nginx": 10.0, "ours": 40.0}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(REPOSITORY / "docs"))
    return importlib.import_module("drawn_benchmarks")


@pytest.fixture
def shown(drawn: Any, tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The table and the plots of a run with these rounds."""

    def show(
        rounds: report.Rounds, names: list[str], missing: list[str], memory: dict[str, float]
    ) -> dict[str, str]:
        path = tmp_path / "a folder that is made" / "results.json"
        report.write(path, WORKS, names, missing, rounds, memory)
        results = drawn.read(path)
        plots: dict[str, str] = drawn.plots(results)
        return {"table": drawn.table(results), **plots}

    return show


def rounds_of(figures: dict[str, list[float]]) -> report.Rounds:
    return {work.name: dict(figures) for work in WORKS}


def bars_of(svg: str) -> list[float]:
    """The widths of the bars, from the top."""
    root = ElementTree.fromstring(svg)
    return [float(each.attrib["width"]) for each in root.iter(f"{SVG}rect") if "bar" in each.attrib["class"]]


def words_of(svg: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_bars_are_as_long_as_their_figures(shown: Callable[..., dict[str, str]]) -> None:
    drawings = shown(rounds_of({"nginx": [1.0], "ours": [4.0]}), ["nginx", "ours"], [], MEMORY)
    nginx, ours = bars_of(drawings["benchmarks/cpu.svg"])[:2]
    assert ours / nginx == pytest.approx(4, rel=0.01)
    assert "linear scale" in drawings["benchmarks/cpu.svg"]
    assert "4 × · 4 µs/token" in words_of(drawings["benchmarks/cpu.svg"])
    assert bars_of(drawings["benchmarks/memory.svg"])[1] == pytest.approx(
        4 * bars_of(drawings["benchmarks/memory.svg"])[0], rel=0.01
    )
    assert "| 1 µs/token, 1 × | 4 µs/token, 4 × |" in drawings["table"]


def test_far_apart_they_are_on_a_logarithmic_scale(shown: Callable[..., dict[str, str]]) -> None:
    figures = {"nginx": [1.0], "LiteLLM": [10.0], "ours": [100.0]}
    plot = shown(rounds_of(figures), list(figures), [], MEMORY)["benchmarks/cpu.svg"]
    first, second, third = bars_of(plot)[:3]
    assert "logarithmic scale" in plot
    assert second - first == pytest.approx(third - second, abs=0.2)
    assert first > 0
    assert (second - first) / math.log(10) == pytest.approx(first / math.log(2), rel=0.02)


def test_the_median_is_drawn_with_the_range_of_its_rounds(shown: Callable[..., dict[str, str]]) -> None:
    drawings = shown(rounds_of({"nginx": [1.0], "ours": [9.0, 2.0, 3.0]}), ["nginx", "ours"], [], MEMORY)
    assert 'class="range"' in drawings["benchmarks/cpu.svg"]
    assert "3 × · 3 µs/token" in words_of(drawings["benchmarks/cpu.svg"])
    assert "median of 3 rounds" in drawings["table"]
    once = shown(rounds_of({"nginx": [1.0], "ours": [2.0]}), ["nginx", "ours"], [], MEMORY)
    assert 'class="range"' not in once["benchmarks/cpu.svg"]


def test_what_was_not_measured_is_said(shown: Callable[..., dict[str, str]]) -> None:
    rounds: report.Rounds = {work.name: {"ours": [1.0]} for work in WORKS}
    rounds[WORKS[0].name] = {}
    drawings = shown(rounds, ["ours", "LiteLLM"], ["nginx", "codex-relay"], {"ours": 40.0})
    assert "Not installed there: nginx, codex-relay." in drawings["table"]
    assert f"| {WORKS[0].name} | – | – |" in drawings["table"]
    for name in ("cpu", "latency", "memory"):
        words = words_of(drawings[f"benchmarks/{name}.svg"])
        assert "not measured" in words
        assert any("Not installed there" in each for each in words)
    assert "multiples of openresponses-bridge" in drawings["benchmarks/cpu.svg"]
    nothing = shown({work.name: {} for work in WORKS}, ["ours"], ["nginx"], {})
    assert bars_of(nothing["benchmarks/cpu.svg"]) == []


def test_plots_say_what_when_and_where_and_load_nothing(shown: Callable[..., dict[str, str]]) -> None:
    drawings = shown(rounds_of({"nginx": [1.0], "ours": [4.0]}), ["nginx", "ours"], [], MEMORY)
    for name, svg in drawings.items():
        if name == "table":
            continue
        words = words_of(svg)
        assert any(report.machine() in each for each in words)
        assert any(each.startswith("20") and "one round" in each for each in words)
        assert svg.count("://") == 1, "its own namespace alone"
        assert "url(" not in svg
        assert "prefers-color-scheme:dark" in svg
        described = ElementTree.fromstring(svg).find(f"{SVG}desc")
        assert described is not None
        assert "openresponses-bridge" in (described.text or "")


def test_machines_are_known_by_their_processor_alone(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: A Processor 9\n\nmodel name\t: A Processor 9\n")
    assert report.machine(info).startswith("A Processor 9, ")
    assert str(tmp_path) not in report.machine(tmp_path / "none")


def test_the_commands_of_the_page_can_be_given() -> None:
    """They take minutes, so they are read and not run."""
    (block,) = (block for block in blocks_of("docs/benchmarks.md") if block.language == "sh")
    for command in commands_of(block):
        first, *words = shlex.split(command)
        if first == "make":
            assert words[0] == "bench"
            assert of_all().parse_args([words[1].removeprefix("ARGS=")]).draw
        else:
            assert words[:2] == ["-m", "tests.benchmarks.served"]
            arguments = of_served().parse_args(words[2:])
            assert set(filter(None, arguments.only.split(","))) <= {subject.name for subject in SUBJECTS}
            assert [work for work in WORKS if arguments.work in work.name]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(REPOSITORY / "docs"))
    return importlib.import_module("drawn_load")


def run_of(load: Any, folder: Path, every: float | None = None) -> Any:
    """A load as it is written, with a fault or none, as it is read."""
    report = Report(Asked(120, 7, 3, 2, every, 1))
    report.idle, report.seconds = {"stream": 0.002}, 120.0
    for count in range(1, 101):
        report.add("no fault", "stream", Result("completed", count / 1000), corrupted=False)
    if every:
        report.marks, report.happened["disk full"] = [(30.0, "disk full"), (90.0, "disk full")], 2
        report.add("disk full", "stream", Result("failed"), corrupted=False)
        report.add("disk full", "stream", Result("refused 503"), corrupted=False)
        report.left_out["clocks differ"] = "it is not installed"
    report.samples = [Sample(float(at), 100 + 10 * (at == 60), 20, 5, 3) for at in range(0, 121, 10)]
    report.start = {"memory": 100.0, "files": 20, "Redis keys without expiry": 1}
    report.end = {"memory": 104.0, "files": 20, "Redis keys without expiry": 1}
    report.cpu = {"the server": 60.0}
    assert "disk full" in report.table() or not every
    (folder / "run.json").write_text(json.dumps(report.figures()))
    return load.read(folder / "run.json")


def test_a_load_s_table_has_each_outcome_and_what_returned(load: Any, tmp_path: Path) -> None:
    text = load.tables(run_of(load, tmp_path), run_of(load, tmp_path, every=60))
    assert "| no fault | 100 completed |" in text
    assert "| disk full (2) | 1 failed, 1 refused 503 |" in text
    assert "Left out: clocks differ (it is not installed)." in text
    assert "2 minutes, 7 open streams and 3 further requests a second over 2 workers: 102 requests," in text
    assert "Nothing was wrong." in text
    assert "| the server | 0.50 | 0.50 |" in text
    assert "| memory, MB | 100 | 104 | 100 | 104 |" in text


def test_a_load_s_plots_mark_the_faults(load: Any, tmp_path: Path) -> None:
    plots = load.run_plots(run_of(load, tmp_path), run_of(load, tmp_path, every=60))
    assert [each for each in words_of(plots["capacity/latency.svg"]) if each.endswith(" ms")] == [
        "2 ms",
        "50.5 ms",
        "100 ms",
    ]
    for name in ("memory", "descriptors"):
        soak, plain = plots[f"capacity/soak-{name}.svg"], plots[f"capacity/load-{name}.svg"]
        assert (soak.count("stroke-dasharray"), plain.count("stroke-dasharray")) == (2, 0)
        assert "1 disk full" in words_of(soak)
        assert "Marks by minutes: disk full at 0.5, disk full at 1.5." in soak
    memory = ElementTree.fromstring(plots["capacity/soak-memory.svg"])
    (curve,) = (each.attrib["d"] for each in memory.iter(f"{SVG}path") if each.get("fill") == "none")
    heights = [float(each) for each in curve.removeprefix("M").split()[1::2]]
    assert heights.index(min(heights)) == 6, "the highest memory is at the top"


def test_nothing_measured_is_a_plot_too(load: Any) -> None:
    times = importlib.import_module("drawn_times").times
    assert "No figures in megabytes" in times("Memory", "megabytes", [], [], [])
