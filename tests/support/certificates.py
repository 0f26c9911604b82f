"""A private certificate authority for servers on this machine and for clients."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAMES = ("localhost", "127.0.0.1", "model.example")


class Authority:
    """The authority's own certificate is `file`; the certificates that it issues are in the same folder."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        signed = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def certificate(
        self, name: str, names: Sequence[str] = NAMES, *, apart: bool = False, password: str = ""
    ) -> Path:
        """Return a file in PEM with a certificate and its key; with `apart`, the key is in `NAME.key` in the
        same folder."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        listed = x509.SubjectAlternativeName([_general(each) for each in names])
        of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = (
            self._builder(subject, key)
            .add_extension(listed, critical=False)
            .add_extension(of_issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            hidden = serialization.BestAvailableEncryption(password.encode())
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
        path = self._folder / f"{name}.pem"
        shown = signed.public_bytes(serialization.Encoding.PEM)
        path.write_bytes(shown if apart else shown + secret)
        if apart:
            path.with_suffix(".key").write_bytes(secret)
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
