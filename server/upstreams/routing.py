"""Which upstream serves a model, and under which name it knows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bridge.seal import Sealer
from server.errors import HttpError
from server.settings import Settings, SettingsError
from server.upstreams.base import Upstream, called
from server.upstreams.catalog import best_match, is_pattern
from server.upstreams.targets import Configured, Target, configured, demo

_MOST_ALIASES = 8  # how many aliases may lead to each other


class Router:
    """Names → targets. In this order: an alias; an upstream that names the model; the one with the
    longest pattern for it; `upstream/model`; the first upstream that takes every name."""

    def __init__(
        self,
        upstreams: Sequence[Configured],
        aliases: Mapping[str, str] | None = None,
        default: str | None = None,
    ) -> None:
        self._upstreams = {each.name: each for each in upstreams}
        self._aliases = aliases or {}
        self._default = default
        self._served: dict[str, Configured] = {}
        for each in upstreams:
            for pattern in _patterns(each):
                self._served.setdefault(pattern, each)

    def resolve(self, model: str | None) -> Target:
        """Raises HttpError 400 when no model is named and none is the obvious one, 404 when the named one
        is not served."""
        wanted = model if model is not None else self._only_model()
        found = self._find(self._unaliased(wanted))
        if found is None:
            raise unknown_model(wanted)
        upstream, name = found
        return upstream.target(name, tuple(self._fallbacks(upstream, name)))

    def names(self) -> list[tuple[str, str]]:
        """(model, name of its upstream) for all that the settings name, aliases first."""
        aliased = [(alias, self.resolve(alias).upstream.name) for alias in self._aliases]
        served = [(name, each.name) for name, each in self._served.items() if not is_pattern(name)]
        return [*aliased, *served]

    def upstreams(self) -> Iterable[Upstream]:
        """All upstreams."""
        return (each.upstream for each in self._upstreams.values())

    def outgoing(self, model: str) -> str:
        """The name under which requests for this model go out."""
        return self.resolve(model).model

    def serves(self, upstream: Upstream, model: str) -> bool:
        """Whether a model that an upstream has is asked for there under its own name."""
        found = self._find(self._unaliased(model))
        return found is not None and found[0].upstream is upstream and found[1] == model

    async def close(self) -> None:
        for upstream in self.upstreams():
            await upstream.close()

    def check(self) -> None:
        """Raises SettingsError when an alias, a failover or the default leads nowhere."""
        for each in self._upstreams.values():
            for name in each.settings.failover:
                if name.partition("/")[0] not in self._upstreams:
                    raise SettingsError(f"{called(each.name)}: failover {name!r} names no upstream")
        named = {f"aliases.{alias}": name for alias, name in self._aliases.items()}
        if self._default is not None:
            named["default_model"] = self._default
        for what, name in named.items():
            try:
                known = self._find(self._unaliased(name)) is not None
            except HttpError as error:
                raise SettingsError(f"{what}: {error.message}") from error
            if not known:
                raise SettingsError(f"{what}: no upstream serves the model {name!r}")

    def _unaliased(self, model: str) -> str:
        name = model
        for _ in range(_MOST_ALIASES):
            if name not in self._aliases:
                return name
            name = self._aliases[name]
        raise HttpError(500, "The aliases lead in a circle.", code="internal_error")

    def _find(self, model: str) -> tuple[Configured, str] | None:
        pattern = best_match(model, self._served)
        if pattern is not None:
            return self._served[pattern], model
        name, _, rest = model.partition("/")
        if rest and name in self._upstreams:
            return self._upstreams[name], rest
        open_to_all = (each for each in self._upstreams.values() if not each.settings.models)
        first = next(open_to_all, None)
        return None if first is None else (first, model)

    def _fallbacks(self, upstream: Configured, model: str) -> Iterable[Target]:
        for entry in upstream.settings.failover:
            name, _, other = entry.partition("/")
            yield self._upstreams[name].target(other or model)

    def _only_model(self) -> str:
        if self._default is not None:
            return self._default
        named = [each.settings.model for each in self._upstreams.values()]
        if len(named) == 1 and named[0] is not None:
            return named[0]
        raise HttpError(400, "The request names no model.", code="missing_required_parameter", param="model")


def build_router(settings: Settings, sealer: Sealer) -> Router:
    """The routes of these settings. Raises SettingsError for an upstream that can't be used."""
    upstreams = [configured(each, settings, sealer) for each in settings.upstreams] or [demo(sealer)]
    names = [each.name for each in upstreams]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SettingsError(f"{called(twice)}: the name is there twice, give each its own")
    router = Router(upstreams, settings.aliases, settings.default_model)
    router.check()
    return router


def unknown_model(model: str) -> HttpError:
    """No upstream serves it (specification, "Errors")."""
    return HttpError(
        404,
        f"The model '{model[:80]}' does not exist.",
        code="model_not_found",
        error_type="invalid_request_error",
        param="model",
    )


def _patterns(each: Configured) -> Sequence[str]:
    return each.settings.models or [name for name in (each.settings.model,) if name is not None]
