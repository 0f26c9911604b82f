"""Which upstream serves a model, and the model's name there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from openresponses_bridge.seal import Sealer
from openresponses_server.errors import HttpError
from openresponses_server.limits.requests import check_name
from openresponses_server.observation.recordings.writer import Files, Tap, files_in
from openresponses_server.observation.traces import CurrentRunPolicy
from openresponses_server.observation.tracing import is_installed
from openresponses_server.settings import Settings, SettingsError, recording_path
from openresponses_server.settings.files import Mistakes, about, did_you_mean
from openresponses_server.upstreams.base import Upstream
from openresponses_server.upstreams.catalog import Catalog, best_match, is_pattern, read_models
from openresponses_server.upstreams.routing.states import Balance, Route
from openresponses_server.upstreams.targets import Configured, Target, configured, demo

if TYPE_CHECKING:  # OpenTelemetry's API may be missing
    from openresponses_server.observation.measurements import Measurements

_MOST_ALIASES = 8  # length of a chain of aliases
_MOST_KEPT = 1024  # cached targets of names and owners
_LONGEST_KEPT = 128  # characters of a name


class Router:
    """Maps names to targets. In this order: an alias; the upstreams that name the model; those with the
    longest matching pattern; `upstream/model`; the first upstream that accepts every name."""

    def __init__(
        self,
        upstreams: Sequence[Configured],
        aliases: Mapping[str, str] | None = None,
        default: str | None = None,
        catalog: Catalog | None = None,
        balance: Balance = "order",
    ) -> None:
        self.catalog = catalog or Catalog({})
        """The capabilities of the served models."""
        self._upstreams = {each.name: each for each in upstreams}
        self._aliases = aliases or {}
        self._default = default
        self._kept: dict[tuple[str, str], Target] = {}
        self._kept_of = self.catalog.version
        self._balance = balance
        self._served: dict[str, list[Configured]] = {}
        for each in upstreams:
            for pattern in dict.fromkeys(_patterns(each)):
                self._served.setdefault(pattern, []).append(each)

    def target_of(self, model: str | None, owner: str) -> Target:
        """The result of `resolve`, bound to this owner."""
        if self._kept_of != self.catalog.version or len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
            self._kept_of = self.catalog.version
        target = self._kept.get((model or "", owner))
        if target is None:
            target = self.resolve(model).bound(owner)
            if model and len(model) <= _LONGEST_KEPT:
                self._kept[model, owner] = target
        return target

    def resolve(self, model: str | None) -> Target:
        """Raises InvalidRequestError for a name that is too long, HttpError 400 if no model is named and
        there is no obvious one, 404 if the named one is not served."""
        name = model if model is not None else self._only_model()
        check_name(name, "model")
        match = self._find(self._unaliased(name))
        if match is None:
            raise unknown_model(name)
        first, *others = targets = self._targets(*match)
        tiers = {each.candidate.tier for each in targets}
        return first._replace(fallbacks=tuple(others), has_equals=len(tiers) < len(targets))

    def names(self) -> list[tuple[str, str]]:
        """Return (model, name of its upstream) for all that the settings name, aliases first."""
        aliased = [(alias, self.resolve(alias).upstream.name) for alias in self._aliases]
        served = [(name, each[0].name) for name, each in self._served.items() if not is_pattern(name)]
        return [*aliased, *served]

    def upstreams(self) -> Iterable[Upstream]:
        """All upstreams."""
        return (each.upstream for each in self._upstreams.values())

    def outgoing(self, model: str) -> str:
        """The model's name in requests to the upstream."""
        return self.resolve(model).model

    def serves(self, upstream: Upstream, model: str) -> bool:
        """Return True if a request for an upstream's model by its own name reaches that upstream."""
        match = self._find(self._unaliased(model))
        return match is not None and match[1] == model and any(each.upstream is upstream for each in match[0])

    def is_named(self, model: str) -> bool:
        """Return True if the settings have a model or an alias of exactly this name."""
        return model in self._aliases or model in self._served

    @property
    def has_alternatives(self) -> bool:
        """True if some model has several routes."""
        return any(len(each) > 1 for each in self._served.values()) or any(
            each.others or each.settings.failover for each in self._upstreams.values()
        )

    def configured(self) -> Iterable[Configured]:
        """All upstreams, with their settings and keys."""
        return self._upstreams.values()

    async def close(self) -> None:
        for each in self._upstreams.values():
            for upstream in each.upstreams:
                await upstream.close()

    def check(self) -> None:
        """Raises SettingsError when an alias, a failover or the default leads nowhere."""
        mistakes = Mistakes()
        for number, each in enumerate(self._upstreams.values()):
            for name in each.settings.failover:
                upstream, at = name.partition("/")[0], f"$.upstreams[{number}].failover"
                if upstream not in self._upstreams:
                    close = did_you_mean(upstream, self._upstreams)
                    mistakes.add(SettingsError(f"{name!r} is not the name of an upstream{close}", at))
        named = {f"aliases.{alias}": name for alias, name in self._aliases.items()}
        if self._default is not None:
            named["default_model"] = self._default
        for what, name in named.items():
            try:
                known = self._find(self._unaliased(name)) is not None
            except HttpError as error:
                mistakes.add(SettingsError(error.message, f"$.{what}"))
                continue
            if not known:
                mistakes.add(SettingsError(f"no upstream serves the model {name!r}", f"$.{what}"))
        mistakes.check()

    def _unaliased(self, model: str) -> str:
        name = model
        for _ in range(_MOST_ALIASES):
            if name not in self._aliases:
                return name
            name = self._aliases[name]
        raise HttpError(
            500,
            "The aliases lead in a loop.",
            code="internal_error",
        )

    def _find(self, model: str) -> tuple[list[Configured], str] | None:
        pattern = best_match(model, self._served)
        if pattern is not None:
            return self._served[pattern], model
        name, _, rest = model.partition("/")
        if rest and name in self._upstreams:
            return [self._upstreams[name]], rest
        open_to_all = (each for each in self._upstreams.values() if not each.settings.models)
        first = next(open_to_all, None)
        return None if first is None else ([first], model)

    def _targets(self, upstreams: Sequence[Configured], model: str) -> list[Target]:
        """The targets of these upstreams with each of their keys, then those of their failover."""
        in_order = self._balance == "order"
        targets: dict[Route, Target] = {}
        for number, each in enumerate(upstreams):
            for target in each.targets(model, number if in_order else 0):
                targets.setdefault(target.candidate.route, target)
        tier = len(upstreams)
        for entry in [entry for each in upstreams for entry in each.settings.failover]:
            name, _, other = entry.partition("/")
            for target in self._upstreams[name].targets(other or model, tier):
                targets.setdefault(target.candidate.route, target)
            tier += 1
        return [
            each._replace(able=self.catalog.capabilities(each.upstream.name, each.model))
            for each in targets.values()
        ]

    def _only_model(self) -> str:
        if self._default is not None:
            return self._default
        named = [each.settings.model for each in self._upstreams.values()]
        if len(named) == 1 and named[0] is not None:
            return named[0]
        what = "The request names no model: send `model`, one of those that GET /v1/models lists."
        raise HttpError(400, what, code="missing_required_parameter", param="model")


