"""An authority, and certificates that it signed, as files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    **dict.fromkeys(
        (
            *("digital_signature", "content_commitment", "key_encipherment"),
            *("data_encipherment", "key_agreement", "encipher_only", "decipher_only"),
        ),
        False,
    ),
)


@dataclass(frozen=True)
class Signed:
    certificate: Path
    key: Path


class Authority:
    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        made = made.add_extension(_SIGNS, critical=True)
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(self._signed(made))

    def sign(self, name: str, password: bytes | None = None) -> Signed:
        """For a server on 127.0.0.1, or a client; the key encrypted where there is a password."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(subject, key.public_key())
        local = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        made = made.add_extension(local, critical=False)
        signed = Signed(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        signed.certificate.write_bytes(self._signed(made))
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
        signed.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return signed

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            # Python 3.13 asks for both.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )

    def _signed(self, made: x509.CertificateBuilder) -> bytes:
        return made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
