"""What both shells inject into core: clocks, chance, locks, and who this process is."""

from __future__ import annotations

import os
import random
import socket
import struct
import sys
import threading
import time
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakSet, ref

from rocketwire.core.faults.selection import Selector
from rocketwire.core.instance import Surroundings

_random = random.Random()
_address: bytes | None = None
#: Those of all instances.
_locks: WeakSet[Any] = WeakSet()


def surroundings() -> Surroundings:
    """The real ones, for one instance of this process.

    Its locks may be taken again by the thread that holds them: a signal handler, a hook or a finalizer
    may run while they are held, and use the same client.
    """
    # No WeakSet: every hand-over to another thread asks for them, and going through one takes 4 µs.
    locks: list[ref[Any]] = []

    def make_lock() -> AbstractContextManager[Any]:
        lock = threading.RLock()
        locks.append(ref(lock, locks.remove))
        _locks.add(lock)
        return lock

    def holds_lock() -> bool:
        for reference in locks[:]:
            lock = reference()
            if lock is not None and lock._is_owned():  # noqa: SLF001 - there is no other way
                return True
        return False

    return Surroundings(
        clock=time.monotonic,
        wall=time.time,
        random=_random,
        make_lock=make_lock,
        holds_lock=holds_lock,
        address=local_address(),
        pid=os.getpid(),
        thread=threading.get_ident,
        named_selector=_named_selector,
    )


def _named_selector(name: str) -> Selector:
    from rocketwire.selectors import named  # most programs name none

    return named(name)


def local_address() -> bytes:
    """The IPv4 address by which we are known in ids: a public one before a private one."""
    global _address  # noqa: PLW0603 - looked up once per process
    if _address is None:
        found = sorted(_interface_addresses(), key=_privacy)
        _address = found[0] if found else b"\x7f\x00\x00\x01"
    return _address


def _privacy(address: bytes) -> int:
    if address[0] == 127:
        return 2
    is_private = (
        address[0] == 10
        or (address[0] == 172 and 16 <= address[1] < 32)
        or address[:2] == b"\xc0\xa8"
    )
    return 1 if is_private else 0


def _interface_addresses() -> list[bytes]:
    """IPv4 addresses of this machine, from the kernel: no look-up, no packet."""
    try:
        import fcntl
    except ImportError:  # Windows
        return []
    code = 0xC0206921 if sys.platform == "darwin" else 0x8915
    found: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, code, struct.pack("256s", name.encode()[:15]))
            except OSError:  # an interface without an IPv4 address
                continue
            found.append(answer[20:24])
    return found


def make_client_id(instance_name: str | None, unit_name: str | None) -> str:
    """A client id that is unique, also in containers where the pid is 1 and after a fork."""
    address = ".".join(str(byte) for byte in local_address())
    name = instance_name or f"{os.getpid()}#{int.from_bytes(os.urandom(7), 'big')}"
    return f"{address}@{name}" + (f"@{unit_name}" if unit_name else "")


def _renew() -> None:
    """In a forked child: other chance, and locks that nobody holds but the code that forked."""
    _random.seed()
    for lock in list(_locks):
        if not lock._is_owned():  # noqa: SLF001 - else by a thread that is the parent's alone
            lock._at_fork_reinit()  # noqa: SLF001 - what Python does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
