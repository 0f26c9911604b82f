"""The Helm chart in docs/deploy, rendered by Helm's own engine and validated by the schemas of Kubernetes;
the base of kustomize is the rendered chart."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.charts import CHART, PLAIN, plain, rendered
from tests.support.document_blocks import commands
from tests.support.documents import blocks_of
from tests.support.shared import REPOSITORY

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(
        importlib.util.find_spec("helm_python") is None, reason="Helm's engine has a wheel for Linux"
    ),
]
ALL: dict[str, Any] = {
    "image": {"repository": "registry.example/bridge", "digest": f"sha256:{'0' * 64}"},
    "store": "postgresql+psycopg://bridge@postgres.example/bridge",
    "eventLog": "redis://redis.example:6379/0",
    "keys": {"clients": "clients", "operators": "operators"},
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
    "autoscaling": {"enabled": True, "streamsPerPod": 50},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "tlsSecret": "tls",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-read-timeout": "3600"},
    },
    "networkPolicy": {
        "enabled": True,
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}],
    },
    "serviceAccountName": "bridge",
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "podAnnotations": {"example.org/team": "models"},
    "drainSeconds": 60,
}
CASES = {
    "by itself": {},
    "all": ALL,
    "autoscaling": {"autoscaling": {"enabled": True}},
    "without a budget": {"disruptionBudget": {"enabled": False}},
    "a policy for everybody": {"networkPolicy": {"enabled": True, "egress": []}},
    "a bare ingress": {"ingress": {"enabled": True, "paths": ["/v1"]}},
}


def objects(values: dict[str, Any], release: str = "bridge") -> dict[str, Any]:
    """Return the objects by their kind."""
    documents = [yaml.safe_load(text) for text in rendered(values, release).values()]
    assert len({each["kind"] for each in documents}) == len(documents)
    return {each["kind"]: each for each in documents}


def container(values: dict[str, Any]) -> dict[str, Any]:
    (spec,) = objects(values)["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(spec, dict)
    return spec


def validated(path: Path) -> None:
    command = [str(Path(sys.executable).with_name("kubernetes-validate")), "--strict", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def kustomized(folder: Path) -> Iterator[Any]:
    command = [str(Path(sys.executable).with_name("kubectl")), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (each for each in yaml.safe_load_all(done.stdout))


def by_name(each: Any) -> tuple[str, str]:
    return each["kind"], each["metadata"]["name"]


def test_helm_has_nothing_against_the_chart() -> None:
    import helm_python

    report = helm_python.lint(str(CHART))
    assert report["errors"] == []
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("case", CASES)
def test_the_manifests_are_those_of_kubernetes(tmp_path: Path, case: str) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text("\n---\n".join(rendered(CASES[case], "a-release").values()))
    validated(file)


def test_the_schemas_see_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(rendered(ALL)["networkpolicy"].replace("podSelector", "podsSelector"))
    with pytest.raises(AssertionError, match="podsSelector"):
        validated(file)


def test_the_plain_manifests_are_the_chart_by_itself() -> None:
    assert PLAIN.read_text() == plain(), "make manifests draws them again"


def test_kustomize_has_the_same_as_a_base(tmp_path: Path) -> None:
    there = sorted(yaml.safe_load_all(PLAIN.read_text()), key=by_name)
    assert sorted(kustomized(PLAIN.parent), key=by_name) == there
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "models",
        "resources": ["base"],
        "images": [{"name": "openresponses-bridge", "digest": f"sha256:{'1' * 64}"}],
        "replicas": [{"name": "bridge", "count": 5}],
    }
    (tmp_path / "base").symlink_to(PLAIN.parent)
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    changed = {each["kind"]: each for each in kustomized(tmp_path)}
    assert {each["metadata"]["namespace"] for each in changed.values()} == {"models"}
    assert changed["Deployment"]["spec"]["replicas"] == 5
    for kind in ("Deployment", "Job"):
        (one,) = changed[kind]["spec"]["template"]["spec"]["containers"]
        assert one["image"] == f"openresponses-bridge@sha256:{'1' * 64}"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": 0}, "replicas"),
        ({"secret": ""}, "secret"),
        ({"store": "sqlite:////data/s.sqlite3"}, "store"),
        ({"store": "postgresql://bridge:a-password@postgres/bridge"}, "store"),
        ({"eventLog": "memory://"}, "eventLog"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"ingress": {"paths": ["v1"]}}, "paths"),
    ],
)
def test_values_that_would_not_do_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    import helm_python

    with pytest.raises(helm_python.HelmError, match=named):
        rendered(values)


def test_every_value_is_used_by_a_template() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    texts = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    for name, value in defaults.items():
        inner = value if isinstance(value, dict) and name not in ("resources", "nodeSelector") else {}
        for path in [f"{name}.{each}" for each in inner] or [name]:
            assert f".Values.{path}" in texts, path


def test_what_is_given_reaches_the_workers() -> None:
    worker = container(ALL)
    variables = {each["name"]: each for each in worker["env"]}
    assert variables["OPENRESPONSES_BRIDGE_STORE"]["value"] == ALL["store"]
    assert variables["OPENRESPONSES_BRIDGE_EVENT_LOG"]["value"] == ALL["eventLog"]
    for name, key in (("API_KEYS", "clients"), ("OPERATOR_KEYS", "operators")):
        reference = variables[f"OPENRESPONSES_BRIDGE_{name}"]["valueFrom"]["secretKeyRef"]
        assert reference == {"name": "bridge", "key": key}
    assert variables["HTTPS_PROXY"]["value"] == "http://proxy.example:3128"
    assert worker["image"] == f"registry.example/bridge@sha256:{'0' * 64}"
    assert "env" not in container({})
    assert worker["args"][-2:] == ["--drain", "60s"]
    pod = objects(ALL)["Deployment"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 60 + 10
    (job,) = objects(ALL)["Job"]["spec"]["template"]["spec"]["containers"]
    assert (job["env"], job["image"]) == (worker["env"], worker["image"])


def test_workers_are_added_for_open_streams() -> None:
    by_kind = objects(ALL)
    (metric,) = by_kind["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert metric["pods"]["target"]["averageValue"] == "50"
    names = (REPOSITORY / "snapshots/server/names.json").read_text()
    assert f'"{metric["pods"]["metric"]["name"]}"' in names
    assert "replicas" not in by_kind["Deployment"]["spec"]
    assert objects({})["Deployment"]["spec"]["replicas"] == 2


def test_whoever_is_selected_are_the_workers_of_this_release() -> None:
    by_kind = objects(ALL, "one")
    worker = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    upgrade = by_kind["Job"]["spec"]["template"]["metadata"]["labels"]
    other = objects(ALL, "two")["Deployment"]["spec"]["template"]["metadata"]["labels"]

    def selects(labels: dict[str, str], selector: dict[str, str]) -> bool:
        return selector.items() <= labels.items()

    for selector in (
        by_kind["Service"]["spec"]["selector"],
        by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        by_kind["Deployment"]["spec"]["selector"]["matchLabels"],
    ):
        assert selects(worker, selector)
        assert not selects(upgrade, selector)
        assert not selects(other, selector)
    policy = by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    assert selects(worker, policy)
    assert selects(upgrade, policy)
    assert not selects(other, policy)


def test_nothing_of_the_outside_reaches_what_is_for_operators() -> None:
    by_kind = objects(ALL)
    (rule,) = by_kind["Ingress"]["spec"]["rules"]
    paths = [each["path"] for each in rule["http"]["paths"]]
    assert not [each for each in paths if "/metrics".startswith(each) or "/readyz".startswith(each)]
    (peers,) = by_kind["NetworkPolicy"]["spec"]["ingress"]
    assert peers["from"] == ALL["networkPolicy"]["from"]
    blocks = [
        peer["ipBlock"]
        for rule in by_kind["NetworkPolicy"]["spec"]["egress"]
        for peer in rule.get("to", ())
        if "ipBlock" in peer
    ]
    assert [each["except"] for each in blocks] == [["169.254.0.0/16"]]


def test_the_command_of_the_page_gives_values_that_there_are() -> None:
    (install,) = commands("docs/containers.md", "Helm")
    (metric,) = (block.code for block in blocks_of("docs/containers.md") if block.language == "yaml")
    values: dict[str, Any] = {}
    for path, value in re.findall(r"--set (\S+?)=(\S+)", install):
        first, _, inner = path.partition(".")
        if inner:
            values.setdefault(first, {})[inner] = {"true": True}.get(value, value)
        else:
            values[path] = value
    by_kind = objects(values)
    assert {"Ingress", "Job", "Deployment"} <= by_kind.keys()
    assert by_kind["Ingress"]["spec"]["rules"][0]["host"] == values["ingress"]["host"]
    (rule,) = yaml.safe_load(metric)["rules"]
    (scaled,) = objects(ALL)["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert rule["seriesQuery"].startswith(scaled["pods"]["metric"]["name"] + "{")
