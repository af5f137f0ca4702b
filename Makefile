# Every target sets itself up in a local .venv; nothing else is needed but Python >= 3.10.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
# The tests interpret the GPU kernels. A build of torch for GPUs brings the Triton that it wants; for
# a build without, this one.
TRITON := 3.9.0
# Of `make versions`, where other Pythons are installed.
OLDEST_PYTHON ?= $(PYTHON)
NEWEST_PYTHON ?= $(PYTHON)
OLDEST_VERSION := 3.10
OLDEST_PINS := $(VENV)-oldest.txt
UV := $(BIN)/uv pip
# The compiler of the oldest torch cannot yet follow the library, nor PyG's own models; these
# warnings are of the oldest versions alone.
ON_OLDEST := -k "not compile and not export" -W "ignore:There is a performance drop:UserWarning" \
	-W ignore::DeprecationWarning

# Looks for what keeps people from using the page.
AXE := 4.14.0
# The first of these that is there shows the page in the tests.
BROWSERS := chromium chromium-browser google-chrome

.PHONY: run test lint audit format bench fuzz kills coverage mutants versions dist browser \
	readme docs clean

run: $(STAMP)
	$(BIN)/graphrelu compare esol --report report.html

test: lint browser
	$(BIN)/python -m pytest -n 2 --dist loadfile

# The properties of tests/property on random examples, for about ten minutes. One that fails is kept:
# paste its arguments, as they are printed, above the test as @example(...), and mend the library.
fuzz: $(STAMP)
	@GRAPHRELU_HYPOTHESIS=fuzz $(BIN)/python -m pytest tests/property || \
	{ echo "Add each failing test case to its test, as @example(...), before it is mended."; exit 1; }

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The pinned versions among known vulnerabilities; it needs a database that answers.
audit: $(STAMP)
	$(BIN)/pip-audit --strict --requirement constraints.txt --no-deps --disable-pip

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python benchmarks/activation.py

# An experiment ended a hundred times at random moments; its tables must not change.
kills: $(STAMP)
	$(BIN)/python scripts/kills.py

# Lines and branches that the tests reach, of the library and of the laboratory.
coverage: $(STAMP)
	$(BIN)/coverage erase
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest -n 2 --dist loadfile
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --omit "graphrelu/lab/*,graphrelu/ops/triton/*" --fail-under 97
	$(BIN)/coverage report --include "graphrelu/lab/*" --fail-under 90

# Small changes to the code that the tests must notice: a sample of each file's.
mutants: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python scripts/mutants.py

# The tests on the oldest and the newest packages that pyproject.toml allows; downloads gigabytes.
versions: $(STAMP)
	$(UV) compile --quiet pyproject.toml --extra lab --resolution lowest-direct \
		--python-version $(OLDEST_VERSION) --output-file $(OLDEST_PINS)
	$(BIN)/uv venv --quiet --clear --python $(OLDEST_PYTHON) $(VENV)-oldest
	$(UV) install --python $(VENV)-oldest --constraint $(OLDEST_PINS) --editable ".[lab,test]"
	OMP_NUM_THREADS=1 $(VENV)-oldest/bin/python -m pytest -p no:xdist $(ON_OLDEST)
	$(BIN)/uv venv --quiet --clear --python $(NEWEST_PYTHON) $(VENV)-newest
	$(UV) install --python $(VENV)-newest --editable ".[lab,test]"
	OMP_NUM_THREADS=1 $(VENV)-newest/bin/python -m pytest -p no:xdist

# Wheel and sdist, in dist/, tried in an empty environment.
dist: $(STAMP)
	scripts/dist.sh $(BIN)/python

# What README.md and docs/ say of the records.
readme: $(STAMP)
	$(BIN)/python scripts/readme.py

# The site, in site/; a warning is an error. The variable silences a notice of the theme's.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# axe-core and Debian's Chromium, where they may be installed; without them, the tests of the page
# say that they are skipped.
browser: node_modules/axe-core/$(AXE)
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get install -y -qq chromium >/dev/null || \
		{ apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
		echo "Chromium cannot be installed here."; \
	else echo "There is no Chromium here, and only root on Debian can install it."; fi

node_modules/axe-core/$(AXE):
	@if command -v npm >/dev/null && npm install --silent --no-save --no-package-lock --prefix . axe-core@$(AXE); \
	then touch $@; else echo "axe-core cannot be installed here."; fi

# torch first and on its own: a later requirement must not pull in another build of it.
$(STAMP): pyproject.toml constraints.txt hatch_build.py graphrelu/ops/native.cpp
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[lab,dev]"
	$(BIN)/python -c "import triton" 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check triton==$(TRITON)
	touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $(DOCS_STAMP)

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest $(OLDEST_PINS) node_modules dist site .coverage* .pytest_cache .mypy_cache .ruff_cache
