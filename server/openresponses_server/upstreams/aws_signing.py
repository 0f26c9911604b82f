"""Requests that are signed as Amazon's services require (Signature Version 4), with credentials that expire.

botocore finds the credentials and signs (extra `[bedrock]`), nothing else of it is used. They come from the
operator's environment and files only: variables, profiles with their roles, a web identity, a container's
endpoint. The metadata service of an instance is not asked, since no setting names its address.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import structlog

from openresponses_server.errors import UpstreamError
from openresponses_server.http.client.connection import request_target_of
from openresponses_server.settings import AwsSettings, SettingsError
from openresponses_server.tasks import off_loop, wait_on_thread
from openresponses_server.upstreams.base import called

_SCHEME: Final = "aws:"
_METADATA_SERVICE: Final = "iam-role"  # botocore's name for the provider that asks it
_CHECKED_AFTER: Final = 60.0  # seconds; botocore begins to renew credentials minutes before they expire
_FAILED_AGAIN: Final = 1.0  # seconds for which a failure is answered without looking again
_KEPT: Final = 4  # credentials that texts of the upstream are cleaned of
_REGION_IN_HOST: Final = re.compile(
    r"(?:^|\.)([a-z]{2,4}(?:-[a-z]+){1,3}-[0-9]{1,2})\.(?:amazonaws\.|api\.aws)"
)
_SIGNED: Final = ("content-type",)
_T = TypeVar("_T")
_log = structlog.get_logger(__name__)

Sign = Callable[[str, str, Mapping[str, str], bytes], Awaitable[dict[str, str]]]
"""Return the headers that sign a request, by its method, address, headers and body."""


class Frozen(NamedTuple):
    """The credentials at one time."""

    access_key: str
    secret_key: str
    token: str | None


class AwsSigner:
    """Signs requests to one service. `find` returns the present credentials, as botocore does it, and may
    take long; it is called on a thread, once for all requests that wait for it."""

    def __init__(
        self,
        upstream: str,
        service: str,
        region: str,
        find: Callable[[], Frozen | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.upstream = upstream
        self.service = service
        self.region = region
        self.secrets: list[str] = []
        """The secrets of the latest credentials, which no text of the upstream may show."""
        self._find = find
        self._clock = clock
        self._kept: Frozen | None = None
        self._kept_until = 0.0
        self._failed_until = 0.0
        self._finding: asyncio.Task[Frozen] | None = None

    @property
    def account(self) -> str:
        """A text in which signers with different credentials differ, as far as those are known."""
        return f"{self.service} {self.region} {self._kept.access_key if self._kept else ''}"

    def __str__(self) -> str:
        return f"credentials for {self.service} in {self.region}"

    async def try_with(self, work: Callable[[Sign], Awaitable[_T]], *, again: bool = True) -> _T:
        """Call `work` with the credentials, and once more if the upstream refuses them and there are others
        by then. Raises what `work` raises, and UpstreamError if there are no credentials."""
        credentials = await self._credentials()
        try:
            return await work(partial(self._sign, credentials))
        except UpstreamError as error:
            if error.code != UpstreamError.AUTHENTICATION:
                raise
            self._kept_until = 0.0
            other = await self._credentials()
            if other == credentials or not again:
                raise
        return await work(partial(self._sign, other))

    async def _credentials(self) -> Frozen:
        now = self._clock()
        if self._kept is not None and now < self._kept_until:
            return self._kept
        if self._finding is None:
            if now < self._failed_until:
                raise self._error()
            self._finding = asyncio.create_task(self._look())
            self._finding.add_done_callback(self._end)
        # each request may be given up alone
        return await asyncio.shield(self._finding)

    async def _look(self) -> Frozen:
        try:
            credentials = await wait_on_thread(self._find)
        except Exception as error:  # whatever botocore raises, with texts that may have secrets
            _log.warning("upstream.no_credentials", upstream=self.upstream, cause=type(error).__name__)
            raise self._error() from error
        if credentials is None:
            _log.warning("upstream.no_credentials", upstream=self.upstream, cause="there are none")
            raise self._error()
        self._kept, self._kept_until = credentials, self._clock() + _CHECKED_AFTER
        own = [each for each in (credentials.secret_key, credentials.token) if each]
        self.secrets = [*dict.fromkeys([*self.secrets, *own])][-2 * _KEPT :]
        return credentials

    def _end(self, finding: asyncio.Task[Frozen]) -> None:
        self._finding = None
        if not finding.cancelled() and finding.exception() is not None:
            self._failed_until = self._clock() + _FAILED_AGAIN

    def _error(self) -> UpstreamError:
        return UpstreamError(
            502,
            f"this server has no credentials for the {called(self.upstream)} at the moment",
            code=UpstreamError.UNREACHABLE,
            cause="no credentials were found",
        )

    async def _sign(
        self, credentials: Frozen, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, str]:
        return await off_loop(len(body), partial(self._signed, credentials, method, url, headers, body))

    def _signed(
        self, credentials: Frozen, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        # what is sent: host and path as the client writes them
        target = request_target_of(url)
        sent = f"{urlsplit(url).scheme}://{dict(target.headers)['host']}{target.target}"
        signed = {name: headers[name] for name in _SIGNED if name in headers}
        # the body's digest is a header of its own, so that it is compared before anything else
        signed["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
        request = AWSRequest(
            method, sent, headers={**signed, "host": dict(target.headers)["host"]}, data=body
        )
        SigV4Auth(Credentials(*credentials), self.service, self.region).add_auth(request)
        request_headers = {name.lower(): str(value) for name, value in request.headers.items()}
        return {name: value for name, value in request_headers.items() if name not in ("host", *_SIGNED)}

    async def close(self) -> None:
        """Stop waiting for credentials."""
        if self._finding is not None:
            self._finding.cancel()


def signer_of(signature: str, upstream: str, address: str, settings: AwsSettings) -> AwsSigner:
    """Return the signer of requests to this address. Raises SettingsError about `.aws`."""
    try:
        from botocore.credentials import create_credential_resolver
        from botocore.session import Session
    except ImportError as error:
        raise SettingsError(
            f"{called(upstream)}: without a key its requests are signed, which needs {error.name}: "
            "pip install 'openresponses-server[bedrock]'",
            ".aws",
        ) from error
    session = Session(profile=settings.profile)
    try:
        named = _REGION_IN_HOST.search(urlsplit(address).hostname or "")
        usual = os.environ.get("AWS_REGION") or session.get_config_variable("region")
        region = settings.region or (named[1] if named else usual)
        resolver = create_credential_resolver(session)
    except Exception as error:  # a profile that is not there, a file that can't be read
        raise SettingsError(f"{called(upstream)}: {type(error).__name__}: {error}", ".aws") from error
    if not region:
        raise SettingsError(
            f"{called(upstream)}: no region is named, nor is one in its address", ".aws.region"
        )
    resolver.remove(_METADATA_SERVICE)
    return AwsSigner(upstream, signature.removeprefix(_SCHEME), region, _Finder(resolver))


class _Finder:
    """Finds the present credentials; botocore renews those that it has found."""

    def __init__(self, resolver: Any) -> None:
        self._resolver = resolver
        self._found: Any = None

    def __call__(self) -> Frozen | None:
        if self._found is None:
            self._found = self._resolver.load_credentials()
        if self._found is None:
            return None
        credentials = self._found.get_frozen_credentials()
        return Frozen(credentials.access_key, credentials.secret_key, credentials.token)
