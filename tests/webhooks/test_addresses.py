"""Where messages may go: to public addresses, by whatever name they are called, unless the operator says otherwise."""

import contextlib
import socket
import sys
from collections.abc import Generator

import pytest

from adjourn.webhooks import Webhook, Webhooks
from adjourn.webhooks._addresses import Forbidden, addresses_of, is_public

from .receiving import SECRET, Receiver

PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.8.9.10",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "100::1",
    "5f00::1",
    "3fff::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::808:808",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2002:808:808::",
    "2001:0:7f00:1::1",
    "2001:db8::5efe:127.0.0.1",
    "2600::5efe:10.0.0.1",
    "2600::200:5efe:192.168.0.1",
]

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.255.255",
    "172.32.0.1",
    "192.167.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2600::5efe:8.8.8.8",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_of_networks_behind_us_are_not_public(address: str):  # rule V12, attack 9
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_internet_are_public(address: str):  # rule V12
    assert is_public(address)


NAMES = ["127.0.0.1", "localhost", "localhost.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "::1", "0"]


@pytest.mark.parametrize("name", NAMES)
async def test_no_way_to_write_this_machine_leads_here(name: str):  # rule V12, attack 9
    try:
        addresses = await addresses_of(name, 443, allow_private=True)
    except OSError:
        return  # This system does not know it at all.
    assert not any(is_public(each) for each in addresses)
    with pytest.raises(Forbidden, match="allow_private"):
        await addresses_of(name, 443, allow_private=False)


async def test_one_private_address_among_public_ones_is_enough(
    monkeypatch: pytest.MonkeyPatch,
):  # rule V12, attack 9
    def looked_up(*_: object, **__: object) -> list[object]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("93.184.216.34", 443)), (*kind, ("10.0.0.1", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    with pytest.raises(Forbidden, match=r"10\.0\.0\.1"):
        await addresses_of("hooks.example.com", 443, allow_private=False)
    assert await addresses_of("hooks.example.com", 443, allow_private=True) == ["93.184.216.34", "10.0.0.1"]


@contextlib.contextmanager
def black_hole(host: str, port: int) -> Generator[None]:
    """An address whose connections are never made: its queue of them is full."""
    with contextlib.ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.bind((host, port))
        hole.listen(0)
        for _ in range(16):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((host, port))
        yield


@pytest.mark.skipif(sys.platform != "linux", reason="only there, all of 127.0.0.0/8 is this machine")
async def test_an_address_that_never_answers_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch):  # rule V12
    def looked_up(_: str, port: int, *__: object, **___: object) -> list[object]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("127.0.0.2", port)), (*kind, ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setattr("adjourn.webhooks._sending.CONNECT", 0.1)
    with Receiver() as receiver, black_hole("127.0.0.2", receiver.port):
        url = f"http://hooks.example.com:{receiver.port}/hook"
        webhook = Webhook(url, secret=SECRET, name="desk", timeout=60, allow_private=True, allow_http=True)
        assert await Webhooks([webhook]).test() == {"desk": None}
        assert receiver.next().type == "test"
