# Every target creates .venv if it is missing; the machine needs only Python >= 3.11 and make.
#   make serve ARGS="--port 9000"      make test PYTEST_ARGS=tests/bridge/test_sse.py      make test PYTHON=python3.13
# DEPENDENCIES=oldest uses the oldest versions that bridge and server allow, in a separate environment.

PYTHON ?= python3
DEPENDENCIES ?= pinned
ARGS ?=
PYTEST_ARGS ?=

VENV := .venv$(if $(filter oldest,$(DEPENDENCIES)),/oldest)
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
RUNTIME := $(VENV)/.runtime
TEST := $(VENV)/.test
CLIENTS := $(VENV)/.clients
FUZZ := $(VENV)/.fuzz
AUDIT := $(VENV)/.audit
DOCS := $(VENV)/.docs
DEPLOY := $(VENV)/.deploy
PINS := pyproject.toml bridge/pyproject.toml server/pyproject.toml constraints.txt
# Tests with real clients and real engines, which are not part of a whole run.
OTHER_TARGETS := tests/clients tests/engines
PYTEST := $(BIN)/python -m pytest --durations 5
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
# Both distributions, editable. The tests need every extra: one contract is tested against each store.
DISTRIBUTIONS := --editable bridge --editable server
WITH_EXTRAS := --editable 'bridge[testing]' --editable 'server[bedrock,mcp,oidc,otel,postgres,redis,tokenizers]'

# Some containers set this variable; then each server that a test starts would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve test quick packages snapshots terminals bench load check chaos audit fuzz docs docs-test docs-version man deploy manifests workflows release-dry extension-publish machine install clients engines vscode browser screenshots clean
.DELETE_ON_ERROR:

serve: $(RUNTIME)
	$(BIN)/openresponses-bridge serve $(ARGS)

# A whole run measures the coverage of the library (tests/support/tracing.py). Tests of servers spend half of their time waiting,
# so there are three workers for each core. Tests of real clients and engines are not collected.
test: $(TEST)
ifeq ($(strip $(PYTEST_ARGS)),)
	@COVERAGE_FILE=$(VENV)/.coverage $(PYTEST) --workers 3x --cov $(OTHER_TARGETS:%=--ignore=%)
else
	$(PYTEST) --workers 1x $(PYTEST_ARGS)
endif

# Runs, in about a minute, the tests of the code that differs from main; with ALL=1, or if nothing differs, the library's.
# Reports the tests that it chose, those that it left out because of their time, and the changed code that no test covers.
quick: $(TEST)
	HYPOTHESIS_PROFILE=quick $(PYTEST) --workers 1x -q -p tests.quick $$($(BIN)/python -m tests.quick $(if $(ALL),all))

# Installs the distributions into empty environments with every installed Python; reports versions that were not found.
packages: $(TEST)
	$(BIN)/python -m pytest -m packages --workers 2 -rs --durations 5 $(PYTEST_ARGS) tests/packaging

# Rewrites snapshots that differ, creates missing ones, deletes those that no test names. See CONTRIBUTING.md.
snapshots: $(TEST)
	$(BIN)/python -m pytest -q --snapshot-update $(PYTEST_ARGS) $$(find tests -name 'test_snapshots*.py')
	@git status --short snapshots 2>/dev/null || true

# Records terminal sessions as docs/images/terminal-*.svg; Codex is the one that `make clients` installed.
terminals: $(TEST)
	$(BIN)/python -m tests.terminals $(ARGS)

bench: $(TEST)
	$(BIN)/python -m tests.benchmarks $(ARGS)
	$(BIN)/python -m pytest -q -m bench $(PYTEST_ARGS)

