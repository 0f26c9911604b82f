"""Fields of a delta that no event has a place for, and the extension events that carry them whole."""

from __future__ import annotations

_FIELDS = {
    # on the wire → (in ResponseDelta, event)
    "ipCitations": ("ip_citations", "copilot:ip_citations"),
    "codeVulnAnnotations": ("code_vuln_annotations", "copilot:code_vuln_annotations"),
    "copilotConfirmation": ("copilot_confirmation", "copilot:confirmation"),
    "contextManagement": ("context_management", "copilot:context_management"),
    "retryReason": ("retry_reason", "copilot:retry_reason"),
    "statefulMarker": ("stateful_marker", "copilot:stateful_marker"),
}
# references that do not cite an address; those have events of their own
REFERENCES = "copilot:references"

EVENT_OF_FIELD = {wire: event for wire, (_, event) in _FIELDS.items()}
FIELD_OF_EVENT = {event: field for field, event in _FIELDS.values()} | {REFERENCES: "copilot_references"}
