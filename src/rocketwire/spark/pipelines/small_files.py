"""Small files that pipelines keep beside their data, on whatever file system that is.

What has no scheme, or ``file:``, is on this machine. Everything else goes through Hadoop's file
systems in Spark's own JVM, so that the settings that let Spark reach the data (``fs.s3a.*`` and
the like) serve these files, too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.error_text import first_line
from rocketwire.spark.spark_api import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)(.*)", re.DOTALL)
_DRAFT: Final = ".draft"


def place_text(place: str | Path) -> str:
    """A folder as text. ``Path`` makes one slash of two, which are put back."""
    text = str(place)
    found = _SCHEME.fullmatch(text)
    if found is None:
        return text
    scheme, slashes, rest = found.groups()
    if scheme.lower() != "file" and len(slashes) == 1:
        return f"{scheme}://{rest}"
    return text


def local_path(place: str | Path) -> Path | None:
    """A folder on this machine; None if it is on another file system."""
    found = _SCHEME.fullmatch(str(place))
    if found is None:
        return Path(place)
    return Path(f"/{found[3]}") if found[1].lower() == "file" else None


def place_beside(folder: str, what: str) -> str:
    """The path of a file beside a folder, under a name that no engine takes for data."""
    head, slash, name = folder.rstrip("/").rpartition("/")
    return f"{head}{slash}.{name}.{what}"


class SmallFiles(Protocol):
    """Whole files by their path."""

    def read(self, path: str) -> str | None:
        """The text of a file; None if there is none."""
        ...

    def write(self, path: str, text: str) -> None:
        """Put a text in the place of a file, so that a crash leaves the old or the new one."""
        ...

    def names(self, folder: str) -> list[str]:
        """What a folder has; nothing if there is no such folder."""
        ...

    def has(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        ...


class LocalFiles:
    """On this machine."""

    def read(self, path: str) -> str | None:
        """The text of a file; None if there is none."""
        try:
            return _local(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """Put a text in the place of a file in one step."""
        place = _local(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(place.name + _DRAFT)
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)

    def names(self, folder: str) -> list[str]:
        """What a folder has; nothing if there is no such folder."""
        try:
            return [entry.name for entry in _local(folder).iterdir()]
        except FileNotFoundError:
            return []

    def has(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return _local(path).exists()


class HadoopFiles:
    """On any file system that Spark's Hadoop knows, by way of the driver's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        # There is no public way to Hadoop's classes from Python.
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        self._settings: Any = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001

    def read(self, path: str) -> str | None:
        """The text of a file; None if there is none."""
        system, place = self._find(path)
        if not system.exists(place):
            # The moment between the two steps of a write was a crash.
            place = self._path(path + _DRAFT)
            if not system.exists(place):
                return None
        stream = system.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Put a text in the place of a file.

        Not all of these file systems can replace a file in one step; `read` takes the draft for the
        file where the file is not there.
        """
        system, place = self._find(path)
        draft = self._path(path + _DRAFT)
        self._put(system, draft, text, overwrite=True)
        system.delete(place, False)  # noqa: FBT003 - Java's: not recursively
        if not system.rename(draft, place):
            raise ConfigError(f"{path} can't be written: its draft can't be renamed")

    def create(self, path: str, text: str) -> bool:
        """Write a file that must not be there yet; False if it is."""
        from py4j.protocol import Py4JJavaError

        system, place = self._find(path)
        try:
            self._put(system, place, text, overwrite=False)
        except Py4JJavaError:
            if not system.exists(place):
                raise
            return False
        return True

    def replace(self, path: str, text: str) -> None:
        """Write a file over itself; one that a reader may find half written."""
        system, place = self._find(path)
        self._put(system, place, text, overwrite=True)

    def glance(self, path: str) -> str | None:
        """The text of a file that others may be writing; nothing if it can't be read at the moment."""
        from py4j.java_gateway import is_instance_of
        from py4j.protocol import Py4JJavaError

        try:
            return self.read(path)
        except Py4JJavaError as error:
            # Half a file, its old checksum, or one that was removed after it was found.
            if is_instance_of(self._gateway, error.java_exception, "java.io.IOException"):
                return ""
            raise

    def names(self, folder: str) -> list[str]:
        """What a folder has; nothing if there is no such folder."""
        system, place = self._find(folder)
        if not system.exists(place):
            return []
        return [str(entry.getPath().getName()) for entry in system.listStatus(place)]

    def files_below(self, folder: str) -> dict[str, int]:
        """The sizes of all files below a folder, by their paths within it."""
        system, place = self._find(folder)
        if not system.exists(place):
            return {}
        root = str(system.getFileStatus(place).getPath().toUri().getPath()).rstrip("/")
        listed = system.listFiles(place, True)  # noqa: FBT003 - Java's: recursively
        found: dict[str, int] = {}
        while listed.hasNext():
            entry = listed.next()
            path = str(entry.getPath().toUri().getPath())
            found[path.removeprefix(f"{root}/")] = int(entry.getLen())
        return found

    def has(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        system, place = self._find(path)
        return bool(system.exists(place))

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        system, place = self._find(path)
        system.delete(place, True)  # noqa: FBT003 - Java's: recursively

    def move(self, path: str, target: str) -> None:
        """Rename a file to a name that is free; makes the folder."""
        system, place = self._find(path)
        goal = self._path(target)
        system.mkdirs(goal.getParent())
        if not system.rename(place, goal):
            raise ConfigError(f"{target} can't be written: {path} can't be renamed to it")

    def changed_at(self, path: str) -> int | None:
        """When a file was written, by the clock of its file system, in ms; None if it is not there."""
        from py4j.java_gateway import is_instance_of
        from py4j.protocol import Py4JJavaError

        system, place = self._find(path)
        try:
            return int(system.getFileStatus(place).getModificationTime())
        except Py4JJavaError as error:
            missing = "java.io.FileNotFoundException"
            if is_instance_of(self._gateway, error.java_exception, missing):
                return None
            raise

    def _put(self, system: Any, place: Any, text: str, *, overwrite: bool) -> None:
        stream = system.create(place, overwrite)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)

    def _find(self, text: str) -> tuple[Any, Any]:
        from py4j.protocol import Py4JJavaError

        place = self._path(text)
        try:
            return place.getFileSystem(self._settings), place
        except Py4JJavaError as error:
            version = str(self._jvm.org.apache.hadoop.util.VersionInfo.getVersion())
            raise _unreachable(text, error, version) from error


def _unreachable(place: str, error: Exception, hadoop: str) -> ConfigError:
    scheme = place.partition(":")[0]
    remedy = f"start it with the package that has it, and its spark.hadoop.fs.{scheme}.* settings"
    if scheme == "s3a":
        remedy = f"start it with spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop}"
    return ConfigError(f"{place}: this session can't reach {scheme}: {first_line(error)}; {remedy}")


def small_files(spark: SparkSession, place: str) -> SmallFiles:
    """The files of the file system that a place is on.

    Raises:
        ConfigError: it can't be reached from here.
    """
    if local_path(place) is not None:
        return LocalFiles()
    return hadoop_files(spark, place)


def hadoop_files(spark: SparkSession, place: str) -> HadoopFiles:
    """The same by Hadoop, in any case.

    Raises:
        ConfigError: it can't be reached from here.
    """
    if is_remote(spark):
        raise ConfigError(f"{place}: over Spark Connect it must be on a local file system")
    return HadoopFiles(spark)


def _local(path: str) -> Path:
    found = local_path(path)
    assert found is not None  # the caller asked for a local one
    return found
