"""The environment of a rank whose launcher adds to it: what is changed, and what is left alone."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["changes", "changes_on_nodes"]

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def changes(environment: Mapping[str, str]) -> dict[str, str | None]:
    """How a rank's environment differs from this process's: what the launcher adds must stay.

    >>> changes({**os.environ, "RANK": "2"})
    {'RANK': '2'}
    """
    different = {n: value for n, value in environment.items() if os.environ.get(n) != value}
    return {**different, **{name: None for name in os.environ if name not in environment}}


def changes_on_nodes(
    environment: Mapping[str, str], hosts: tuple[str, ...], rank: int
) -> dict[str, str | None]:
    """The same on the nodes of a cluster, where several ranks may share a node."""
    together = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    told = changes(environment)
    told["LOCAL_RANK"] = str(together.index(rank))
    told["LOCAL_WORLD_SIZE"] = str(len(together))
    if all(host.startswith("127.") for host in hosts):
        # A cluster of one machine, as in a test: its ranks keep to the loopback.
        told |= {name: "lo" for name in INTERFACES if name not in os.environ}
    return told
