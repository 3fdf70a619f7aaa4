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

.PHONY: demo test run-tests test-full lint types bench site lock sbom clean
# A comma within the arguments of a call.
, := ,

demo: $(VENV)/.installed
	$(BIN)/goalscope evaluate theseus --quick --out demo-run

# Types of the package take one core for about a minute: they are checked beside the tests. Those of tests and benchmarks
# take three times as long, and are checked by the long tests.
test: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory -j 2 lint run-tests

run-tests: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-full: $(VENV)/.installed-dev lint types
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "full or not full" $(addprefix tests/,$(ONLY))

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(BIN)/python -m tools.vague_names

types: $(VENV)/.installed-dev
	$(BIN)/mypy

# Those that keep what they found in files, and go on, take hours: they are run by commands of their own.
LONG := attribution dependence needs verdicts
bench: $(VENV)/.installed-dev
	for script in $(filter-out $(LONG:%=benchmarks/%.py),$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Exact versions, each file by its hash, come from requirements/*.lock (docs/start.md). A lock is complete, so nothing is
# resolved; no source distribution is taken, since what would build it has no hash. `make LOCKED=no ...` installs within
# constraints.txt instead, for a platform that the locks do not serve; PyTorch then goes in first and by exact version:
# with an open range another package would bring gigabytes of CUDA builds.
LOCKED ?= yes
HASHED := --require-hashes --no-deps --only-binary :all:
TOOLS := $(VENV)-tools
DOCS := $(VENV)-docs
FILES := pyproject.toml constraints.txt Makefile $(wildcard requirements/*.lock)

define environment
@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "goalscope needs Python 3.11 or newer, this is " + sys.version'
test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
endef

# 1: the lock; 2: the extras
ifeq ($(LOCKED),yes)
define install
$(environment)
$(INSTALL) $(HASHED) --requirement requirements/torch-cpu.lock || \
  echo "No CPU build of PyTorch is served here: the build of the index is installed, and gigabytes of CUDA with it."
$(INSTALL) $(HASHED) --requirement requirements/$(1).lock
case "$$($(BIN)/python -c 'from importlib.metadata import version; print(version("torch"))')" in \
*+cpu) ;; *) $(INSTALL) $(HASHED) --requirement requirements/cuda.lock ;; esac
$(INSTALL) --no-deps --no-index --no-build-isolation --editable .
$(BIN)/python -m pip --disable-pip-version-check check
endef
else
define install
$(environment)
$(INSTALL) torch==$$(sed -n 's/^torch==//p' constraints.txt)
$(INSTALL) --constraint constraints.txt --editable '.[$(2)]'
endef
endif

$(VENV)/.installed: $(FILES)
	$(call install,run,lm$(,)report$(,)export)
	touch $@

# All that the demo needs is among it.
$(VENV)/.installed-dev: $(FILES)
	$(call install,dev,lm$(,)api$(,)report$(,)export$(,)dev)
	touch $(VENV)/.installed $@

$(TOOLS)/.installed: requirements/tools.lock
	test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip --disable-pip-version-check --quiet install $(HASHED) --requirement $<
	touch $@

# The locks anew, within constraints.txt and what pyproject.toml asks for.
lock: $(TOOLS)/.installed
	PATH="$(abspath $(TOOLS))/bin:$$PATH" $(PYTHON) tools/lock.py

# What the package is made of, as CycloneDX: everything that `make demo` installs, CUDA included.
sbom: $(TOOLS)/.installed
	mkdir -p dist
	cat requirements/run.lock requirements/cuda.lock | $(TOOLS)/bin/cyclonedx-py requirements \
	  --pyproject pyproject.toml --mc-type library --output-reproducible --validate --of JSON --output-file dist/sbom.json -

# The site in build/site/html: pages from docs/ and from the package, pictures drawn by the commands that they show. Its
# generator has an environment of its own; a warning of it, or of what reads docstrings, is an error.
site: $(VENV)/.installed-dev $(DOCS)/.installed
	$(BIN)/python -m tools.site
	$(DOCS)/bin/zensical build --strict --clean 2>&1 | tee build/site/log
	! grep -E "griffe:|mkdocstrings:|Error|Traceback" build/site/log
	$(BIN)/python -m tools.site --markdown

$(DOCS)/.installed: pyproject.toml
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip --disable-pip-version-check --quiet install $$($(PYTHON) -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	touch $@

clean:
	rm -rf $(VENV) $(TOOLS) $(DOCS) .venv-integrations build dist demo-run
