# Everything that people and CI run. Needs make and Python 3.11 or later; all else goes into $(VENV).
# Another interpreter wants a folder of its own: make test PYTHON=python3.13 VENV=.venv313

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# More for pytest or the bench: make test ARGS="-k resume -x"
ARGS ?=
# One worker for each core; WORKERS=0 runs the tests in one process, as a debugger wants it.
WORKERS ?= auto
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without this, pyright asks the network for a newer version of itself at every run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help demo test proof coverage check dist matrix format bench clean

help:
	@echo "make demo      see it work: no key, no network"
	@echo "make test      the tests, in parallel"
	@echo "make proof     the long ones: many examples, all kills, all races"
	@echo "make coverage  the tests, and how much of the code they run"
	@echo "make dist      build the wheel and the sdist, and try the wheel"
	@echo "make matrix    a short run on other Pythons, uvloop and the oldest msgspec"
	@echo "make check     format, lint, types, tests with coverage, wheel; CI adds proof and matrix"
	@echo "make format    put the code into shape"
	@echo "make bench     speed and size, beside others"
	@echo "make clean     remove what make made"

demo: $(VENV)/.runtime
	@$(BIN)/adjourn demo

test: $(VENV)/.dev
	$(PYTEST)

proof: $(VENV)/.dev
	ADJOURN_TESTS=proof $(PYTEST) -m "hypothesis or proof"

# Command lines and examples are processes of their own: each writes its own data, put together at the end. What
# `make proof` does is slow to trace, and reaches nothing that the others do not.
coverage: $(VENV)/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal -m "not proof" $(ARGS)
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
	$(MAKE) coverage dist

format: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.runtime
	@$(BIN)/python -m bench $(ARGS)

clean:
	@if [ -f $(VENV)/pyvenv.cfg ]; then rm -rf $(VENV); fi
	@rm -rf build dist .coverage .coverage.* .hypothesis .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are what is installed. `dev` holds all of `runtime`, so it stands for both.
$(VENV)/.runtime: pyproject.toml | $(BIN)/pip
	@echo "Installing Adjourn into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	@echo "Installing Adjourn and its development tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(VENV)/.runtime $@

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Adjourn needs Python 3.11 or later, and '$(PYTHON)' is not. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
