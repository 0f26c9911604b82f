# Every target sets up .venv by itself; all that a machine needs is Python >= 3.11 and make.
#   make serve ARGS="--port 9000"      make test PYTEST_ARGS=tests/bridge/test_sse.py      make test PYTHON=python3.13
# With DEPENDENCIES=oldest all of it has the oldest versions that bridge and server allow, in an environment of its own.

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
# Those of the library, and those through the server by which alone parts of it are tried.
TRACED_TESTS := tests/bridge tests/agent tests/conformance \
    $(addprefix tests/server/,api/test_interactions.py observation test_backend.py test_responses.py) \
    $(addprefix tests/server/upstreams/,test_bedrock.py test_codex.py test_socket_requests.py test_sockets.py) \
    $(addprefix tests/cli/commands/,test_cli_validate.py test_conform.py test_inspect.py) \
    $(addprefix tests/properties/,test_fed_alike.py test_hostile_requests.py test_hostile_values.py)
SERVER_TESTS := tests/server tests/cli
# None of these belongs to a whole run: real clients and real engines.
OTHER_TARGETS := tests/clients tests/engines
PYTEST := $(BIN)/python -m pytest --dist worksteal --durations 5
CORES = $(shell getconf _NPROCESSORS_ONLN)
# Tests of servers wait for more than half of their time.
TWICE_THE_CORES = $(shell echo $$(( $(CORES) * 2 )))
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
# Both distributions as they are here; for the tests with all that the server works with, since each store is held to one contract.
DISTRIBUTIONS := --editable bridge --editable server
WITH_EXTRAS := --editable 'bridge[testing]' --editable 'server[bedrock,mcp,oidc,otel,postgres,redis,tokenizers]'

# Some containers set it: each server that a test starts would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: serve test test-traced test-server test-others quick packages snapshots terminals bench load check chaos audit fuzz docs docs-test docs-version man deploy manifests workflows release-dry extension-publish machine install clients engines vscode browser screenshots clean
.DELETE_ON_ERROR:

serve: $(RUNTIME)
	$(BIN)/openresponses-bridge serve $(ARGS)

# Side by side: the tests that have to cover the library (pyproject.toml), those of the server, and all else, which
# being traced would slow down and which waits for half of its time. In two runs, since each worker collects all the
# tests of its run. Those of real clients and engines are not collected. A part of the tests, that PYTEST_ARGS names,
# is not measured.
# In a fresh clone all is compiled before, its assertions rewritten, by two processes: each of the workers would
# do it by itself, since all of them read the same file at the same time.
test: $(TEST)
ifeq ($(strip $(PYTEST_ARGS)),)
	@test -d tests/server/__pycache__ || { \
	    $(PYTEST) -qq --collect-only $(SERVER_TESTS) >/dev/null & \
	    $(PYTEST) -qq --collect-only $(SERVER_TESTS:%=--ignore=%) $(OTHER_TARGETS:%=--ignore=%) >/dev/null & \
	    wait; }
	@$(MAKE) --no-print-directory --jobs 3 test-traced test-server test-others
else
	$(PYTEST) -n auto $(PYTEST_ARGS)
endif

# In one process, since workers would take a third more for handing out thousands of short tests. Its output comes
# in one piece, among that of the server's, as that of the others does.
test-traced: $(TEST)
	@$(PYTEST) -n 0 $(TRACED_TESTS) --cov >$(VENV)/traced.log 2>&1; code=$$?; cat $(VENV)/traced.log; exit $$code

test-server: $(TEST)
	$(PYTEST) -n $(TWICE_THE_CORES) $(patsubst %,--ignore=%,$(TRACED_TESTS)) $(SERVER_TESTS)

test-others: $(TEST)
	@$(PYTEST) -n $(CORES) $(patsubst %,--ignore=%,$(TRACED_TESTS) $(SERVER_TESTS) $(OTHER_TARGETS)) \
	    >$(VENV)/others.log 2>&1; code=$$?; cat $(VENV)/others.log; exit $$code

# In about a minute: the tests of what differs from main, and what those miss; with ALL=1, or when nothing differs, those of
# the library. It says what it chose, what it left out for its time, and what no test covers.
quick: $(TEST)
	HYPOTHESIS_PROFILE=quick $(PYTEST) -n auto -q -p tests.quick $$($(BIN)/python -m tests.quick $(if $(ALL),all))

# The distributions in empty environments, with every Python that is here; says which were not found.
packages: $(TEST)
	$(BIN)/python -m pytest -m packages -n 2 -rs --durations 5 $(PYTEST_ARGS) tests/packaging

# Rewrites what differs, writes what is missing, deletes what no test names. See CONTRIBUTING.md.
snapshots: $(TEST)
	$(BIN)/python -m pytest -q --snapshot-update $(PYTEST_ARGS) $$(find tests -name 'test_snapshots*.py')
	@git status --short snapshots 2>/dev/null || true

# Sessions in a terminal as docs/images/terminal-*.svg; that of Codex with the one from `make clients`.
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

# Ten minutes of upstreams that fail in every way under 200 clients, with two workers and Redis.
chaos: $(TEST)
	$(BIN)/python -m pytest -q -s -m slow tests/faults/test_routes_chaos.py

# Known vulnerabilities in what is pinned: ADVISORIES=FOLDER is a copy of PyPA's advisory database, asked before the index
# and OSV. Where none of them knows, the last line says that nothing was checked.
audit: $(AUDIT)
	$(BIN)/python .ci/audit.py

