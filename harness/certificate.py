"""Certificates for peers that speak TLS: self-signed for localhost, or of an authority for servers of SIP domains."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Write certificate and key as PEM files into ``directory``; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    certificate = _valid_now(name, name, key.public_key()).add_extension(
        x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
    )
    certificate_file, key_file = directory / "certificate.pem", directory / "key.pem"
    certificate_file.write_bytes(_pem(certificate.sign(key, hashes.SHA256())))
    key_file.write_bytes(_key_pem(key))
    return certificate_file, key_file


class Authority:
    """Certificate authority, whose certificate is in ``file``."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "authority.pem"
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        certificate = _valid_now(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.file.write_bytes(_pem(certificate.sign(self._key, hashes.SHA256())))

    def certify(self, name: str, domain: str, address: str) -> Path:
        """Return the file ``name`` of a server's certificate and key, for a SIP domain and an IP address.

        The certificate is for both ends of a connection, as servers of domains need it.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(domain), x509.IPAddress(ipaddress.ip_address(address))]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, domain)])
        certificate = (
            _valid_now(subject, self._name, key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        file = self._directory / f"{name}.pem"
        file.touch(0o600)
        file.write_bytes(_pem(certificate) + _key_pem(key))
        return file


def _valid_now(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    """Return a certificate without names, valid from yesterday to tomorrow."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def client_context(certificate: Path) -> ssl.SSLContext:
    """Return the context of a client that trusts only this certificate."""
    return ssl.create_default_context(cafile=str(certificate))
