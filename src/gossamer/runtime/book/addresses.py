"""Allowed addresses: without the run's key nothing leaves this host."""

import ipaddress
import re
import socket

from gossamer.errors import UserError

_ENDPOINT = re.compile(r"tcp://(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9.\-]{1,253}):([0-9]{1,5})")


def is_loopback(host: str) -> bool:
    """Say whether a host, an address or a name, is surely this one; names are not looked up."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bindable(address: str, key: bytes | None) -> str:
    """Return the one numeric address to listen on, or refuse: a reachable address needs a key."""
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
        numeric = ipaddress.ip_address(found[0][4][0])
    except (OSError, ValueError):
        raise UserError(f"cannot find the address '{address}'; give an IP address of this host") from None
    if numeric.is_unspecified:
        raise UserError(f"address '{address}' listens everywhere, allowed is one address; give the one peers can reach")
    if not numeric.is_loopback:
        refuse_without_key(address, key)
    return str(numeric)


def refuse_without_key(host: str, key: bytes | None) -> None:
    """Refuse a host other than this one without a key."""
    if key is None and not is_loopback(host):
        raise UserError(
            f"address '{host}' is not on this host alone, without a key only 127.0.0.1 is allowed; "
            "set GOSSAMER_KEY_FILE, or use 127.0.0.1"
        )


def join_endpoint(host: str, port: int) -> str:
    """Return 'host:port', with brackets around an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Split 'host:port'; an error says what is wrong."""
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise UserError(f"endpoint '{endpoint}' must be host:port with a port from 1 to 65535, such as 127.0.0.1:29400")
    return host.strip("[]"), int(port)


def connectable(endpoint: object, key: bytes | None) -> bool:
    """Say whether 'tcp://host:port', which came from outside, may be connected to."""
    match = _ENDPOINT.fullmatch(endpoint) if isinstance(endpoint, str) else None
    if match is None or not 0 < int(match[2]) < 65_536:
        return False
    return key is not None or is_loopback(match[1])