def build_router(
    settings: Settings,
    sealer: Sealer,
    recordings: Files | None = None,
    *,
    measured: Measurements | None = None,
) -> Router:
    """The router of these settings; with `recordings`, or a folder for them in the settings, it records the
    exchanges with upstreams, and with `measured` it measures them. Raises SettingsError for an upstream that
    can't be used."""
    recorded, traced = _taps(settings, recordings)
    upstreams = []
    mistakes = Mistakes()
    for number, each in enumerate(settings.upstreams):
        with mistakes.kept(), about(f"$.upstreams[{number}]"):
            taps = traced if recording_path(each.url) is not None else [*recorded, *traced]
            upstreams.append(configured(each, settings, sealer, taps))
    mistakes.check()
    upstreams = upstreams or [demo(sealer, [*recorded, *traced])]
    if is_installed():
        from openresponses_server.upstreams.spans import SpannedUpstream

        spanned = partial(SpannedUpstream, measured=measured)
        upstreams = [each.wrapped(spanned) for each in upstreams]
    names = [each.name for each in upstreams]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        second = len(names) - 1 - names[::-1].index(twice)
        what = f"two upstreams have the name {twice!r}; give each a different name"
        raise SettingsError(what, f"$.upstreams[{second}]")
    filed = None if settings.models_file is None else read_models(Path(settings.models_file))
    catalog = Catalog(settings.models, filed)
    router = Router(upstreams, settings.aliases, settings.default_model, catalog, settings.balance)
    router.check()
    return router


def _taps(settings: Settings, recordings: Files | None) -> tuple[list[Tap], list[Tap]]:
    """The recorders of upstreams, and of the traces of responses."""
    if recordings is None and settings.record is not None:
        recordings = files_in(settings.record, settings.record_bytes)
    traced: list[Tap] = []
    if settings.trace.folder is not None:
        traced.append(lambda _name: CurrentRunPolicy())
    return ([] if recordings is None else [recordings]), traced


def unknown_model(model: str) -> HttpError:
    """Return the error for a model that no upstream serves (specification, "Errors")."""
    return HttpError(
        404,
        f"The model '{model[:80]}' does not exist.",
        code="model_not_found",
        error_type="invalid_request_error",
        param="model",
    )


def _patterns(each: Configured) -> Sequence[str]:
    return each.settings.models or [name for name in (each.settings.model,) if name is not None]
