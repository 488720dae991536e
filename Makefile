# The first of these that will do; PYTHON=/path/to/python names another one.
PYTHONS := python3.11 python3.12 python3.13 python3.14 python3
PYTHON ?= $(shell for python in $(PYTHONS); do $(call WILL_DO,$$python) && echo $$python && break; done)
WILL_DO = $(1) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null

define CHECK_PYTHON
@$(call WILL_DO,$(or $(PYTHON),false)) || { \
  echo 'Penstock needs Python 3.11 or newer, with its modules venv and ensurepip.' >&2; \
  echo 'Found: $(or $(strip $(foreach python,$(or $(PYTHON),$(PYTHONS)),$(call VERSION,$(python)))),none).' >&2; \
  echo 'Install one (Debian and Ubuntu: apt-get install python3 python3-venv), or set PYTHON=/path/to/python.' >&2; \
  exit 1; }
endef
VERSION = $(addprefix $(1)=,$(shell $(1) -c 'import platform; print(platform.python_version())' 2>/dev/null))

VENV := .venv
BIN := $(VENV)/bin

# Modules are compiled once, even where that is switched off: tests start hundreds of processes.
export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/bytecode
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help measure setup serve pipeline test test-all test-long test-newest prepared static check lock sbom docs pages bench judges soak hostile simulate fuzz node-peers peers proto clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

# Every package in the version with which all was tested. LOCK= takes the newest that pyproject.toml allows.
LOCK := --constraint requirements.lock
INSTALL = $(BIN)/python -m pip install --quiet $(LOCK)

$(VENV)/.pip: pyproject.toml requirements.lock
	$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

# Compiled for commands outside of make, too, so that the first one is quick.
COMPILE = @env -u PYTHONPYCACHEPREFIX $(BIN)/python -m compileall -q -j 0 proto codecs gateway pipeline

$(VENV)/.run: $(VENV)/.pip
	$(INSTALL) --editable .
	$(COMPILE)
	@touch $@

$(VENV)/.spark: $(VENV)/.run
	$(INSTALL) --editable '.[spark]'
	@$(BIN)/python -m penstock_spark.running.class_archive
	@touch $@

# All at once, with what `.run` installs. Of these packages only what is imported is compiled, and then: all of it would
# take as long as to install them.
$(VENV)/.dev: $(VENV)/.pip
	$(INSTALL) --no-compile --editable '.[otel,spark]' --group dev
	$(COMPILE)
	@test $(VENV)/.run -nt $(VENV)/.pip || touch $(VENV)/.run
	@touch $@

setup: $(VENV)/.run  ## set up the virtual environment in .venv, and run nothing

serve: $(VENV)/.run  ## set up, then run the gateway on its embedded store (ARGS="--config FILE" for another configuration)
	$(BIN)/penstock serve $(or $(ARGS),--config config/gateway.toml)

# As many processes as the machine has cores (one more for slow tests: tests/support/sharing.py), at most four: each may
# start servers and clients of its own.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadscope

pipeline: $(VENV)/.spark  ## set up Spark, then recordings and streams to tables and a report (ARGS="run recordings")
	$(BIN)/penstock pipeline $(or $(ARGS),run --config config/pipeline.toml)

test: $(VENV)/.pip  ## set up, say what is missing, and run ruff, mypy and the tests of a few minutes
	@$(MAKE) --no-print-directory --jobs 2 --output-sync prepared
	@PYTHONPATH=tests $(BIN)/python -m support.needs
	@$(MAKE) --no-print-directory --jobs 2 --output-sync static $(VENV)/.compiled
	TMPDIR=$$(PYTHONPATH=tests $(BIN)/python -m support.scratch) $(BIN)/python -m pytest $(PARALLEL) $(ARGS)

prepared: $(VENV)/.dev node-peers $(VENV)/.h2spec

# Compiles tests, with their assertions, on one core while mypy has the other: else each process of pytest would do it.
$(VENV)/.compiled: $(VENV)/.dev
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true
	@touch $@

test-all: $(VENV)/.dev node-peers  ## most other tests: what takes long, and the generated ones with fifteen times the examples
	$(BIN)/python -m pytest $(PARALLEL) -m 'slow and not long' $(ARGS)
	$(call GENERATED,more)

test-long: $(VENV)/.dev node-peers  ## all that takes very long, and the generated tests with a hundred times the examples
	$(BIN)/python -m pytest $(PARALLEL) -m long $(ARGS)
	$(call GENERATED,long)

define GENERATED
PENSTOCK_TEST_PROFILE=$(1) $(BIN)/python -m pytest $(PARALLEL) \
  -m 'hypothesis and not slow and not long' $(ARGS)
endef

# The parts that stand alone, in an environment of their own that ignores the lock.
test-newest:  ## the tests of codecs, captures, network and store with the newest packages that pyproject.toml allows
	@$(MAKE) --no-print-directory VENV=$(VENV)/newest LOCK=--upgrade $(VENV)/newest/.run
	$(VENV)/newest/bin/python -m pip install --quiet --upgrade --group test
	$(VENV)/newest/bin/python -m pytest $(PARALLEL) $(addprefix tests/,proto penstock_durable penstock_kafka penstock_pravega penstock_s2 penstock_s3p $(addprefix gateway/,model wire capture net store)) $(ARGS)

