"""What `pip install .` installs: both distributions of this checkout, with the extras of either.

The addresses of their folders are known only where it runs. `make install` installs both editable.
"""

import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent.absolute()
DISTRIBUTIONS = {
    folder: tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
    for folder in ("bridge", "server")
}


def requirement(folder: str, extra: str = "") -> str:
    name = DISTRIBUTIONS[folder]["name"] + (f"[{extra}]" if extra else "")
    return f"{name} @ {(ROOT / folder).as_uri()}"


setup(
    install_requires=[requirement(folder) for folder in DISTRIBUTIONS],
    extras_require={
        extra: [requirement(folder, extra)]
        for folder, project in DISTRIBUTIONS.items()
        for extra in project["optional-dependencies"]
    },
)
