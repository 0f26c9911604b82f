"""The plots of the benchmarks: from what a run writes, also where much was not measured, to what is drawn."""

import importlib
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
    found = shown(rounds_of({"nginx": [1.0], "ours": [4.0]}), ["nginx", "ours"], [], MEMORY)
    nginx, ours = bars_of(found["benchmarks/cpu.svg"])[:2]
    assert ours / nginx == pytest.approx(4, rel=0.01)
    assert "linear scale" in found["benchmarks/cpu.svg"]
    assert "4 × · 4 µs/token" in words_of(found["benchmarks/cpu.svg"])
    assert bars_of(found["benchmarks/memory.svg"])[1] == pytest.approx(
        4 * bars_of(found["benchmarks/memory.svg"])[0], rel=0.01
    )
    assert "| 1 µs/token, 1 × | 4 µs/token, 4 × |" in found["table"]


def test_far_apart_they_are_on_a_logarithmic_scale(shown: Callable[..., dict[str, str]]) -> None:
    figures = {"nginx": [1.0], "LiteLLM": [10.0], "ours": [100.0]}
    found = shown(rounds_of(figures), list(figures), [], MEMORY)["benchmarks/cpu.svg"]
    first, second, third = bars_of(found)[:3]
    assert "logarithmic scale" in found
    assert second - first == pytest.approx(third - second, abs=0.2)
    assert first > 0
    assert (second - first) / math.log(10) == pytest.approx(first / math.log(2), rel=0.02)


def test_the_median_is_drawn_with_the_range_of_its_rounds(shown: Callable[..., dict[str, str]]) -> None:
    found = shown(rounds_of({"nginx": [1.0], "ours": [9.0, 2.0, 3.0]}), ["nginx", "ours"], [], MEMORY)
    assert 'class="range"' in found["benchmarks/cpu.svg"]
    assert "3 × · 3 µs/token" in words_of(found["benchmarks/cpu.svg"])
    assert "median of 3 rounds" in found["table"]
    once = shown(rounds_of({"nginx": [1.0], "ours": [2.0]}), ["nginx", "ours"], [], MEMORY)
    assert 'class="range"' not in once["benchmarks/cpu.svg"]


def test_what_was_not_measured_is_said(shown: Callable[..., dict[str, str]]) -> None:
    rounds: report.Rounds = {work.name: {"ours": [1.0]} for work in WORKS}
    rounds[WORKS[0].name] = {}
    found = shown(rounds, ["ours", "LiteLLM"], ["nginx", "codex-relay"], {"ours": 40.0})
    assert "Not installed there: nginx, codex-relay." in found["table"]
    assert f"| {WORKS[0].name} | – | – |" in found["table"]
    for name in ("cpu", "latency", "memory"):
        words = words_of(found[f"benchmarks/{name}.svg"])
        assert "not measured" in words
        assert any("Not installed there" in each for each in words)
    assert "multiples of openresponses-bridge" in found["benchmarks/cpu.svg"]
    nothing = shown({work.name: {} for work in WORKS}, ["ours"], ["nginx"], {})
    assert bars_of(nothing["benchmarks/cpu.svg"]) == []


def test_plots_say_what_when_and_where_and_load_nothing(shown: Callable[..., dict[str, str]]) -> None:
    found = shown(rounds_of({"nginx": [1.0], "ours": [4.0]}), ["nginx", "ours"], [], MEMORY)
    for name, svg in found.items():
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
            given = of_served().parse_args(words[2:])
            assert set(filter(None, given.only.split(","))) <= {subject.name for subject in SUBJECTS}
            assert [work for work in WORKS if given.work in work.name]