check: $(TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m slow tests/typing
	$(BIN)/lint-imports
	$(BIN)/python .ci/shape.py
	@find bridge server -name '*.py' -exec wc -l {} + | awk '$$1 > 600 && $$2 != "total" {print $$2 ": " $$1 " lines: is it two subjects?"}'

# Runs 200 clients against two workers with Redis for ten minutes, while the upstreams fail in every way.
chaos: $(TEST)
	$(BIN)/python -m pytest -q -s -m slow tests/faults/test_routes_chaos.py

# Looks for known vulnerabilities of the pinned versions: in the copy of PyPA's advisory database at ADVISORIES=FOLDER, else
# in the index, else in OSV. If none of them can be read, the last line says that nothing was checked.
audit: $(AUDIT)
	$(BIN)/python .ci/audit.py

# Loads two workers for ten minutes, or as ARGS says; see docs/capacity.md.
load: $(TEST)
	$(BIN)/python -m tests.load $(ARGS)

# Fuzzes each target in turn, guided by coverage:  make fuzz ARGS="--seconds 60 --target sse"
fuzz: $(FUZZ)
	$(BIN)/python -m tests.fuzz $(ARGS)

# Generates the drawn parts of the pages and builds the site into build/site; a broken link is an error.
docs: $(DOCS)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file docs/site/mkdocs.yml

# Builds the site and tests its parts; `make browser` opens the pages.
docs-test: docs $(TEST)
	$(BIN)/python -m pytest -q -m docs $(PYTEST_ARGS) tests/test_site.py

# Adds the site of VERSION to the branch gh-pages, which has a folder for each version; ALIAS=latest adds a second name.
# PUSH=--push pushes the branch.
docs-version: $(DOCS)
	$(BIN)/python docs/generate.py
	PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 $(BIN)/mike --quiet deploy --config-file docs/site/mkdocs.yml --update-aliases $(PUSH) $(VERSION) $(ALIAS)

# Checks the deployment files: lints them, validates them against their schemas, runs the image's steps in a temporary Debian
# system (needs root and debootstrap), and runs each installed proxy (nginx, caddy, haproxy) in front of a server.
deploy: $(DEPLOY)
	$(BIN)/python -m pytest -m deploy -rs --durations 5 $(PYTEST_ARGS) tests/packaging/test_chart.py tests/packaging/test_container.py \
	    tests/packaging/test_proxies.py

# Generates the manual pages in server/man, one per command: man -l server/man/openresponses-bridge.1 shows one.
man: $(TEST)
	$(BIN)/python docs/drawn_manual.py

# Generates docs/deploy/kubernetes.yaml from the Helm chart.
manifests: $(DEPLOY)
	$(BIN)/python -m tests.support.charts

# Lints the workflows, and checks that each of their steps is a target of this file with no more rights than it needs.
workflows: $(DEPLOY)
	$(BIN)/python -m pytest -q -m "deploy or not deploy" $(PYTEST_ARGS) tests/packaging/test_workflows.py tests/packaging/test_release.py

# Builds what a release publishes: packages in dist; their bills of materials, notes and extension in build/release.
release-dry: $(DEPLOY)
	$(BIN)/python .ci/release.py

# Publishes that extension in VS Code's marketplace and in Open VSX, with the tokens VSCE_PAT and OVSX_PAT.
extension-publish:
	@test -n "$$VSCE_PAT" && test -n "$$OVSX_PAT" || { echo "VSCE_PAT and OVSX_PAT are not both set: nothing is published" >&2; exit 1; }
	npx --yes @vscode/vsce@4.1.0 publish --packagePath build/release/*.vsix
	npx --yes ovsx@1.4.0 publish build/release/*.vsix

# Installs what a Debian machine lacks besides Python and make: FOR="base services bench browser deploy load", or some of these.
machine:
	.ci/machine $(FOR)

install: $(TEST)

# Tests with real clients, whose own warnings are ignored. Clients on Node.js are installed into tests/clients/.node.
clients: $(CLIENTS)
	$(BIN)/python -m pytest -m clients -rs -o filterwarnings=default --disable-warnings --durations 5 $(PYTEST_ARGS)

# Tests with real engines and a tiny model, built from registries into the user's cache; ARGS=--table also writes
# docs/engines.json.
engines: $(TEST)
	$(BIN)/python -m tests.engines $(ARGS) $(PYTEST_ARGS)

# Tests the inspector's page and the site in Chromium (apt) with axe-core (npm); screenshots also rewrites docs/images.
browser: $(TEST)
	$(PIP_INSTALL) --only-binary :all: --group browser
	test -d build/site || $(MAKE) docs
	$(BIN)/python -m pytest -m browser -rs --durations 5 $(PYTEST_ARGS) tests/clients/inspector tests/clients/site

screenshots: $(TEST)
	SCREENSHOTS=docs/images $(MAKE) browser
	chromium-headless-shell --no-sandbox --hide-scrollbars --disable-gpu --default-background-color=00000000 --window-size=256,256 \
	    --screenshot=server/openresponses_server/vscode/extension/icon.png file://$(CURDIR)/server/openresponses_server/api/inspector/icon.svg
	SCREENSHOTS=$(CURDIR)/docs/images $(BIN)/python -m pytest -m vscode -rs $(PYTEST_ARGS) tests/clients/vscode/test_choices.py

# Tests the extension in a real VS Code extension host, which npm and apt install into tests/clients/.vscode-host.
vscode: $(TEST)
	$(BIN)/python -m pytest -m vscode -rs --durations 5 $(PYTEST_ARGS) tests/clients/vscode

clean:
	rm -rf $(VENV) build dist *.egg-info */*.egg-info bridge/build server/build .coverage .coverage.* .fuzz .hypothesis .import_linter_cache \
	    .mypy_cache .pytest_cache .ruff_cache .schemathesis
	find bridge server tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed (make PYTHON=...)" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# pip supports groups of pyproject.toml since 25.1; the pip that comes with Python may be older.
$(VENV)/.pip: | $(VENV)/.created
	$(PIP_INSTALL) 'pip>=25.1'
	@touch $@

$(RUNTIME): $(PINS) | $(VENV)/.pip
	$(PIP_INSTALL) $(DISTRIBUTIONS)
	@touch $@

# The tests' requirements include those of the server, so both stamps are set.
$(TEST): $(PINS) | $(VENV)/.pip
ifeq ($(DEPENDENCIES),oldest)
	$(PIP_INSTALL) uv
	$(UV) --resolution lowest-direct --upgrade $(WITH_EXTRAS)
	$(BIN)/uv pip freeze --quiet --python $(BIN)/python --exclude-editable >$(VENV)/oldest.txt
	$(UV) --constraint $(VENV)/oldest.txt --group test
else
	$(PIP_INSTALL) $(WITH_EXTRAS) --group test
endif
	@touch $(RUNTIME) $@

$(FUZZ): $(PINS) | $(TEST)
	$(PIP_INSTALL) --only-binary :all: --group fuzz
	@touch $@

$(AUDIT): $(PINS) | $(VENV)/.pip
	$(PIP_INSTALL) --group audit
	@touch $@

# Generating the pages imports the server, so this environment can also serve.
$(DOCS): $(PINS) | $(VENV)/.pip
	$(PIP_INSTALL) --only-binary :all: $(DISTRIBUTIONS) --group docs
	@touch $(RUNTIME) $@

$(DEPLOY): $(PINS) | $(TEST)
	$(PIP_INSTALL) --only-binary :all: --group deploy
	@touch $@

$(CLIENTS): $(PINS) | $(TEST)
	$(PIP_INSTALL) --only-binary :all: --group clients
	@touch $@
