"""The files that deploy the server (docs/deploy) are linted and validated by schemas; the steps of the image
run without a container engine."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests.support.containers import Image, built
from tests.support.debian_proxies import DEPLOY, program, proxied
from tests.support.document_blocks import commands
from tests.support.processes import base_of, free_port, started
from tests.support.services import postgres_database
from tests.support.shared import REPOSITORY

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900)]
WRITABLE = ["/data", "/tmp"]
KEY = "a key of a client"


def of_environment(name: str) -> str:
    return program(str(Path(sys.executable).with_name(name)))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    program("debootstrap")
    if os.geteuid() != 0:
        pytest.skip("the steps of an image are run by root")
    work = tmp_path_factory.mktemp("image")
    try:
        yield built(DEPLOY / "Containerfile", REPOSITORY, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def running(image: Image, user: str = "", **variables: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    port = free_port()
    variables["OPENRESPONSES_BRIDGE_PORT"] = str(port)
    process = image.started([*image.entrypoint, *image.command], WRITABLE, user, **variables)
    try:
        yield process, port
    finally:
        process.kill()
        process.communicate()


def wait_for(port: int, process: subprocess.Popen[str]) -> None:
    while True:
        assert process.poll() is None, process.stderr and process.stderr.read()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return


def health(image: Image, port: int) -> int:
    process = image.started(image.health, WRITABLE, OPENRESPONSES_BRIDGE_PORT=str(port))
    process.communicate()
    return process.returncode


@pytest.mark.parametrize("uid", [10001, 1_000_680_000])  # the second as OpenShift assigns one, in group 0
def test_the_image_serves_as_any_user_over_a_root_that_can_not_be_written(image: Image, uid: int) -> None:
    assert image.user == "10001:0"
    with running(image, f"{uid}:0", OPENRESPONSES_BRIDGE_API_KEYS=KEY) as (process, port):
        wait_for(port, process)
        assert health(image, port) == 0
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\t" in status
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        request = Request(
            f"http://127.0.0.1:{port}/v1/responses", b'{"model":"demo","input":"Hello"}', headers
        )
        with urlopen(request) as answered:
            response = json.load(answered)
        assert response["status"] == "completed"
        again = Request(f"http://127.0.0.1:{port}/v1/responses/{response['id']}", headers=headers)
        with urlopen(again) as answered:
            assert json.load(answered)["output"] == response["output"]
        process.send_signal(getattr(signal, image.signal))
        assert process.wait(60) == 0
    assert health(image, port) != 0


def test_without_keys_the_image_does_not_listen(image: Image) -> None:
    with running(image) as (process, _):
        _, errors = process.communicate()
        assert process.returncode == 2
        assert "api_keys" in errors


def test_the_image_has_the_drivers_and_the_pins_and_nothing_of_the_build(image: Image) -> None:
    listing = "from importlib.metadata import distributions as d; import psycopg, redis, tiktoken\n"
    listing += "print(*(f'{each.name}=={each.version}' for each in d()), sep='\\n')"
    process = image.started(["python3", "-c", listing], WRITABLE)
    installed, errors = process.communicate()
    assert process.returncode == 0, errors
    pins = (REPOSITORY / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    packages = {line.lower().replace("_", "-") for line in installed.splitlines()}
    assert "pip" not in {line.split("==")[0] for line in packages}
    ours = ("openresponses-bridge==", "openresponses-server==")
    assert {line for line in packages if not line.startswith(ours)} <= set(pins)
    programs = {each.name for folder in image.root.glob("**/bin") for each in folder.iterdir()}
    assert {"python3", "openresponses-bridge"} <= programs
    assert not programs & {"apt-get", "cc", "curl", "gcc", "ld", "make", "pip", "pip3", "wget"}
    assert image.health[0] in programs
    assert not (image.root / "source").exists()
    assert not list((image.root / "opt").rglob(".*"))


def test_the_image_is_small(image: Image) -> None:
    """The base in this test is Debian's own Python in a debootstrap, which is larger than the base that the
    file names."""
    size = image.compressed_bytes()
    print(f"the image: {size / 1e6:.0f} MB")
    assert size < 120_000_000


def test_the_image_brings_postgres_to_its_tables(image: Image) -> None:
    with postgres_database() as url:
        process = image.started([*image.entrypoint, "db", "upgrade", "--store", url], WRITABLE)
        output, failed = process.communicate()
    assert process.returncode == 0, failed
    assert "at revision" in output


def test_containerfile_is_linted() -> None:
    lint = [of_environment("hadolint"), "--strict-labels", str(DEPLOY / "Containerfile")]
    done = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", ["compose.yaml", "compose.llamacpp.yaml"])
def test_the_compose_file_is_one(name: str) -> None:
    needed = ["BRIDGE_API_KEYS", "BRIDGE_SEALING_KEY", "UPSTREAM_API_KEY", "POSTGRES_PASSWORD"]
    variables = dict.fromkeys(needed, "x") | {"MODEL": "/models/model.gguf"}
    shown = subprocess.run(
        [program("docker"), "compose", "-f", str(DEPLOY / name), "config", "--format", "json"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if "is not a docker command" in shown.stderr or "unknown shorthand" in shown.stderr:
        pytest.skip("docker has no compose here")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["services"]["bridge"]["read_only"] is True


def test_the_unit_is_one_of_systemd(tmp_path: Path) -> None:
    text = (DEPLOY / "openresponses-bridge.service").read_text()
    unit = tmp_path / "openresponses-bridge.service"
    unit.write_text(text.replace("/opt/bridge/.venv/bin/openresponses-bridge", "/bin/true"))
    done = subprocess.run(
        [program("systemd-analyze"), "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stream_passes_nginx_as_it_is_made(tmp_path: Path) -> None:
    with started("--store", "memory://") as process, proxied("nginx", base_of(process), tmp_path) as proxy:
        (command,) = commands("docs/proxies.md", "Does it buffer?")
        command = command.replace("https://bridge.example", proxy)
        begun = time.monotonic()
        with subprocess.Popen(["sh", "-c", f"exec {command}"], stdout=subprocess.PIPE) as curl:
            assert curl.stdout is not None
            assert curl.stdout.readline() == b"event: response.created\n"
            first = time.monotonic() - begun
            deltas = (line for line in curl.stdout if line == b"event: response.output_text.delta\n")
            assert len(list(islice(deltas, 40))) == 40  # all of them take two minutes
            curl.terminate()
        assert first < (time.monotonic() - begun) / 2
        with pytest.raises(URLError, match="404"):
            urlopen(f"{proxy}/metrics")
