"""Foreign clients as processes that obey commands: Apache's Java client and the Go client.

Both programs speak the same lines of JSON, so a test can run over either. A driver is started once
and kept: a JVM per command would cost more than the commands. What the client refuses is raised as
``DriverError`` with the class name and code which the foreign client gave it.
"""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from tests.real import jars, settings
from tests.real.jars import PreparationError, cache_folder, locked

_JAVA = Path(__file__).parent / "java" / "rocketwire"
_GO = Path(__file__).parent / "go"
_BUILD_LIMIT = 540.0


class DriverError(Exception):
    """The foreign client said no."""

    def __init__(self, kind: str, text: str, code: int | None) -> None:
        super().__init__(f"{kind} ({code}): {text}")
        self.kind = kind
        self.text = text
        self.code = code


class Driver:
    """One running program. ``call`` may be used from several threads at once."""

    name = "driver"

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rocketwire-driver-"))
        self._command = list(command)
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.errors = self.folder / "errors.txt"
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                cwd=self.folder,
                env=os.environ | self._environment,
            )
        self._reader = threading.Thread(target=self._read, name=self.name, daemon=True)
        self._reader.start()
        self.call("ping", limit=120)
        return self

    @property
    def alive(self) -> bool:
        """Whether the program still runs; some commands of ``mqadmin`` end their process."""
        return self._process is not None and self._process.poll() is None

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        if self._reader is not None:
            self._reader.join(20)
        if process.stdout is not None:
            process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, command: str, *, limit: float = 90.0, **arguments: Any) -> Any:
        """Run one command and return its value."""
        return self.begin(command, **arguments).result(limit)

    def begin(self, command: str, **arguments: Any) -> "Future[Any]":
        """Start one command; its value, or ``DriverError``, comes with the future."""
        process = self._process
        if process is None or process.stdin is None:
            raise RuntimeError(f"{self.name} is not running; use it in a with statement")
        number = next(self._numbers)
        future: Future[Any] = Future()
        line = json.dumps({"call": number, "command": command, **arguments}, default=_to_json)
        with self._lock:
            self._waiting[number] = future
            try:
                process.stdin.write(line + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                del self._waiting[number]
                raise RuntimeError(f"{self.name} ended before {command}:\n{self._said()}") from None
        return future

    def _read(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                future = self._waiting.pop(answer["call"])
            if answer.get("error") is not None:
                error = answer["error"]
                future.set_exception(
                    DriverError(error["type"], error["message"], error.get("code"))
                )
            else:
                future.set_result(answer.get("value"))
        self._fail_the_rest()

    def _fail_the_rest(self) -> None:
        with self._lock:
            left = list(self._waiting.values())
            self._waiting.clear()
        text = self._said()
        for future in left:
            future.set_exception(RuntimeError(f"{self.name} ended:\n{text}"))

    def _said(self) -> str:
        return self.errors.read_text(errors="replace")[-3000:] if self.errors.exists() else ""


class JavaDriver(Driver):
    """Apache's Java client, consumers, admin tools and ``mqadmin``, of one release."""

    def __init__(self, version: str, options: Sequence[str] = ()) -> None:
        self.name = f"java-{version}"
        self.version = version
        program = jars.compiled(version, sorted(_JAVA.glob("*.java")))
        super().__init__([], {})
        settings.write_logging(self.folder)
        self._environment = {"ROCKETMQ_HOME": str(self.folder)}
        self._command = [
            "java",
            "-Xms32m",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.net.preferIPv4Stack=true",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            f"-Duser.home={self.folder}",
            # 4.x writes its log to the user's home, 5.x reads its own switch; both stay here.
            "-Drocketmq.client.logUseSlf4j=false",
            f"-Drocketmq.client.logRoot={self.folder}",
            "-Drocketmq.client.rebalance.waitInterval=1000",
            *options,
            "-cp",
            program,
            "rocketwire.Driver",
        ]

    def mqadmin(self, name_server: str, *words: str, **account: str) -> str:
        """What one subcommand of ``mqadmin`` prints."""
        command = [words[0], "-n", name_server, *words[1:]]
        return str(self.call("admin.mqadmin", words=command, limit=120, **account))


class GoDriver(Driver):
    """The Go client, built once into the cache."""

    def __init__(self) -> None:
        self.name = "go"
        super().__init__([str(_build_go())], {"ROCKETMQ_GO_LOG_LEVEL": "error"})


def require_go() -> None:
    """Skip the calling test, saying why, where the Go client cannot be built."""
    if shutil.which("go") is None:
        pytest.skip("the Go client needs go on the PATH")


def _build_go() -> Path:
    sources = sorted([*_GO.glob("*.go"), _GO / "go.mod", _GO / "go.sum"])
    target = cache_folder() / f"go-driver-{jars.fingerprint(sources)}"
    if not target.exists():
        with locked(cache_folder() / "go.lock"):
            if not target.exists():
                partial = target.with_suffix(".partial")
                command = ["go", "build", "-mod=readonly", "-o", str(partial), "."]
                jars.run(command, "the build of the Go driver", _BUILD_LIMIT, folder=_GO)
                partial.rename(target)
    return target


def message(topic: str, body: bytes | str, **fields: Any) -> dict[str, Any]:
    """A message as the drivers read it."""
    data = body.encode() if isinstance(body, str) else body
    return {"topic": topic, "body": data, **fields}


def body_of(shown: Mapping[str, Any]) -> bytes:
    """The body of a message a driver showed."""
    return base64.b64decode(shown["body"])


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"a command cannot carry {type(value).__name__}")


__all__ = [
    "Driver",
    "DriverError",
    "GoDriver",
    "JavaDriver",
    "PreparationError",
    "body_of",
    "message",
    "require_go",
]
