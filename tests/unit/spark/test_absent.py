"""The module that Spark imports by itself never fails, and explains itself when used."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from rocketwire.spark import absent


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_source_is_found():
    import pyspark_rocketmq

    assert pyspark_rocketmq.DefaultSource.name() == "rocketmq"


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("import sys; sys.modules['pyarrow'] = None", "needs pyarrow"),
        ("import sys; sys.modules['numpy'] = None", "needs numpy"),
        ("import pyarrow; pyarrow.__version__ = '17.0.0'", "needs pyarrow 18 or later, this is 17"),
        (
            "import pyspark; pyspark.__version__ = '3.5.0'",
            "needs pyspark 4.0 or later, this is 3.5",
        ),
        ("import sys; sys.modules['rocketwire.spark.client'] = None", "can't be loaded"),
    ],
)
def test_what_is_missing_is_said_when_the_source_is_used(broken, words):
    code = f"""
{broken}
import pyspark_rocketmq
source = pyspark_rocketmq.DefaultSource
assert source.name() == "rocketmq"
for call in (lambda s: s.schema(), lambda s: s.reader(None), lambda s: s.writer(None, False),
             lambda s: s.streamReader(None), lambda s: s.streamWriter(None, False)):
    try:
        call(source({{}}))
    except RuntimeError as error:
        print(error)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert all(words in line for line in lines)


def test_even_without_spark_the_import_succeeds():
    done = run("import sys; sys.modules['pyspark'] = None; import pyspark_rocketmq")
    assert done.returncode == 0, done.stderr


def test_nothing_is_missing_here():
    assert absent.missing() == ""
    absent.require()
