"""Traces are kept for as long and as many as the settings say, and nobody's fill the room of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from openresponses_server.observation.recordings.records import RecordedRequest
from openresponses_server.observation.trace_folder import Traces
from openresponses_server.settings import SettingsError, Tracing, load_settings

MB = 1024 * 1024
NOW = 2_000_000_000.0


def kept(folder: Path, owner: str, name: str, size: int, age: float) -> Path:
    path = folder / owner / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW - age, NOW - age))
    return path


def names(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*/*.jsonl")}


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    kept(tmp_path, "a", "old", 10, 3601)
    kept(tmp_path, "a", "new", 10, 3599)
    Traces(Tracing(folder=str(tmp_path), retention="1h")).sweep(NOW)
    assert names(tmp_path) == {"new"}
    Traces(Tracing(folder=str(tmp_path), retention="forever")).sweep(NOW * 2)
    assert names(tmp_path) == {"new"}


def test_the_oldest_of_whoever_has_most_go(tmp_path: Path) -> None:
    kept(tmp_path, "small", "mine", 50_000, 5000)
    for at in range(12):
        kept(tmp_path, "large", f"{at}", 100_000, 100 - at)
    Traces(Tracing(folder=str(tmp_path), total_bytes=MB)).sweep(NOW)
    left = names(tmp_path)
    assert "mine" in left
    assert left - {"mine"} == {str(at) for at in range(4, 12)}


def test_other_files_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    outside = kept(tmp_path.parent / "outside", "a", "x", 10, 9e6)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text("x")
    (tmp_path / "a" / "l.jsonl").symlink_to(outside)
    (tmp_path / "b").symlink_to(outside.parent)
    Traces(Tracing(folder=str(tmp_path), retention="1s")).sweep(NOW * 2)
    assert outside.exists()
    assert (tmp_path / "a" / "l.jsonl").is_symlink()
    assert (tmp_path / "a" / "x.txt").exists()


def test_none_is_begun_when_there_is_no_room(tmp_path: Path) -> None:
    traces = Traces(Tracing(folder=str(tmp_path), total_bytes=MB))
    kept(tmp_path, "a", "x", 10, 0)
    traces.sweep(NOW)
    assert traces._create("k", "resp_1") is not None
    traces._used = 2 * MB
    assert traces._create("k", "resp_2") is None
    traces.sweep(NOW)
    assert traces._create("k", "resp_3") is not None


def test_ids_that_are_no_names_of_files_are_not_traced(tmp_path: Path) -> None:
    traces = Traces(Tracing(folder=str(tmp_path)))
    for wrong in ("../x", "", "a/b", "x" * 101, "a\0"):
        assert traces._create("", wrong) is None
        assert traces.find("", wrong) is None
        traces.delete("", wrong)
    assert traces._create("", "resp_1") is not None
    assert traces._create("", "resp_1") is None  # nothing is written over
    assert traces.begin(RecordedRequest(0, 0), {}, "", None) is not None


def test_the_flag_is_put_over_the_table_of_the_file(tmp_path: Path) -> None:
    config = tmp_path / "bridge.toml"
    config.write_text('[trace]\nfolder = "here"\nwhen = "asked"\nkeys = ["one"]\nretention = "2h"\n')
    read = load_settings(config).trace
    assert read.folder == str(tmp_path / "here")
    assert read.keys[0].startswith("sha256:")
    flagged = load_settings(config, trace={"folder": str(tmp_path / "there")}).trace
    assert flagged == Tracing(folder=str(tmp_path / "there"), when="asked", keys=read.keys, retention="2h")
    assert load_settings(tmp_path / "bridge.toml", trace=None).trace == read
    (tmp_path / "here").write_text("")
    with pytest.raises(SettingsError, match="is not a folder"):
        load_settings(config)
