"""Streams, each with the result that a reader should decode, for authors of decoders, clients and bridges."""

from openresponses_bridge.corpus.cases import (
    VERSION,
    Case,
    CaseWire,
    case,
    case_ids,
    cases,
    chosen_ids,
    schema,
)
from openresponses_bridge.corpus.checking import (
    Fault,
    Report,
    ReportedCall,
    check,
    differences,
    facts_of,
    read_report,
    report_of,
)
from openresponses_bridge.corpus.truth import (
    Expected,
    ExpectedCall,
    ExpectedCitation,
    ExpectedError,
    ExpectedUsage,
)

__all__ = [
    "VERSION",
    "Case",
    "CaseWire",
    "Expected",
    "ExpectedCall",
    "ExpectedCitation",
    "ExpectedError",
    "ExpectedUsage",
    "Fault",
    "Report",
    "ReportedCall",
    "case",
    "case_ids",
    "cases",
    "check",
    "chosen_ids",
    "differences",
    "facts_of",
    "read_report",
    "report_of",
    "schema",
]
