"""Messages to systemd, which starts a service and wants to know whether it is alive: sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket

ADDRESS = "NOTIFY_SOCKET"  # the variable; systemd sets it
OF_SYSTEMD = (ADDRESS, "WATCHDOG_USEC", "WATCHDOG_PID")  # not for other processes


def notify(message: str) -> None:
    """Tell systemd something, such as READY=1; nothing if it did not ask for it."""
    address = os.environ.get(ADDRESS)
    if not address:
        return
    if address.startswith("@"):  # not in the file system
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        made.sendto(message.encode(), address)
