# The two commands of the README are `make demo` and `make test`; both set up all that they need in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported: compiling all that is installed would take longer.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --quiet install --no-compile
# One process for each of two cores; the tests are written to be independent of one another.
WORKERS ?= 2
# Folders of tests to which `make test-full` is limited: make test-full ONLY="meg stats".
ONLY ?=

.PHONY: demo test run-tests test-full lint bench clean

demo: $(VENV)/.installed
	$(BIN)/goalscope evaluate theseus --quick --out demo-run

test: lint run-tests

run-tests: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-full: $(VENV)/.installed-dev lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "full or not full" $(addprefix tests/,$(ONLY))

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Exact versions come from constraints.txt. PyTorch goes in first and by exact version: with an open range another
# package would bring gigabytes of CUDA builds.
define environment
@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "goalscope needs Python 3.11 or newer, this is " + sys.version'
test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
$(INSTALL) torch==$$(sed -n 's/^torch==//p' constraints.txt)
endef

$(VENV)/.installed: pyproject.toml constraints.txt Makefile
	$(environment)
	$(INSTALL) --constraint constraints.txt --editable '.[lm,report,export]'
	touch $@

# All that the demo needs is among it.
$(VENV)/.installed-dev: pyproject.toml constraints.txt Makefile
	$(environment)
	$(INSTALL) --constraint constraints.txt --editable '.[lm,api,report,export,dev]'
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) build dist demo-run
