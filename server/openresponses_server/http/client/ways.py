"""How a server is reached: which certificates are trusted and shown, and what stands in between."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from openresponses_server.http.client.connection import Origin, RequestTarget, named_host
from openresponses_server.http.client.proxies import Proxy, environment_proxy

NO_PROXY: Final = "none"
"""In the place of a proxy's address: none, whatever the environment says."""


class WayError(ValueError):
    """It can't be used. `field` is the setting that it is about, "" for what the environment says."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class Trust(NamedTuple):
    """Certificates: those that upstreams are known by, and the one that they are shown.

    `verify`: True for the authorities of OpenSSL (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others), "system"
    for those of the operating system's own store, False for any certificate at all. `ca_file` has authorities
    that are trusted instead. `client_cert` and `client_key` are files in PEM; without the second one the
    first has both."""

    verify: bool | Literal["system"] = True
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None

    @property
    def described(self) -> str:
        """What is trusted, for the operator."""
        if self.ca_file is not None:
            return f"trusted are the authorities in {self.ca_file} (ca_file)"
        if self.verify == "system":
            return "trusted are the authorities of the system (verify)"
        paths = ssl.get_default_verify_paths()
        for variable in (paths.openssl_cafile_env, paths.openssl_capath_env):
            if named := os.environ.get(variable):
                state = "" if os.access(named, os.R_OK) else ", which can't be read"
                return f"trusted are the authorities in {named} ({variable}{state})"
        where = paths.cafile or paths.capath or f"{paths.openssl_cafile}, which is not there"
        return f"trusted are the authorities in {where}; ca_file names others"


USUAL: Final = Trust()


@lru_cache(maxsize=64)
def tls_context(trust: Trust = USUAL) -> ssl.SSLContext:
    """Made once for all that trust the same: to read the authorities takes many milliseconds. Raises WayError
    naming the file that can't be used."""
    context = _trusting(trust)
    context.set_alpn_protocols(["http/1.1"])
    if trust.verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if trust.client_cert is not None:
        _show(context, trust.client_cert, trust.client_key)
    elif trust.client_key is not None:
        raise WayError("client_key is the key of a client_cert, which is missing", "client_key")
    return context


def _trusting(trust: Trust) -> ssl.SSLContext:
    if trust.ca_file is not None:
        if trust.verify is not True:
            raise WayError("ca_file says what is trusted: it takes no other verify than true", "ca_file")
        try:
            return ssl.create_default_context(cafile=trust.ca_file)
        except OSError as error:  # an SSLError is one
            raise WayError(
                _unread("ca_file", trust.ca_file, error, "certificates in PEM"), "ca_file"
            ) from error
    if trust.verify == "system":
        import truststore  # only where it is asked for

        context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return context
    return ssl.create_default_context()


def _show(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    """Have this certificate shown to who asks for one."""
    for field, path in (("client_cert", cert), ("client_key", key)):
        try:
            with open(path or cert, "rb"):
                pass
        except OSError as error:
            raise WayError(_unread(field, path or cert, error, ""), field) from error
    try:
        context.load_cert_chain(cert, key, _no_password)
    except OSError as error:
        field = "client_cert" if key is None else "client_key"
        what = _unread(field, key or cert, error, "the certificate and its key in PEM, which belong together")
        raise WayError(what, field) from error


def _no_password() -> str:
    """OpenSSL would ask for it at the terminal."""
    raise WayError("the key is encrypted: give one without a password", "client_key")


def _unread(field: str, path: str, error: OSError, wanted: str) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{field}: {path} does not hold {wanted}"
    return f"{field}: {path}: {error.strerror or 'it can not be read'}"


class Way:
    """To one upstream. `proxy` is an address, `NO_PROXY`, or None for what the environment says; `socket` the
    path of a Unix socket, which stands for host and port. Raises WayError."""

    def __init__(self, trust: Trust = USUAL, proxy: str | None = None, socket: str | None = None) -> None:
        self.trust = trust
        self.socket = socket
        self._named: Proxy | None = None
        self._environment = proxy is None and socket is None
        if proxy is not None and proxy != NO_PROXY:
            if socket is not None:
                raise WayError("socket and proxy exclude each other", "proxy")
            try:
                self._named = Proxy(proxy)
            except ValueError as error:
                raise WayError(f"proxy: {error}", "proxy") from None
        self._known: dict[Origin, Proxy | None] = {}

    def check(self, origin: Origin) -> Proxy | None:
        """The proxy on the way to this origin; what else it takes is read. Raises WayError."""
        proxy = self.proxy_of(origin)
        if origin.tls:
            tls_context(self.trust)
        elif self.trust.client_cert is not None:
            raise WayError("client_cert is for an address with https://", "client_cert")
        if proxy is not None and proxy.origin.tls:
            tls_context(self.proxy_trust)
        return proxy

    def proxy_of(self, origin: Origin) -> Proxy | None:
        """The proxy that stands before this origin. Raises WayError."""
        if not self._environment:
            return self._named
        if origin not in self._known:
            try:
                self._known[origin] = environment_proxy(origin)
            except ValueError as error:
                raise WayError(str(error)) from None
        return self._known[origin]

    @property
    def proxy_trust(self) -> Trust:
        """How a proxy with TLS is known: it is shown no certificate, and is always verified."""
        return Trust(self.trust.verify or True, self.trust.ca_file)

    def target(self, target: RequestTarget) -> RequestTarget:
        """The same place as a request names it on this way: whole to a proxy that passes the request itself
        on (RFC 9112, 3.2.2), which is shown who asks."""
        if target.origin.tls:
            return target
        proxy = self.proxy_of(target.origin)
        if proxy is None:
            return target
        origin = target.origin
        whole = f"http://{named_host(origin.host)}:{origin.port}{target.target}"
        shown = (("proxy-authorization", proxy.authorization),) if proxy.authorization else ()
        return RequestTarget(origin, whole, (*target.headers, *shown))
