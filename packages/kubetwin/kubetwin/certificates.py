"""A certificate authority of the cluster's own, made anew at every start."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubetwin.model import times

VALID_DAYS = 3650
LOCAL_NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key, both PEM."""

    certificate_pem: str
    key_pem: str


def _name(common_name: str, organization: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certificate:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    return Certificate(public.decode(), private.decode())


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    start = times.now() - timedelta(minutes=5)  # clocks of a laptop and its containers differ a little
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=VALID_DAYS))
    )


def create_authority(common_name: str = "kubetwin") -> Certificate:
    """A new certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(common_name)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(subject, key)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(certificate, key)


def issue_certificate(
    authority: Certificate,
    common_name: str,
    *,
    organization: str = "",
    hosts: Sequence[str] = LOCAL_NAMES,
    client: bool = False,
) -> Certificate:
    """A certificate signed by the authority.

    Args:
        authority: From `create_authority`.
        common_name: Name of the holder (`kube-apiserver`, `system:node:local-0`).
        organization: Group of the holder, for clients.
        hosts: Names and addresses that a server is reached by.
        client: For a client instead of a server.
    """
    issuer_key = serialization.load_pem_private_key(authority.key_pem.encode(), password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key must be one that create_authority has made")
    issuer = x509.load_pem_x509_certificate(authority.certificate_pem.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
    authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _builder(_name(common_name, organization), key)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(authority_id, critical=False)
    )
    if not client:
        names = x509.SubjectAlternativeName([_alternative_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return _pem(builder.sign(issuer_key, hashes.SHA256()), key)
