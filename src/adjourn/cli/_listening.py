"""Sockets that a server listens on, made before anything else, so that a mistake is one line."""

from __future__ import annotations

import errno
import os
import socket

from adjourn.errors import UsageError


def bound(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address that a host name has, all bound to one port; nobody can connect yet.

    Raises:
        UsageError: this machine, or this user, cannot listen there.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            # With port 0, the first one chooses.
            chosen = sockets[0].getsockname()[1] if sockets else port
            sockets.append(_bound(family, (address[0], chosen, *address[2:])))
    except OSError as error:
        for each in sockets:
            each.close()
        raise UsageError(_refusal(error, host, port)) from error
    return sockets


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int, *tuple[int, ...]]]]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise UsageError(f"--host {host}: there is no such address. Use 127.0.0.1, or one of this machine.") from error
    known = {(family, address[0]): address for family, _, _, _, address in found if _exists(family)}
    return [(family, address) for (family, _), address in known.items()]  # pyright: ignore[reportReturnType]  # addresses of hosts


def _exists(family: socket.AddressFamily) -> bool:
    return family != socket.AF_INET6 or socket.has_dualstack_ipv6() or socket.has_ipv6


def _bound(family: socket.AddressFamily, address: tuple[str, int, *tuple[int, ...]]) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.bind(address)
    except BaseException:
        found.close()
        raise
    return found


def _refusal(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"--port {port}: somebody listens there already. Stop that one, or choose another port; 0 is a free one."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"--port {port}: this user may not listen there. Choose a port from 1024 on, with a proxy before it."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host}: this machine does not have that address. Use 127.0.0.1, or 0.0.0.0 for all it has."
    return f"--host {host} --port {port}: nobody can listen there: {error.strerror or error}."


def url_of(host: str, sockets: list[socket.socket]) -> str:
    """Return where to find who listens."""
    return f"http://{f'[{host}]' if ':' in host else host}:{sockets[0].getsockname()[1]}"
