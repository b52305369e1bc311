# Sunshower's commands for a clone: needs Python 3.11 or newer and make, and installs the rest.
.DEFAULT_GOAL := help
.PHONY: help setup demo test one-by-one test-all test-ci mutants check docs format bench bench-all endurance simulate clean

PYTHON ?=
ARGS ?=
EXTRAS ?=
SEEDS ?=
HOURS ?=
AGAIN ?=
BIN := .venv/bin
ONE_PROCESS := not ray and not servers and not spark and not mutants
SHORT := and not long
FEW := 1
# With AGAIN=1: if at most three tests fail, they are run once more, alone, and must pass.
ONCE_MORE = $(if $(AGAIN),|| { [ $$? -eq 1 ] && $(BIN)/python -m tests.again --sunshower-seeds $(or $(SEEDS),$(FEW)); })
CHECKED := tests/structure tests/docs/test_site.py
# Where images set this, every process of every topology would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
# The file pins what pip builds with, too; `-c` would not reach there. Python compiles a module when
# it is first imported: to compile all of them takes pip 15 s, and few are ever imported.
comma := ,
WANTED := $(subst $(comma), ,$(EXTRAS))
PINS := $(if $(filter spark4,$(WANTED)),constraints-spark4.txt,constraints.txt)
PIP = PIP_CONSTRAINT=$(PINS) $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c $(PINS)

ifneq ($(and $(filter spark4,$(WANTED)),$(filter spark all dev,$(WANTED))),)
$(error spark4 is PySpark 4, and spark (also in all and dev) is PySpark 3.5 with RayDP: an environment has one of them)
endif

help:  ## show this list
	@echo "make <target> [ARGS='…'] [EXTRAS=kafka,spark] [SEEDS=1000] [HOURS=1] [PYTHON=/path/to/python3.11]"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' Makefile | expand -t 12

setup: .venv/.core  ## make .venv with the core (Ray, numpy, msgpack, Arrow, the command line) and EXTRAS
ifneq ($(strip $(EXTRAS)),)
	@echo "Adding $(EXTRAS) …"
	@$(PIP) -e '.[$(EXTRAS)]'
endif
	@echo "Ready: source .venv/bin/activate, then sunshower --help"

demo: .venv/.core  ## count words on Ray, kill a worker, and check that no line is lost
	@$(BIN)/sunshower demo $(ARGS)

test: .venv/.dev  ## run the tests but the long ones and those of check, with a real Ray, Kafka, ZooKeeper and Spark
ifeq ($(strip $(ARGS)),)
	@echo "Running the tests that need one process, on all processors …"
	@$(BIN)/python -m pytest -n auto --dist worksteal --sunshower-seeds $(or $(SEEDS),$(FEW)) -m "$(ONE_PROCESS) $(SHORT)" $(CHECKED:%=--ignore=%) $(ONCE_MORE)
	@echo "Running the tests on a real Ray, a real Spark and real servers, in three processes …"
	@$(BIN)/python -m pytest -n 3 --dist loadgroup --sunshower-seeds $(or $(SEEDS),$(FEW)) -m "(ray or spark or servers) $(SHORT)" $(ONCE_MORE)
else
	@$(BIN)/python -m pytest $(ARGS)
endif

mutants: .venv/.dev  ## break the code on purpose, and check that the simulator finds each fault
	@$(BIN)/python -m pytest -n auto --dist worksteal -m mutants $(ARGS)

one-by-one: .venv/.dev  ## run the tests of stages without generated code
	@$(BIN)/python -m pytest -n auto --dist worksteal --one-by-one -m "$(ONE_PROCESS) and not long" tests/topologies tests/trident tests/guarantee tests/testing

test-all: SHORT :=
test-all: FEW := 8
test-all: test one-by-one mutants  ## run the tests, the long ones too, with 8 seeds each (SEEDS=8), and the mutants

test-ci: .venv/.dev  ## run tests in one process with the lowest versions, and with the newest Python and the demo
	@$(BIN)/python -m tests.other_versions $(ARGS)