# Leans on two workers for ten minutes, or as ARGS says; see docs/capacity.md.
load: $(TEST)
	$(BIN)/python -m tests.load $(ARGS)

# Coverage-guided, each target in turn:  make fuzz ARGS="--seconds 60 --target sse"
fuzz: $(FUZZ)
	$(BIN)/python -m tests.fuzz $(ARGS)

# Draws what is drawn and builds the site into build/site; a link that leads nowhere fails it.
docs: $(DOCS)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file docs/site/mkdocs.yml

# The site, and the tests of its parts; the pages themselves are opened by `make browser`.
docs-test: docs $(TEST)
	$(BIN)/python -m pytest -q -m docs $(PYTEST_ARGS) tests/test_site.py

# Adds the site of VERSION to the branch gh-pages, which has a folder for each version; ALIAS=latest is another name of it.
# PUSH=--push sends the branch away.
docs-version: $(DOCS)
	$(BIN)/python docs/generate.py
	PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 $(BIN)/mike --quiet deploy --config-file docs/site/mkdocs.yml --update-aliases $(PUSH) $(VERSION) $(ALIAS)

# What deploys it: linted, held to schemas, the image's steps run in a Debian made for that (root, debootstrap), and the
# proxies that are installed (nginx, caddy, haproxy) before a server.
deploy: $(DEPLOY)
	$(BIN)/python -m pytest -m deploy -rs --durations 5 $(PYTEST_ARGS) tests/packaging/test_chart.py tests/packaging/test_container.py \
	    tests/packaging/test_proxies.py

# The pages of the manual in server/man, one for each command: man -l server/man/openresponses-bridge.1 shows one.
man: $(TEST)
	$(BIN)/python docs/drawn_manual.py

# Draws docs/deploy/kubernetes.yaml from the chart of Helm.
manifests: $(DEPLOY)
	$(BIN)/python -m tests.support.charts

# The workflows: linted, and each of their steps a target of this file with no more rights than it needs.
workflows: $(DEPLOY)
	$(BIN)/python -m pytest -q -m "deploy or not deploy" $(PYTEST_ARGS) tests/packaging/test_workflows.py tests/packaging/test_release.py

# What a release publishes, without publishing it: packages in dist, what they bring along, notes and extension in build/release.
release-dry: $(DEPLOY)
	$(BIN)/python .ci/release.py

# Publishes that extension in the marketplace of VS Code and in Open VSX, with the tokens VSCE_PAT and OVSX_PAT of both.
extension-publish:
	@test -n "$$VSCE_PAT" && test -n "$$OVSX_PAT" || { echo "VSCE_PAT and OVSX_PAT are not both set: nothing is published" >&2; exit 1; }
	npx --yes @vscode/vsce@4.1.0 publish --packagePath build/release/*.vsix
	npx --yes ovsx@1.4.0 publish build/release/*.vsix

# What a Debian machine needs beside Python and make: FOR="base services bench browser deploy load", or some of these.
machine:
	.ci/machine $(FOR)

install: $(TEST)

# Real clients; what they warn of is their own affair. Those on Node.js go into tests/clients/.node.
clients: $(CLIENTS)
	$(BIN)/python -m pytest -m clients -rs -o filterwarnings=default --disable-warnings --durations 5 $(PYTEST_ARGS)

# Real engines with a tiny model, built from the registries into the user's cache; ARGS=--table also writes docs/engines.json.
engines: $(TEST)
	$(BIN)/python -m tests.engines $(ARGS) $(PYTEST_ARGS)

# The inspector's page and the site in Chromium (apt), with axe-core (npm); screenshots also rewrites docs/images.
browser: $(TEST)
	$(PIP_INSTALL) --only-binary :all: --group browser
	test -d build/site || $(MAKE) docs
	$(BIN)/python -m pytest -m browser -rs --durations 5 $(PYTEST_ARGS) tests/clients/inspector tests/clients/site

screenshots: $(TEST)
	SCREENSHOTS=docs/images $(MAKE) browser
	chromium-headless-shell --no-sandbox --hide-scrollbars --disable-gpu --default-background-color=00000000 --window-size=256,256 \
	    --screenshot=server/openresponses_server/vscode/extension/icon.png file://$(CURDIR)/server/openresponses_server/api/inspector/icon.svg
	SCREENSHOTS=$(CURDIR)/docs/images $(BIN)/python -m pytest -m vscode -rs $(PYTEST_ARGS) tests/clients/vscode/test_choices.py

# The extension in a real VS Code extension host, which npm and apt bring into tests/clients/.vscode-host.
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

# Groups of pyproject.toml are known to pip since 25.1: the one that Python brings may be older.
$(VENV)/.pip: | $(VENV)/.created
	$(PIP_INSTALL) 'pip>=25.1'
	@touch $@

$(RUNTIME): $(PINS) | $(VENV)/.pip
	$(PIP_INSTALL) $(DISTRIBUTIONS)
	@touch $@

# What the tests need includes what serving needs, so both stamps are set.
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

# Drawing imports the server, so that it can serve then too.
$(DOCS): $(PINS) | $(VENV)/.pip
	$(PIP_INSTALL) --only-binary :all: $(DISTRIBUTIONS) --group docs
	@touch $(RUNTIME) $@

$(DEPLOY): $(PINS) | $(TEST)
	$(PIP_INSTALL) --only-binary :all: --group deploy
	@touch $@

$(CLIENTS): $(PINS) | $(TEST)
	$(PIP_INSTALL) --only-binary :all: --group clients
	@touch $@