static: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: static  ## ruff, mypy --strict, and the rules of the house: imports, cycles, docstrings, links
	$(BIN)/python -m pytest -q --numprocesses 0 tests/architecture

lock: $(VENV)/.run  ## write the newest versions of all packages to requirements.lock
	$(BIN)/python -m pip install --dry-run --ignore-installed --quiet --report $(VENV)/report.json --editable '.[otel,spark]' --group dev
	$(PINS) <$(VENV)/report.json >requirements.lock

# What a report of pip would install, except this project.
PINS = $(BIN)/python -c 'import json, sys; found = json.load(sys.stdin)["install"]; \
  pins = ["{name}=={version}".format(**one["metadata"]) for one in found if not one["is_direct"]]; \
  print(*sorted(pins, key=str.lower), sep="\n")'

sbom: $(VENV)/.run  ## write the packages that a gateway needs, as in the lock, to dist/penstock.cdx.json (CycloneDX)
	$(INSTALL) --group shipping
	@mkdir -p dist
	$(INSTALL) --dry-run --ignore-installed --report $(VENV)/shipped.json .
	$(PINS) <$(VENV)/shipped.json >$(VENV)/shipped.txt
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file dist/penstock.cdx.json \
	  $(VENV)/shipped.txt

docs: $(VENV)/.run  ## build the site of docs/ into dist/site, with a search; a broken link is an error
	$(INSTALL) --group docs
	$(BIN)/python -m sphinx -q --fail-on-warning --keep-going --doctree-dir $(VENV)/doctrees docs dist/site
	@echo 'the site is dist/site/index.html'

pages: $(VENV)/.dev  ## write the generated pages of docs/ and config/gateway.toml
	$(BIN)/python -m penstock.app.config.document
	$(BIN)/python -m penstock.observe.metrics.document
	$(BIN)/python -m penstock.tools.wireshark
	$(BIN)/python -m penstock_spark.document
	PYTHONPATH=tests $(BIN)/python -m support.matrix_page

measure: $(VENV)/.dev  ## sizes, import cycles and six traced operations of the source
	PYTHONPATH=tests $(BIN)/python tests/architecture/measure.py

bench: $(VENV)/.dev  ## the benchmark beside redis-server and haproxy (bench/README.md)
	$(BIN)/python bench/run.py $(ARGS)

judges: $(VENV)/.dev  ## ask outside judges about a running gateway, and write docs/judges.md (ARGS="--only sslyze" asks one)
	@test -x $(VENV)/judges/bin/pip || $(BIN)/python -m venv $(VENV)/judges
	$(VENV)/judges/bin/pip install --quiet --requirement tests/judges/requirements.txt
	-npm ci --prefix tests/judges --no-audit --no-fund --loglevel=error
	PYTHONPATH=tests $(BIN)/python tests/judges/run.py $(ARGS)

soak: $(VENV)/.dev  ## ten minutes of heavy traffic while all is recorded (ARGS="--seconds 60" for less)
	$(BIN)/python bench/soak.py $(ARGS)

simulate: $(VENV)/.dev  ## a thousand runs of the store or the whole gateway on a disk that loses power (ARGS="--seeds 100000 --start 0" for more)
	PYTHONPATH=tests $(BIN)/python -m simulation.run $(ARGS)

# In an environment of its own, as the fuzzer has no wheel for some versions of Python.
fuzz:  ## a minute of coverage-guided fuzzing for each codec, captures and the configuration (ARGS="--only s3p --seconds 600")
	@$(MAKE) --no-print-directory VENV=$(VENV)/fuzz $(VENV)/fuzz/.run
	$(VENV)/fuzz/bin/python -m pip install --quiet $(LOCK) --group test --requirement tests/fuzz/requirements.txt
	PYTHONPATH=tests $(VENV)/fuzz/bin/python -m fuzz.run $(ARGS)

hostile: $(VENV)/.dev  ## how much slower others are served beside hostile clients (ARGS="--only 'rapid reset'")
	$(BIN)/python bench/hostile.py $(ARGS)

# Never fails: its tests skip themselves, and say why, where Go is not there to build it.
$(VENV)/.h2spec: $(VENV)/.pip tests/support/real_peers.py
	@PYTHONPATH=tests $(BIN)/python tests/peers/real/install.py --only h2spec --seconds 120 || true
	@touch $@

NODE_PEERS := tests/peers/node

# Never fails: the tests of these clients skip themselves, and say why, where they are not there.
node-peers:  ## the clients from npm that the tests drive
	@if ! command -v npm >/dev/null; then \
	  echo 'node-peers: npm is not installed, so the tests of the TypeScript client are skipped' >&2; \
	elif [ $(NODE_PEERS)/node_modules/.package-lock.json -nt $(NODE_PEERS)/package-lock.json ]; then :; \
	elif ! npm ci --prefix $(NODE_PEERS) --no-audit --no-fund --loglevel=error; then \
	  echo 'node-peers: npm could not install the clients, so their tests are skipped' >&2; \
	fi

peers:  ## real servers for behind the gateway, h2spec, Helm and a browser, into ~/.cache/penstock/peers; again: goes on where it stopped
	$(CHECK_PYTHON)
	@PYTHONPATH=tests $(PYTHON) tests/peers/real/install.py $(ARGS)

proto: $(VENV)/.dev  ## generate the modules from the .proto files
	cd proto && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. penstock_proto/*.proto

clean:  ## remove what make made
	rm -rf $(VENV) dist
