"""A replica's address and trust settings -> the endpoint its connections are made to."""

from __future__ import annotations

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.ssl import (
    Certificate,
    PrivateCertificate,
    optionsForClientTLS,
    trustRootFromCertificates,
)
from twisted.python.filepath import FilePath

from ..config.model import ReplicaConfig
from ..errors import ConfigError
from .handshake import HandshakeEndpoint


def endpoint_for(reactor: IReactorTime, replica: ReplicaConfig, timeout: float) -> IStreamClientEndpoint:
    """Build the endpoint for a replica; ``https`` ones verify the certificate against the name or address.

    A refusal by a literal address is told at once; a name is tried address by address, 0.3 s apart.

    :param timeout: seconds one connection attempt may take.
    :raises ConfigError: a certificate file cannot be used.
    """
    endpoint: IStreamClientEndpoint
    if isIPAddress(replica.host):
        endpoint = TCP4ClientEndpoint(reactor, replica.host, replica.port, timeout)
    elif isIPv6Address(replica.host):
        endpoint = TCP6ClientEndpoint(reactor, replica.host, replica.port, timeout)
    else:
        endpoint = HostnameEndpoint(reactor, replica.host, replica.port, timeout)
    if replica.scheme == "http":
        return endpoint
    trust = None
    if replica.ca_file is not None:
        pem = _read(replica, replica.ca_file)
        blocks = pem.split(b"-----END CERTIFICATE-----")[:-1]
        try:
            trust = trustRootFromCertificates(
                [Certificate.loadPEM(block + b"-----END CERTIFICATE-----\n") for block in blocks]
            )
        except Exception as error:
            raise _unusable(replica, replica.ca_file, str(error) or "not PEM certificates") from error
        if not blocks:
            raise _unusable(replica, replica.ca_file, "it holds no PEM certificate")
    own = None
    if replica.client_cert is not None:
        pem = _read(replica, replica.client_cert)
        try:
            own = PrivateCertificate.loadPEM(pem)
        except Exception as error:
            why = str(error) or "it must hold a PEM certificate and its private key"
            raise _unusable(replica, replica.client_cert, why) from error
    return HandshakeEndpoint(wrapClientTLS(optionsForClientTLS(replica.host, trust, own), endpoint))


def _read(replica: ReplicaConfig, path: str) -> bytes:
    try:
        return FilePath(path).getContent()
    except OSError as error:
        raise _unusable(replica, path, error.strerror or str(error)) from error


def _unusable(replica: ReplicaConfig, path: str, why: str) -> ConfigError:
    return ConfigError((f"replica {replica.name}: {path}: {why}",))
