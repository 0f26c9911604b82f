# Every target sets up .venv by itself; all that a machine needs is Python >= 3.11 and make.
#   make serve ARGS="--port 9000"      make test PYTEST_ARGS="-k sse"      make test PYTHON=python3.13

PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
TEST := $(VENV)/.test
CLIENTS := $(VENV)/.clients
FUZZ := $(VENV)/.fuzz
AUDIT := $(VENV)/.audit
PINS := pyproject.toml constraints.txt
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt

.PHONY: serve test snapshots bench check audit fuzz docs install clients clean
.DELETE_ON_ERROR:

serve: $(RUNTIME)
	$(BIN)/openresponses-bridge serve $(ARGS)

test: $(TEST)
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --durations 5 $(PYTEST_ARGS)

# Rewrites what differs, writes what is missing, deletes what no test names. See CONTRIBUTING.md.
snapshots: $(TEST)
	$(BIN)/python -m pytest -q --snapshot-update $(PYTEST_ARGS) $$(find tests -name 'test_snapshots*.py')
	@git status --short snapshots 2>/dev/null || true

bench: $(TEST)
	$(BIN)/python -m tests.benchmarks $(ARGS)
	$(BIN)/python -m pytest -q -m bench $(PYTEST_ARGS)

check: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Known vulnerabilities in what is pinned; skipped aloud where nobody can be asked.
audit: $(AUDIT)
	$(BIN)/python .ci/audit.py

# Coverage-guided, each target in turn:  make fuzz ARGS="--seconds 60 --target sse"
fuzz: $(FUZZ)
	$(BIN)/python -m tests.fuzz $(ARGS)

docs: $(RUNTIME)
	$(BIN)/python docs/generate.py

install: $(TEST)

# Real clients; what they warn of is their own affair. Those on Node.js go into tests/clients/.node.
clients: $(CLIENTS)
	$(BIN)/python -m pytest -m clients -o filterwarnings=default --disable-warnings --durations 5 $(PYTEST_ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .coverage .coverage.* .fuzz .hypothesis .import_linter_cache \
	    .mypy_cache .pytest_cache .ruff_cache .schemathesis
	find bridge server tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed (make PYTHON=...)" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(RUNTIME): $(PINS) | $(VENV)/.created
	$(PIP_INSTALL) --editable .
	@touch $@

# What the tests need includes what serving needs, so both stamps are set.
$(TEST): $(PINS) | $(VENV)/.created
	$(PIP_INSTALL) --editable '.[test]'
	@touch $(RUNTIME) $@

$(FUZZ): $(PINS) | $(TEST)
	$(PIP_INSTALL) --only-binary :all: --editable '.[fuzz]'
	@touch $@

$(AUDIT): $(PINS) | $(VENV)/.created
	$(PIP_INSTALL) --editable '.[audit]'
	@touch $@

$(CLIENTS): $(PINS) | $(TEST)
	$(PIP_INSTALL) --only-binary :all: --editable '.[clients]'
	@touch $@
