"""Addresses that messages may go to: those of the public internet, unless the operator says otherwise.

Names are looked up once, all of their addresses are checked, and the connection is made to one that was: whoever
controls a name cannot point it at this machine, or into its network, between the check and the connection.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

_TRANSLATED = IPv6Network("64:ff9b::/96")
"""NAT64: the last four bytes are the IPv4 address that is meant."""

_REFUSED = (
    ip_network("168.63.129.16/32"),  # the host of virtual machines on Azure
    ip_network("192.0.0.0/24"),
    ip_network("192.88.99.0/24"),  # 6to4 relays
    ip_network("2002::/16"),  # 6to4, which leads to any IPv4 address
    ip_network("2001::/23"),  # Teredo and other assignments that are not hosts
    ip_network("64:ff9b:1::/48"),
    ip_network("100::/64"),
    ip_network("5f00::/16"),
    ip_network("3fff::/20"),  # for documentation
)
_ISATAP = (bytes.fromhex("00005efe"), bytes.fromhex("02005efe"))


class Forbidden(Exception):
    """A name leads to an address that messages may not go to."""


def is_public(text: str) -> bool:
    """Return whether an address is one of the public internet; also what it leads to, if it has another one in it."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner = _inside(address)
        if inner is not None:
            return is_public(str(inner))
    if any(address.version == net.version and address in net for net in _REFUSED):
        return False
    if isinstance(address, IPv6Address) and address.is_site_local:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _inside(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that packets to this one end up at, if there is one."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _TRANSLATED or address.packed[8:12] in _ISATAP:
        return IPv4Address(address.packed[12:])
    return None


async def addresses_of(host: str, port: int, *, allow_private: bool) -> list[str]:
    """Return the addresses of a host, all of them checked.

    Raises:
        Forbidden: one of them is not public.
        OSError: the name is not known.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
    if not allow_private:
        for each in addresses:
            if not is_public(each):
                raise Forbidden(
                    f"its host has the address {each}, which is not public. If that is meant, set allow_private"
                )
    return addresses
