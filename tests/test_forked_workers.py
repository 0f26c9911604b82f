"""Workers that are forked run every test once, and what becomes of one is told as without workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.forked_workers import chunks
from tests.support.shared import REPOSITORY
from tests.support.waiting import wait_until

TESTS = """
import os, pytest
from pathlib import Path

HERE = Path(__file__).parent

@pytest.fixture(scope="module", autouse=True)
def module():
    (HERE / f"begun-{os.getpid()}").touch()
    yield
    (HERE / f"ended-{os.getpid()}").touch()

@pytest.mark.parametrize("n", range(50))
def test_many(n, tmp_path):
    with (HERE / "ran").open("a") as file:
        file.write(f"{n} {os.getpid()} {tmp_path}\\n")
"""


def command(folder: Path, *options: str) -> dict[str, Any]:
    """What starts pytest in the folder with these options, without the plugins that no test here needs."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    return {
        "args": [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.forked_workers", *options],
        "cwd": folder,
        "env": clean | {"PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        "text": True,
    }


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    options = ("--rootdir=.", "-c", os.devnull, f"--basetemp={folder / 'temporary'}", *options)
    return subprocess.run(**command(folder, *options), capture_output=True, check=False)


def test_every_test_runs_once_in_a_worker_with_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    done = run(tmp_path, "--workers", "3")
    assert "50 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
    lines = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert sorted(int(number) for number, _, _ in lines) == list(range(50))
    pids = {pid for _, pid, _ in lines}
    assert len({path for _, _, path in lines}) == 50
    begun = {path.name.removeprefix("begun-") for path in tmp_path.glob("begun-*")}
    ended = {path.name.removeprefix("ended-") for path in tmp_path.glob("ended-*")}
    assert pids == begun == ended


def test_all_tests_of_a_module_run_in_one_worker_if_asked_for(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"test_{name}.py").write_text(TESTS)
    assert "100 passed" in run(tmp_path, "--workers", "2", "--whole-modules").stdout
    for name in ("one", "other"):
        assert len({line.split()[1] for line in (tmp_path / name / "ran").read_text().splitlines()}) == 1


def test_failures_and_the_death_of_a_worker_are_failed_tests(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        TESTS
        + """
def test_fails():
    print("seen")
    assert 1 == 2

def test_ends_its_worker():
    os._exit(7)

def test_kills_its_worker():
    os.kill(os.getpid(), 9)

@pytest.fixture
def broken():
    yield
    raise ValueError("at the end")

def test_fails_at_its_end(broken):
    pass

def test_skips():
    pytest.skip("not here")

def test_after_all():
    pass
"""
    )
    done = run(tmp_path, "--workers", "2", "-rs")
    assert done.returncode == 1
    assert "3 failed, 52 passed, 1 skipped, 1 error" in done.stdout, done.stdout + done.stderr
    assert "assert 1 == 2" in done.stdout
    assert "seen" in done.stdout
    assert "the worker ended with 7 while it ran this test" in done.stdout
    assert "the worker ended with -9 while it ran this test" in done.stdout
    assert "ValueError: at the end" in done.stdout
    assert "not here" in done.stdout


def test_a_failure_of_a_worker_itself_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.hookimpl(wrapper=True, tryfirst=True)\ndef pytest_runtest_protocol(item):\n"
        "    if 'many[7]' in item.nodeid:\n        raise ValueError('of a plugin')\n    return (yield)\n"
    )
    done = run(tmp_path, "--workers", "2")
    assert done.returncode == pytest.ExitCode.INTERNAL_ERROR
    assert "ValueError: of a plugin" in done.stdout + done.stderr


def test_a_run_ends_at_the_first_failure_if_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        f"import pytest\nfrom pathlib import Path\n\nRAN = Path({str(tmp_path / 'ran')!r})\n"
        "@pytest.mark.parametrize('n', range(500))\ndef test_many(n):\n"
        "    with RAN.open('a') as file:\n        file.write('x')\n    assert n\n"
    )
    done = run(tmp_path, "--workers", "2", "-x")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "stopping after 1 failures" in done.stdout
    assert len((tmp_path / "ran").read_text()) < 500


def test_nothing_runs_after_an_error_of_collection(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name")
    (tmp_path / "test_it.py").write_text(TESTS)
    done = run(tmp_path, "--workers", "2")
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert not (tmp_path / "ran").exists()


def test_an_interrupted_run_leaves_no_process_and_ends_its_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        TESTS + "\n    import time\n    while n >= 0:\n        time.sleep(0.01)\n"
    )
    process = subprocess.Popen(
        **command(tmp_path, "--rootdir=.", "-c", os.devnull, "--workers", "2"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: (tmp_path / "ran").exists() and len((tmp_path / "ran").read_text().splitlines()) == 2)
    process.send_signal(signal.SIGINT)
    assert process.wait() == pytest.ExitCode.INTERRUPTED
    begun = [path.name.removeprefix("begun-") for path in tmp_path.glob("begun-*")]
    assert sorted(path.name.removeprefix("ended-") for path in tmp_path.glob("ended-*")) == sorted(begun)
    for pid in begun:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


def test_coverage_is_that_of_all_workers(tmp_path: Path) -> None:
    (tmp_path / "measured.py").write_text(
        "def one():\n    return 1\n\n\ndef two():\n    return 2\n\n\ndef three():\n    return 3\n"
    )
    (tmp_path / "test_one.py").write_text("import measured\n\ndef test_one():\n    assert measured.one()")
    (tmp_path / "test_two.py").write_text("import measured\n\ndef test_two():\n    assert measured.two()")
    done = run(tmp_path, "--workers", "2", "-p", "pytest_cov", "--cov=measured", "--cov-report=term-missing")
    assert re.search(r"measured\.py +6 +1 +83% +10", done.stdout), done.stdout + done.stderr
    assert [path.name for path in tmp_path.glob(".coverage*")] == [".coverage"]


@given(st.lists(st.integers(1, 120), max_size=12), st.integers(2, 8))
def test_chunks_are_all_tests_in_order_each_of_one_module(sizes: list[int], workers: int) -> None:
    paths = [Path(str(module)) for module, size in enumerate(sizes) for _ in range(size)]
    divided = list(chunks(paths, workers))
    assert list(chain.from_iterable(divided)) == list(range(len(paths)))
    assert all(len({paths[index] for index in chunk}) == 1 for chunk in divided)
    assert all(len(chunk) <= 40 for chunk in divided)
    whole = list(chunks(paths, workers, len(paths)))
    assert [len(chunk) for chunk in whole] == sizes
