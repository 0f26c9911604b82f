"""The Helm chart in docs/deploy, rendered by Helm's own engine. Run as a program, it writes
docs/deploy/kubernetes.yaml, the chart with its default values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.support.shared import REPOSITORY

CHART: Final = REPOSITORY / "docs" / "deploy" / "chart"
PLAIN: Final = REPOSITORY / "docs" / "deploy" / "kubernetes.yaml"
_KINDS: Final = (
    "configmap",
    "job",
    "deployment",
    "service",
    "disruptionbudget",
    "autoscaler",
    "ingress",
    "networkpolicy",
)
_HEAD: Final = """\
# Drawn by `make manifests` from the chart beside it, as it is without any values. After the Secret that
# docs/containers.md has a command for:  kubectl apply -f docs/deploy/kubernetes.yaml
# PostgreSQL and Redis are yours; their addresses are in the Secret.
"""


def rendered(values: Mapping[str, Any], release: str = "bridge") -> dict[str, str]:
    """Return each template's manifest by the template's name, in the order in which they are applied.
    Manifests that the values turn off are left out. Raises HelmError of helm_python for values that the
    schema refuses."""
    import helm_python

    with helm_python.Chart.load(str(CHART)) as chart:
        chart.validate_schema(chart.merge_values(dict(values)))
        texts = chart.render(dict(values), name=release, namespace="default")
    manifests = {path.rpartition("/")[2].partition(".")[0]: text.strip() for path, text in texts.items()}
    assert manifests.keys() == {*_KINDS, "NOTES"}
    return {kind: manifests[kind] for kind in _KINDS if manifests[kind]}


def plain() -> str:
    """Return the text of docs/deploy/kubernetes.yaml."""
    return _HEAD + "\n---\n".join(rendered({}).values()) + "\n"


if __name__ == "__main__":
    PLAIN.write_text(plain())
