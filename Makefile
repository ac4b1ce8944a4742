# Each target makes its own virtual environment when it is missing. Nothing is needed but
# Python 3.11 or later, make and git.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=

# The oldest PySpark that is served; the newest is the one that everything else runs on.
OLDEST_PYSPARK ?= 4.0.1

.PHONY: help setup demo test test-full test-lake compatibility check format options bench docs clean

help:
	@echo "make demo    set everything up and run the whole story on an embedded cluster"
	@echo "make test    set everything up and run the tests"
	@echo "make test-full   the tests, every moment of a send, replicas, a guarded proxy, 10,000 transactions, and Spark on the oldest PySpark"
	@echo "make test-lake   archives in Delta Lake and Iceberg, Avro bodies: real packages, from Maven"
	@echo "make check   linters, types, import rules"
	@echo "make bench   speed, as ratios in one run"
	@echo "make docs    build the documentation into site/"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed, this is " + sys.version.split()[0] + "; try make PYTHON=python3.11")'
	@echo "Setting up $(VENV): downloads about 600 MB once (PySpark and Java are the largest), takes a few minutes."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python tools/install_quietly.py -c constraints.txt -e '.[dev,docs]'
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/rocketwire demo $(DEMO_ARGS)

test: $(STAMP)
	@$(BIN)/python tools/run_tests.py $(PYTEST_ARGS)

# All tests, and what is slow by nature: every moment of a send, and the Spark tests on the oldest PySpark, too.
test-full: test
	@ROCKETWIRE_EVERY_MOMENT=1 $(BIN)/python -m pytest -q -n auto --timeout=3600 tests/unit/sync/test_any_moment.py tests/fork/test_in_the_midst.py
	@ROCKETWIRE_REPLICAS=1 $(BIN)/python -m pytest -q --timeout=3600 tests/real/test_replicas.py tests/real/test_controller.py tests/real/test_secured_proxy.py tests/real/test_operators_walk.py
	@ROCKETWIRE_EXTRAS=1 $(BIN)/python -m pytest -q --timeout=900 tests/docs/test_extras_alone.py
	@ROCKETWIRE_TRANSACTIONS=10000 $(BIN)/python -m pytest -q --timeout=3600 tests/real/test_many_transactions.py
	@$(BIN)/python tools/try_spark.py --pyspark $(OLDEST_PYSPARK)

# Delta Lake, Iceberg and Spark's package for Avro, on the newest PySpark that has them, in an environment of its own.
test-lake: $(STAMP)
	@$(BIN)/python tools/try_spark.py --lake $(if $(ENVIRONMENT),--environment $(ENVIRONMENT)) -- $(PYTEST_ARGS)

# Runs all tests, those with replicas too, and, if they pass, records their numbers for the README's table of releases.
compatibility: $(STAMP)
	@$(BIN)/python tools/run_tests.py --compatibility $(PYTEST_ARGS)

check: $(STAMP)
	$(BIN)/ruff check src tests bench tools
	$(BIN)/ruff format --check src tests bench tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py

format: $(STAMP)
	$(BIN)/ruff check --fix src tests bench tools
	$(BIN)/ruff format src tests bench tools

# The types of all settings, from the tables of settings; a test compares.
options: $(STAMP)
	$(BIN)/python tools/gen_options.py

bench: $(STAMP)
	@$(BIN)/python -m bench $(BENCH_ARGS)

docs: $(STAMP)
	@$(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

clean:
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