check: .venv/.dev  ## ruff, mypy --strict, the structure tests, and the site's links
	@echo "Checking the code: ruff …"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "Checking the types: mypy --strict …"
	@$(BIN)/mypy --strict sunshower
	@echo "Checking the structure (imports, sizes, first sentences, links) and the documentation site …"
	@$(BIN)/python -m pytest -n auto --dist loadfile $(CHECKED)

docs: .venv/.dev  ## build the documentation site in build/site, and start at its index.html
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site . build/site
	@echo "Built: build/site/index.html"

format: .venv/.dev  ## format the code with ruff, and fix what it can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: .venv/.dev  ## measure beside a bare loop and Bytewax (15 minutes), write docs/PERFORMANCE.md, find slower ratios
	@$(BIN)/python -m benchmarks $(ARGS)

bench-all: .venv/.dev  ## measure everything, also beside Storm, streamparse, Flink, PyFlink, Quix, Faust, Pathway, Spark
	@$(BIN)/python -m benchmarks --all $(ARGS)

NODES = partition_master partition_peers slow_network \
	node_lost node_cut_off node_cut_off_shortly head_restarted
endurance: .venv/.dev  ## inject faults, overload and outages for longer (HOURS=1: in one run), and count what is lost
ifneq ($(strip $(HOURS)),)
	@$(BIN)/python -m benchmarks.outages $(NODES) --seconds 120
	@$(BIN)/python -m benchmarks.endurance --hours $(HOURS) $(ARGS)
else ifeq ($(filter-out --long,$(ARGS)),)
	@$(BIN)/python -m benchmarks.endurance
	@echo "Outages and overload on a real Ray …"
	@$(BIN)/python -m benchmarks.outages $(ARGS)
	@echo "Overload and outages in the simulator …"
	@$(BIN)/python -m benchmarks.overload overload $(if $(ARGS),--seeds 10000)
	@$(BIN)/python -m benchmarks.overload outages $(if $(ARGS),--seeds 10000)
else
	@$(BIN)/python -m benchmarks.endurance $(ARGS)
endif

simulate: .venv/.core  ## inject faults in the simulator, SEEDS=1000, and look for lost tuples
	@$(BIN)/sunshower simulate examples/simulated_word_count.py --seeds $(or $(SEEDS),1000) $(ARGS)
	@$(BIN)/sunshower simulate examples/simulated_relay.py --seeds $(or $(SEEDS),1000) $(ARGS)

clean:  ## remove .venv and every cache
	@rm -rf sunshower/*.so .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "Removed .venv and the caches."

# A stamp file marks a step as done, for this pyproject.toml and these constraints.
.venv/.core: pyproject.toml constraints.txt hatch_build.py sunshower/_record_loops.c | .venv/bin/python
	@echo "Installing the core into .venv (about 150 MB to fetch, once): Ray, numpy, msgpack, Arrow, typer, rich …"
	@$(PIP) -e .
	@$(BIN)/python -c 'from sunshower.record_loops import compiled; print("The core is compiled." if compiled else "The core is not compiled, because there is no C compiler or no Python.h: all works, more slowly.")'
	@touch $@

.venv/.dev: .venv/.core
	@echo "Adding what the tests and benchmarks need (once): pytest, hypothesis, mypy, ruff, uv, Bytewax, clients and Java for Kafka and ZooKeeper, PySpark (317 MB) …"
	@$(PIP) -e '.[dev]'
	@touch $@

.venv/bin/python:
	@python=; \
	for candidate in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python); do \
	  if $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Sunshower needs Python 3.11 or newer with its venv module; $(if $(PYTHON),$(PYTHON) is not that,none of python3.11 to python3.14 and python3 is that)." >&2; \
	  echo "Install it (Debian, Ubuntu: python3.11 and python3.11-venv;" >&2; \
	  echo "anywhere: pyenv install 3.11, or uv python install 3.11), then run" >&2; \
	  echo "    make setup PYTHON=/path/to/python3.11" >&2; \
	  exit 1; \
	fi; \
	echo "Making .venv with $$($$python --version) …"; \
	$$python -m venv .venv
