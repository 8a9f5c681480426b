"""Connections go to the address that was checked, and the certificate must still be that of the name."""

import asyncio
import datetime as dt
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from adjourn.webhooks import Webhook, Webhooks

from .receiving import SECRET, Receiver

NAME = "hooks.example.com"


def certificate(folder: Path, name: str) -> Path:
    """A certificate for a name, signed by itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names: list[x509.GeneralName] = [x509.DNSName(name)]
    if name[0].isdigit():
        names = [x509.IPAddress(ipaddress.ip_address(name))]
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are looked up, all of which lead to this machine."""
    found: list[str] = []
    ask = socket.getaddrinfo

    def looked_up(host: str, *rest: object, **more: object) -> object:
        found.append(host)
        return ask("127.0.0.1", *rest, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return found


async def sent(receiver: Receiver) -> str | None:
    """Why a message to the name did not arrive."""
    url = f"https://{NAME}:{receiver.port}/hook"
    hooks = Webhooks([Webhook(url, secret=SECRET, allow_private=True)])
    (outcome,) = (await hooks.test()).values()
    return outcome


@pytest.mark.parametrize("name", [NAME, "other.example.com", "127.0.0.1"])
async def test_the_certificate_is_that_of_the_name(
    name: str, receiver: Receiver, lookups: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):  # rule V12, attack 9
    path = certificate(tmp_path, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    shown: list[str | None] = []
    context.sni_callback = lambda _socket, server_name, _context: shown.append(server_name)
    receiver.server.socket = context.wrap_socket(receiver.server.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    failure = await sent(receiver)
    assert shown == [NAME]
    assert lookups[0] == NAME
    assert NAME not in lookups[1:]  # It is looked up once: the connection is to what was checked.
    if name == NAME:
        assert failure is None
        received = await asyncio.to_thread(receiver.next)
        assert received.headers["host"] == f"{NAME}:{receiver.port}"
    else:
        assert "certificate" in (failure or "").lower()
        assert receiver.has_none()
