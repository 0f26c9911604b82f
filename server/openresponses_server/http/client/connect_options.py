"""Options of the connections to a server: TLS, a proxy, a Unix socket."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from openresponses_server.http.client.connection import Origin, RequestTarget, bracketed_host
from openresponses_server.http.client.proxies import Proxy, environment_proxy

WITHOUT_PROXY: Final = "none"
"""Given instead of a proxy's address: no proxy, whatever the environment says."""


class ConnectOptionsError(ValueError):
    """Options that can't be used."""

    def __init__(self, message: str, field: str = "") -> None:
        """`field`: the name of the wrong setting, "" for a variable of the environment."""
        super().__init__(message)
        self.field = field


class TlsOptions(NamedTuple):
    """The trusted certificates and the client certificate."""

    verify: bool | Literal["system"] = True
    """True: the authorities of OpenSSL (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others); "system": those of
    the operating system's own store; False: any certificate at all."""
    ca_file: str | None = None
    """A file in PEM with the authorities to trust instead."""
    client_cert: str | None = None
    """A file in PEM; without a `client_key` it has the key too."""
    client_key: str | None = None

    @property
    def described(self) -> str:
        """The trusted certificates in words for the operator."""
        if self.ca_file is not None:
            return f"the trusted authorities are those in {self.ca_file} (ca_file)"
        if self.verify == "system":
            return "the trusted authorities are those of the system (verify)"
        paths = ssl.get_default_verify_paths()
        for variable in (paths.openssl_cafile_env, paths.openssl_capath_env):
            if named := os.environ.get(variable):
                state = "" if os.access(named, os.R_OK) else ", which can't be read"
                return f"the trusted authorities are those in {named} ({variable}{state})"
        where = paths.cafile or paths.capath or f"{paths.openssl_cafile}, which does not exist"
        return f"the trusted authorities are those in {where}; ca_file names others"


DEFAULT_TLS_OPTIONS: Final = TlsOptions()


@lru_cache(maxsize=64)
def tls_context(tls_options: TlsOptions = DEFAULT_TLS_OPTIONS) -> ssl.SSLContext:
    """The context for these options, cached: reading the authorities takes many milliseconds. Raises
    ConnectOptionsError, which names the file that can't be used."""
    context = _verifying_context(tls_options)
    context.set_alpn_protocols(["http/1.1"])
    if tls_options.verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls_options.client_cert is not None:
        _load_client_certificate(context, tls_options.client_cert, tls_options.client_key)
    elif tls_options.client_key is not None:
        raise ConnectOptionsError("client_key needs a client_cert", "client_key")
    return context


def _verifying_context(tls_options: TlsOptions) -> ssl.SSLContext:
    if tls_options.ca_file is not None:
        if tls_options.verify is not True:
            raise ConnectOptionsError("verify must be true if there is a ca_file", "ca_file")
        try:
            return ssl.create_default_context(cafile=tls_options.ca_file)
        except OSError as error:  # an SSLError is one
            raise ConnectOptionsError(
                _file_error("ca_file", tls_options.ca_file, error, "certificates in PEM"), "ca_file"
            ) from error
    if tls_options.verify == "system":
        import truststore  # only where it is asked for

        context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return context
    return ssl.create_default_context()


def _load_client_certificate(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    """Present this certificate to servers that request one."""
    for field, path in (("client_cert", cert), ("client_key", key)):
        try:
            with open(path or cert, "rb"):
                pass
        except OSError as error:
            raise ConnectOptionsError(_file_error(field, path or cert, error, ""), field) from error
    try:
        context.load_cert_chain(cert, key, _no_password)
    except OSError as error:
        field = "client_cert" if key is None else "client_key"
        message = _file_error(
            field, key or cert, error, "the certificate and its key in PEM, which belong together"
        )
        raise ConnectOptionsError(message, field) from error


def _no_password() -> str:
    """Refuse an encrypted key, for which OpenSSL would prompt at the terminal."""
    raise ConnectOptionsError("the key is encrypted: give one without a password", "client_key")


def _file_error(field: str, path: str, error: OSError, content: str) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{field}: {path} does not contain {content}"
    return f"{field}: {path}: {error.strerror or 'it can not be read'}"


class ConnectOptions:
    """The options of all connections to one server."""

    def __init__(
        self,
        tls_options: TlsOptions = DEFAULT_TLS_OPTIONS,
        proxy: str | None = None,
        socket: str | None = None,
    ) -> None:
        """`proxy`: an address, `WITHOUT_PROXY`, or None for the proxy that the environment names. `socket`:
        the path of a Unix socket, used instead of host and port. Raises ConnectOptionsError."""
        self.tls_options = tls_options
        self.socket = socket
        self._proxy: Proxy | None = None
        self._uses_environment = proxy is None and socket is None
        if proxy is not None and proxy != WITHOUT_PROXY:
            if socket is not None:
                raise ConnectOptionsError("socket and proxy are mutually exclusive", "proxy")
            try:
                self._proxy = Proxy(proxy)
            except ValueError as error:
                raise ConnectOptionsError(f"proxy: {error}", "proxy") from None
        self._environment_proxies: dict[Origin, Proxy | None] = {}

    def check(self, origin: Origin) -> Proxy | None:
        """Load what a connection to this origin needs; returns its proxy. Raises ConnectOptionsError."""
        proxy = self.proxy_of(origin)
        if origin.tls:
            tls_context(self.tls_options)
        elif self.tls_options.client_cert is not None:
            raise ConnectOptionsError("client_cert needs an address with https://", "client_cert")
        if proxy is not None and proxy.origin.tls:
            tls_context(self.proxy_tls_options)
        return proxy

    def proxy_of(self, origin: Origin) -> Proxy | None:
        """The proxy for this origin. Raises ConnectOptionsError."""
        if not self._uses_environment:
            return self._proxy
        if origin not in self._environment_proxies:
            try:
                self._environment_proxies[origin] = environment_proxy(origin)
            except ValueError as error:
                raise ConnectOptionsError(str(error)) from None
        return self._environment_proxies[origin]

    @property
    def proxy_tls_options(self) -> TlsOptions:
        """The options for TLS with the proxy itself: always verified, without a client certificate."""
        return TlsOptions(self.tls_options.verify or True, self.tls_options.ca_file)

    def target(self, target: RequestTarget) -> RequestTarget:
        """The target for the request line. A proxy that forwards the request itself gets the absolute form
        (RFC 9112, 3.2.2) and its credentials."""
        if target.origin.tls:
            return target
        proxy = self.proxy_of(target.origin)
        if proxy is None:
            return target
        origin = target.origin
        whole = f"http://{bracketed_host(origin.host)}:{origin.port}{target.target}"
        shown = (("proxy-authorization", proxy.authorization),) if proxy.authorization else ()
        return RequestTarget(origin, whole, (*target.headers, *shown))
