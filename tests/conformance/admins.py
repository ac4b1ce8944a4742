"""Admin clients, blocking or asyncio, behind one face."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from rocketwire import Admin, AsyncAdmin

LIMIT = 60.0


class BlockingAdmin:
    """An ``Admin``; every method of it can be called here."""

    name = "blocking"

    def __init__(self, name_server: str, **options: Any) -> None:
        self.admin: Any = Admin(name_server, **options)

    def start(self) -> Any:
        assert self.admin.start() is self.admin
        return self

    def shutdown(self) -> None:
        self.admin.shutdown()

    close = shutdown

    def __getattr__(self, method: str) -> Any:
        return getattr(self.admin, method)


class AioAdmin:
    """An ``AsyncAdmin`` on an event loop in a thread."""

    name = "asyncio"

    def __init__(self, name_server: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.admin: Any = AsyncAdmin(name_server, **options)

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT)

    def start(self) -> Any:
        assert self.run(self.admin.start()) is self.admin
        return self

    def shutdown(self) -> None:
        self.run(self.admin.shutdown())

    def close(self) -> None:
        self.shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **how: Any) -> Any:
            found = getattr(self.admin, method)(*args, **how)
            if hasattr(found, "__aiter__"):
                return self.run(_gather(found))
            return self.run(found)

        return call


async def _gather(items: Any) -> list[Any]:
    return [item async for item in items]


ADMINS = {"blocking": BlockingAdmin, "asyncio": AioAdmin}
