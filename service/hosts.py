"""Names and addresses of this machine."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine, and nothing else."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def checked_proxies(proxies: str | None) -> str | None:
    """Addresses and networks, comma separated, or ``*``: uvicorn takes anything else for a name, which no caller's address ever is.

    Raises:
        ValueError: one is neither.
    """
    for each in map(str.strip, (proxies or "").split(",")):
        try:
            if each and proxies != "*":
                ipaddress.ip_network(each)
        except ValueError as error:
            raise ValueError(
                f"{error}; accepted: addresses and networks such as 10.0.0.7,10.1.0.0/16, or * for any caller"
            ) from None
    return proxies


def connectable(host: str) -> str:
    """Where this machine reaches what listens on an address: one that means all of them is none to connect to.

    Example:
        >>> connectable("0.0.0.0"), connectable("::"), connectable("10.0.0.7")
        ('127.0.0.1', '::1', '10.0.0.7')
    """
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - only compared


def url_of(host: str, port: int) -> str:
    """The address of what listens there; an address of IPv6 stands in brackets.

    Example:
        >>> url_of("127.0.0.1", 8321), url_of("::1", 8321)
        ('http://127.0.0.1:8321', 'http://[::1]:8321')
    """
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def leads_here(url: str) -> bool:
    """Whether what answers at a URL runs on this machine: a proxy of the environment has no way there, and must see no token.

    Example:
        >>> leads_here("http://[::1]:8265"), leads_here("https://api.example.org")
        (True, False)
    """
    return is_loopback(urlsplit(url).hostname or "")


def is_only_here(host: str) -> bool:
    """Whether no other machine can reach this one by that name: it is a loopback, or no address at all.

    Example:
        >>> is_only_here("127.0.0.1"), is_only_here("0.0.0.0"), is_only_here("api.example.org")
        (True, True, False)
    """
    try:
        return is_loopback(host) or ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False
