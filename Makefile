# Two commands do all the set-up: `make serve` and `make test`. `make help` lists the others.
PYTHON ?= python3
VENV   ?= .venv
DATA   ?= shoal-data
PORT   ?= 8000
BIN    := $(VENV)/bin
PAPERS ?= --quick
# Processes that run tests: twice as many as there are processors, as many tests wait for servers.
JOBS   ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')

# One BLAS thread per process, unless you set another number. On a busy machine, more threads make it much slower.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
ifneq ($(wildcard ../shared/data),)
export SHOAL_DATA ?= $(abspath ../shared/data)
endif

.PHONY: help serve test test-slow soak check format docs bench papers wheel clean compose-test audit
.DEFAULT_GOAL := help

help:            ## show this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | awk -F'\t' '{printf "make %-12s %s\n", $$1, $$2}'

serve: $(VENV)/.service ## install if necessary, then serve on 127.0.0.1:$(PORT) with the data in $(DATA)/
	@exec $(BIN)/shoal serve --port $(PORT) --data $(DATA)

# The tests start hundreds of processes. Without compiled Python on disk each of them would compile shoal's source again.
test test-slow: export PYTHONDONTWRITEBYTECODE =

test: $(VENV)/.dev      ## run all tests except the slow ones
	@sh tests/ensure_redis.sh
	$(BIN)/python -m pytest -m "not slow" -n $(JOBS) --dist loadfile --no-loadscope-reorder

test-slow: $(VENV)/.dev ## run the slow tests: statistical and soak tests in their long form
	$(BIN)/python -m pytest -m slow -n $(JOBS) --dist loadfile --no-loadscope-reorder

soak: $(VENV)/.dev      ## run the long forms of the proofs: thousands of schedules, hundreds of kills, flipped bytes (minutes)
	$(BIN)/python -m pytest -m slow tests/system tests/simulation tests/service tests/contract -n $(JOBS) --dist loadfile --no-loadscope-reorder

check: $(VENV)/.dev     ## check format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev    ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev      ## build the documents as a site, into build/docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

compose-test:    ## build the image and test docker-compose.yml (needs a Docker engine with Compose v2)
	@$(PYTHON) docker/try_compose.py || { [ $$? = 77 ]; }

audit: $(VENV)/.dev     ## look for known weaknesses of the pinned packages (needs pip-audit and its database on the network)
	@sh tests/audit.sh $(BIN)/python constraints.txt

bench: $(VENV)/.dev     ## compare shoal with other programs, into benchmarks/results/peers.csv (hours; BENCH=--quick: minutes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt matplotlib river
	$(BIN)/python benchmarks/peers/run.py $(BENCH)

papers: $(VENV)/.dev    ## repeat the papers' experiments, quick forms, into benchmarks/results/papers/ (PAPERS=: full, hours)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt matplotlib river
	@for name in fast_vdp_figures collapsed_figures blei_jordan against_sklearn $(if $(SHOAL_DATA),fast_vdp_mnist fast_vdp_topics daume lin nips_prior every_engine); do \
	  echo "$$name $(PAPERS)"; $(BIN)/python benchmarks/papers/$$name.py $(PAPERS) || exit 1; done

wheel: $(VENV)/.dev     ## build the wheel and the source archive in dist/
	$(BIN)/python -m build --no-isolation

clean:           ## delete the virtual environment and the build output, but not the data
	rm -rf $(VENV) dist build

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "shoal needs Python 3.11 or later, and $(PYTHON) is $$($(PYTHON) -V 2>&1). Name a later one: make PYTHON=python3.11 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) has no module venv. On Debian, run as root: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.service: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[service]'
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.service
