"""A model as VS Code's `LanguageModelChatInformation` shows it, whatever is known of it."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from openresponses_bridge.models.identity import model_identity

UNKNOWN_CONTEXT: Final = 128_000
UNKNOWN_OUTPUT: Final = 8_192
"""The tokens of output that are assumed for a model if they are not known; VS Code requires numbers."""
CONFIGURED_EFFORT: Final = "reasoningEffort"
"""The property of `configurationSchema` with the effort, and its name in `modelConfiguration`."""
NO_CHOICE: Final = "auto"
"""The effort that requests nothing, so that the model's default applies. VS Code sends the default of each
property with every request: without this one, it would take precedence over the settings of the extension."""
_LIKELY_EFFORTS: Final = ("low", "medium", "high")
_EFFORT_GROUP: Final = "navigation"  # where the card of a model in the picker shows its effort


class EnrichedModelData(Struct, frozen=True, kw_only=True):
    """A model with its limits and abilities filled in. Limits are tokens.

    `id` is the model's name in requests, `name` is for people, `upstream` is where it is served. `family` and
    `version` are read from the id. `context_window` is input and output together. `reasoning` is None when it
    is not known; `limits_known` says whether the limits are the model's or only likely. `efforts` are the
    levels of reasoning effort to choose from, the least first. `pricing` says in words what the model costs,
    "" if it is not known.
    """

    id: str
    name: str
    upstream: str
    family: str
    version: str
    context_window: int
    max_input_tokens: int
    max_output_tokens: int
    tools: bool
    images: bool
    reasoning: bool | None
    limits_known: bool
    efforts: tuple[str, ...] = ()
    pricing: str = ""

    @classmethod
    def of(
        cls,
        id: str,
        upstream: str,
        *,
        model: str = "",
        title: str = "",
        context_window: int | None = None,
        max_input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        tools: bool | None = None,
        images: bool | None = None,
        reasoning: bool | None = None,
        efforts: tuple[str, ...] | None = None,
        pricing: str = "",
    ) -> EnrichedModelData:
        """Return the information from known facts; None is unknown. `model` is its name upstream, whose
        family counts if `id` is an alias. Tool support is assumed, since a model without it can still be used
        (its requests have no tools); image support is not. A model that reasons and whose efforts are not
        known has those that most models have."""
        identity = model_identity(model or id)
        window = context_window or max_input_tokens or UNKNOWN_CONTEXT
        output = min(max_output_tokens or UNKNOWN_OUTPUT, window)
        room = max(window - output, window // 2)
        return cls(
            id=id,
            name=title or id,
            upstream=upstream,
            family=identity.family or id,
            version=identity.version or identity.date or "1",
            context_window=window,
            max_input_tokens=min(max_input_tokens, window) if max_input_tokens else room,
            max_output_tokens=output,
            tools=tools is not False,
            images=images is True,
            reasoning=reasoning,
            limits_known=bool(context_window or max_input_tokens),
            efforts=_efforts(reasoning, efforts),
            pricing=pricing,
        )

    def information(self) -> dict[str, Any]:
        """Return the information in VS Code's names."""
        limits = f"{self.max_input_tokens:,} tokens in, {self.max_output_tokens:,} out"
        limits = limits if self.limits_known else "its limits are not known"
        information = {
            "id": self.id,
            "name": self.name,
            "family": self.family,
            "version": self.version,
            "maxInputTokens": self.max_input_tokens,
            "maxOutputTokens": self.max_output_tokens,
            "capabilities": {"imageInput": self.images, "toolCalling": self.tools},
            "tooltip": f"{self.id}: {limits}",
            "detail": self.upstream,
            "isUserSelectable": True,
        }
        if self.pricing:
            information["pricing"] = self.pricing
        if self.efforts:
            information["configurationSchema"] = {"properties": {CONFIGURED_EFFORT: self._effort_schema()}}
        return information

    def _effort_schema(self) -> dict[str, Any]:
        choices = (NO_CHOICE, *self.efforts)
        return {
            "type": "string",
            "title": "Thinking Effort",
            "enum": list(choices),
            "enumItemLabels": [_LABELS.get(each, each.capitalize()) for each in choices],
            "default": NO_CHOICE,
            "group": _EFFORT_GROUP,
        }


_LABELS: Final = {"xhigh": "Extra high"}


def _efforts(reasoning: bool | None, known: tuple[str, ...] | None) -> tuple[str, ...]:
    if reasoning is False:
        return ()
    if known is None:
        return _LIKELY_EFFORTS if reasoning else ()
    return known
