"""Builds a Containerfile and runs its command without a container engine. Needs root on Debian.

The steps of a stage run in a root file system made by debootstrap. The command runs in the root file system
of the last stage, restricted as in a container: read-only, with its own user and environment. The base image
has its Python in /usr/local, debootstrap's is in /usr. Packages are installed from a folder of wheels that is
filled before, because the steps have no network.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from tests.support.shared import REPOSITORY

WHEELS = "/wheels"
_BASE_PACKAGES = "python3,python3-venv"
_OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS}
_BARE = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp"}


@dataclass
class Image:
    """The result of a stage's instructions."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(_BARE))
    user: str = "0:0"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    signal: str = ""
    volumes: list[str] = field(default_factory=list)

    def compressed_bytes(self) -> int:
        """Return the size of the file system as a registry stores it: one layer, compressed by gzip."""
        pack = f"tar --create --one-file-system --directory {self.root} . | gzip | wc -c"
        done = subprocess.run(["sh", "-c", pack], capture_output=True, text=True, check=True)
        return int(done.stdout)

    def started(
        self, command: list[str], writable: list[str], user: str = "", **variables: str
    ) -> subprocess.Popen[str]:
        """Start the command as the image's user or another one. The root file system is read-only except for
        the `writable` folders, which are in memory. The returned process is the command itself, so that
        signals reach it."""
        user = user or self.user
        uid, gid = self.user.split(":")  # the owner of the folders, even if another user runs the command
        mounts = [
            f"mount --bind {self.root} {self.root}",
            f"mount -o remount,ro,bind {self.root}",
            *(
                f"mount -t tmpfs -o uid={uid},gid={gid},mode=0770 tmpfs {self.root}{each}"
                for each in writable
            ),
            f"mount -t proc proc {self.root}/proc",
            f"mount --bind /dev {self.root}/dev",
        ]
        within = f"cd {shlex.quote(self.folder)} && exec {shlex.join(command)}"
        run = ["/usr/sbin/chroot", f"--userspec={user}", str(self.root), "/bin/sh", "-c", within]
        return subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", "\n".join([*mounts, f"exec {shlex.join(run)}"])],
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def built(containerfile: Path, context: Path, work: Path) -> Image:
    """Build the image of the last stage, with its root under `work`. Raises AssertionError with the output of
    a step that failed."""
    from dockerfile_parse import DockerfileParser

    base = _debian(work / "base")
    wheels = _wheels(work / "wheels")
    arguments: dict[str, str] = {}
    stages: dict[str, Image] = {}
    image: Image | None = None
    for step in DockerfileParser(fileobj=io.BytesIO(containerfile.read_bytes())).structure:
        name, value = step["instruction"], step["value"]
        if name == "COMMENT":
            continue
        if name == "ARG":
            key, _, default = value.partition("=")
            arguments[key] = default
        elif name == "FROM":
            root = work / f"stage{len(stages)}"
            if value == "scratch":
                root.mkdir()
            else:
                subprocess.run(["cp", "--archive", "--reflink=auto", str(base), str(root)], check=True)
            image = Image(root)
            stages[value.rpartition(" AS ")[2] if " AS " in value else root.name] = image
        else:
            assert image is not None, step
            _step(name, value, image, stages, context, wheels)
    assert image is not None
    return image


def _step(name: str, value: str, image: Image, stages: dict[str, Image], context: Path, wheels: Path) -> None:
    match name:
        case "RUN":
            _run(value, image, wheels)
        case "COPY":
            _copy(shlex.split(value), image, stages, context)
        case "ENV":
            for word in shlex.split(value):
                key, _, template = word.partition("=")
                image.environment[key] = Template(template).substitute(image.environment)
        case "WORKDIR":
            image.folder = value
            (image.root / value.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "USER":
            image.user = value
        case "VOLUME":
            image.volumes.append(value)
        case "STOPSIGNAL":
            image.signal = value
        case "ENTRYPOINT":
            image.entrypoint = json.loads(value)
        case "CMD":
            image.command = json.loads(value)
        case "HEALTHCHECK":
            image.health = json.loads(value.partition("CMD ")[2])
        case "EXPOSE":
            pass
        case _:
            raise AssertionError(f"an instruction that is not known here: {name} {value}")


def _run(command: str, image: Image, wheels: Path) -> None:
    inside = image.root / WHEELS.lstrip("/")
    script = f"""mkdir -p {inside}; mount --bind {wheels} {inside}; mount -t proc proc {image.root}/proc
        mount --bind /dev {image.root}/dev
        exec /usr/sbin/chroot {image.root} /bin/sh -c {shlex.quote(f"cd {image.folder} && {command}")}"""
    environment = image.environment | _OFFLINE
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    inside.rmdir()
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])


def _copy(words: list[str], image: Image, stages: dict[str, Image], context: Path) -> None:
    source = context
    if words[0].startswith("--from="):
        source = stages[words.pop(0).removeprefix("--from=")].root
    *names, target = words
    place = image.root / os.path.normpath(f"{image.folder}/{target}" if target[0] != "/" else target).lstrip(
        "/"
    )
    for name in names:
        path = source / name.lstrip("/")
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "--archive", "--reflink=auto", f"{path}/.", str(place)], check=True)
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place / path.name)


def _debian(folder: Path) -> Path:
    """A minimal Debian with Python, as a root file system."""
    release = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
    )
    command = ["debootstrap", "--variant=minbase", f"--include={_BASE_PACKAGES}"]
    done = subprocess.run(
        [*command, release["VERSION_CODENAME"].strip('"'), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return folder


def _wheels(folder: Path) -> Path:
    """The wheels of all packages that the image installs, or needs for its build, in the versions of the
    constraints."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
    pins = [
        "--constraint",
        str(REPOSITORY / "constraints.txt"),
        "--only-binary",
        ":all:",
        "--dest",
        str(folder),
    ]
    requirements = [
        f"{REPOSITORY}/bridge",
        f"{REPOSITORY}/server[postgres,redis,tokenizers]",
        "setuptools>=77",
        "wheel",
    ]
    requirements += ["async-timeout"]  # for Python 3.11.2 of Debian 12
    subprocess.run([*pip, *pins, *requirements], check=True, capture_output=True)
    return folder
