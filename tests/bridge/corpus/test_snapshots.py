"""The expected results of the corpus as snapshots; its streams are in `snapshots/bridge/emitter/streams`."""

import json

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from openresponses_bridge.corpus import case, cases, schema
from openresponses_bridge.corpus.cases import WIRE_NAMES
from openresponses_bridge.corpus.scripts import SCRIPTS
from openresponses_bridge.corpus.variants import VARIANTS
from tests.support.snapshots import snapshots


@snapshots("expected/{wire}/{script}.json", wire=WIRE_NAMES, script=SCRIPTS)
@pytest.mark.untraced
def test_expected(snapshot: SnapshotAssertion, wire: str, script: str) -> None:
    each = case(f"{wire}/{script}")
    assert each.broken_rules == ()
    assert {
        "asks": each.asks,
        "expected": msgspec.to_builtins(each.expected),
        "parts": each.parts,
    } == snapshot


@snapshots("variants/{variant}.sse", variant=VARIANTS)
def test_variants(snapshot: SnapshotAssertion, variant: str) -> None:
    """The first script that a variant is of, with the responses shortened to their outputs."""
    each = case(f"openresponses/{VARIANTS[variant].scripts[0]}/{variant}")
    text = each.sse
    for event in each.events:
        if "response" in event and VARIANTS[variant].frame is None and VARIANTS[variant].text is None:
            whole = json.dumps(event["response"], ensure_ascii=False, separators=(",", ":"))
            text = text.replace(whole, '{"…":"…"}') if event["type"] != each.events[-1]["type"] else text
    assert text.replace("\r", "␍") == snapshot


@snapshots("cases.txt")
@pytest.mark.untraced
def test_cases(snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    """All cases, with the rules that they break."""
    lines = [f"{each.id}: {', '.join(each.broken_rules) or 'valid'}" for each in cases()]
    assert "\n".join(lines) + "\n" == snapshot


@snapshots("schema.json")
def test_schema(snapshot: SnapshotAssertion, snapshot_file: str) -> None:
    assert schema() == snapshot
