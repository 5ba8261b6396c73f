"""Names and addresses of this machine."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine, and nothing else."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


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
