"""What a person sees in a terminal: at start-up with and without a running upstream, when an answer fails in
mid-stream, and at Ctrl-C."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from tests.support.debug_mode import without_durations
from tests.support.forked import Forked
from tests.support.normalised import Normalised
from tests.support.processes import free_port
from tests.support.serving import opened, ready, stream
from tests.support.shared import REPOSITORY
from tests.support.snapshots import snapshots
from tests.support.upstream import Script, ScriptedUpstream, chunk

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_SPENT = re.compile(r"\b(ms|first_ms)=[\d.]+")
_BASE = re.compile(r"listening on (http://\S+)")
_EVENT = re.compile(r" {2,}(?=\w+=)")


class Terminal:
    """`serve` with its output in a terminal, as far as it was shown."""

    def __init__(self, *flags: str) -> None:
        self._master, slave = os.openpty()
        self.flags = flags
        self.process = Forked[bytes](
            ["serve", "--port", "0", "--store", "memory://", *flags],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the other end any more
                return
            shown = _COLOURS.sub("", data.decode()).replace("\r\n", "\n")
            self.shown = without_durations(self.shown + shown)

    def wait_for(self, text: str) -> None:
        while text not in self.shown:
            assert self.process.poll() is None, self.shown
            time.sleep(0.01)

    @property
    def base(self) -> str:
        self.wait_for("listening on http://127.0.0.1:")
        self.wait_for("keys: ")  # so that its line is whole
        match = _BASE.search(self.shown)
        assert match is not None
        return match[1]

    def wait_until_it_waits(self) -> None:
        """In a system call: a signal that comes just before one does not interrupt it."""
        status = Path(f"/proc/{self.process.pid}/stat")
        while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.01)

    def press_ctrl_c(self, *, again: bool = False) -> int:
        """All processes of a terminal get it; the exit code. `again`: it is pressed once more where nothing
        happens, since a signal that comes just before a system call does not interrupt that."""
        os.killpg(self.process.pid, signal.SIGINT)
        if again:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait()
        self._reader.join()
        self.shown += f"[Ctrl-C: exit code {code}]\n"
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join()
        os.close(self._master)


def demo(upstream: ScriptedUpstream, folder: Path) -> Terminal:
    return Terminal()


def served(upstream: ScriptedUpstream, folder: Path) -> Terminal:
    upstream.models = ["text-embedding-3", "gpt-4o", "'; touch /tmp/owned; '\x1b[2J", "a", "b", "c"]
    config = folder / "bridge.toml"
    config.write_text(f'[[upstreams]]\nname = "local"\nurl = "{upstream.url}"\n')
    return Terminal("--config", str(config))


def away(upstream: ScriptedUpstream, folder: Path) -> Terminal:
    config = folder / "bridge.toml"
    config.write_text(f'[[upstreams]]\nprofile = "ollama"\nurl = "http://127.0.0.1:{free_port()}"\n')
    return Terminal("--config", str(config))


def fails_in_mid_stream(terminal: Terminal, upstream: ScriptedUpstream) -> None:
    terminal.wait_for("curl")
    upstream.scripts["gpt-4o"] = Script([chunk(role="assistant", content="Hel")])
    assert stream(terminal.base, model="gpt-4o").final["status"] == "failed"
    terminal.wait_for("path=/v1/responses")


def is_refused(terminal: Terminal, _upstream: ScriptedUpstream) -> None:
    terminal.wait_for("curl")
    with opened(terminal.base, "POST", "/v1/responses", {"model": "m", "input": "x"}) as response:
        assert response.status == 502
    terminal.wait_for("path=/v1/responses")


Scene = tuple[
    Callable[[ScriptedUpstream, Path], Terminal], Callable[[Terminal, ScriptedUpstream], None] | None
]
SCENES: dict[str, Scene] = {
    "demo": (demo, None),
    "upstream": (served, fails_in_mid_stream),
    "no_upstream": (away, is_refused),
}


@snapshots("start/{name}.txt", name=SCENES)
def test_terminal(snapshot: SnapshotAssertion, name: str, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    begin, act = SCENES[name]
    terminal = begin(upstream, tmp_path)
    try:
        ready(terminal.base, path="/healthz")
        if act is not None:
            act(terminal, upstream)
        assert terminal.press_ctrl_c() == 0
    finally:
        terminal.close()
        upstream.models = None
    assert "\x1b" not in terminal.shown
    assert "Traceback" not in terminal.shown
    lines = [line for line in terminal.shown.splitlines() if "path=/healthz" not in line]
    shown = "\n".join(lines).replace(upstream.url.removesuffix("/v1"), "http://upstream.example")
    shown = _SPENT.sub(r"\1=0.0", _TIMES.sub("TIME", _EVENT.sub(" ", shown)))
    assert Normalised()(shown) + "\n" == snapshot


def test_ctrl_c_ends_several_workers_with_0() -> None:
    terminal = Terminal("--workers", "2")
    try:
        ready(terminal.base, path="/healthz")
        assert terminal.press_ctrl_c() == 0
    finally:
        terminal.close()
    assert "Traceback" not in terminal.shown


def test_ctrl_c_while_it_starts_ends_it_quietly(tmp_path: Path) -> None:
    hanging = tmp_path / "bridge.toml"
    os.mkfifo(hanging)  # reading it waits for a writer
    terminal = Terminal("--config", str(hanging))
    try:
        with open(hanging, "w", encoding="utf-8"):  # opens when the other end does
            terminal.wait_until_it_waits()
            assert terminal.press_ctrl_c(again=True) == 0
    finally:
        terminal.close()
    assert terminal.shown == "[Ctrl-C: exit code 0]\n"
