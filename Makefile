# Everything here sets up .venv by itself, once; see tools/set_up.py.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two more than the cores of a small machine: tests of the node often wait for it.
TEST_WORKERS ?= 4
SET_UP_FROM := $(wildcard tools/*.py tools/constraints.txt tools/hashes.txt tools/interfaces/*.in tools/interfaces/*/*/*) setup.py package.xml

# A shell that was started by another environment of ROS 2 wheels hands on that one's libraries.
ifdef _ROS_WHEELS_BOOTSTRAP_COMPLETE
unexport LD_LIBRARY_PATH
unexport _ROS_WHEELS_BOOTSTRAP_COMPLETE
endif
# Without a sourced ROS 2 installation the environment is where ROS's resources are.
AMENT_PREFIX_PATH ?= $(abspath $(VENV))
export AMENT_PREFIX_PATH

.PHONY: help demo shell notebooks test coverage lint format bench soak fuzz docs docs-figures node-reference lock clean
help:
	@echo "make demo    simulate, map, run the node, evaluate: the whole product in one go"
	@echo "make shell   a shell in which kbf is found"
	@echo "make notebooks  open copies of the examples in Jupyter"
	@echo "make test    run the tests"
	@echo "make coverage  the tests, with the lines and branches that they do not reach"
	@echo "make lint    check style, types, layers and dead code"
	@echo "make format  put style right"
	@echo "make bench   measure speed"
	@echo "make soak    a day of odometry and images offline, an hour through the node, 200 signals to it"
	@echo "make fuzz    feed every parser with changed files, FUZZ_SECONDS=60 for each"
	@echo "make lock    renew the hashes of the pinned packages; UPGRADE=--upgrade: their versions too"
	@echo "make docs    make the site, build/site/index.html"
	@echo "make docs-figures  write the pages' tables of figures from docs/figures"
	@echo "make node-reference  write docs/node.md and config/localization.yaml from the node itself"
	@echo "make clean   remove .venv and everything built"

demo: $(VENV)/ready-run
	$(BIN)/kbf demo

shell: $(VENV)/ready-run
	@echo "kbf is found here; leave with exit"
	@. $(BIN)/activate && $${SHELL:-/bin/sh} -i

# Copies, so that the stored outputs in examples/ stay as they are; changed copies are kept.
notebooks: $(VENV)/ready-notebooks
	@mkdir -p build/notebooks
	@for file in examples/*.ipynb; do \
		test -e build/notebooks/$${file##*/} || cp $$file build/notebooks/; \
	done
	$(BIN)/jupyter lab --notebook-dir build/notebooks $(JUPYTER_ARGUMENTS)

# With bytecode in the environment's folder, as test/conftest.py has it, from the first import on.
test: $(VENV)/ready-dev
	PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath $(VENV))/bytecode $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadscope --no-loadscope-reorder $(PYTEST_ARGUMENTS)

# For the command line's arguments too, which a plain += would not reach.
coverage: override PYTEST_ARGUMENTS += --cov --cov-report=term
coverage: test

lint: $(VENV)/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/vulture

format: $(VENV)/ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/ready-dev
	$(BIN)/kbf bench

soak: $(VENV)/ready-dev
	KBF_SOAK_HOURS=24 KBF_SOAK_MINUTES=60 KBF_SIGNAL_TRIALS=200 $(BIN)/python -m pytest -s --timeout 0 \
		test/localization/test_long_drive.py test/ros/test_node_soak.py test/ros/test_localizer_node_signals.py

# What fails is kept in .hypothesis and tried first the next time, in `make test` too.
FUZZ_SECONDS ?= 60
fuzz: $(VENV)/ready-dev
	KBF_FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m pytest -n 2 -m fuzz --timeout 0 $(PYTEST_ARGUMENTS)

lock: $(VENV)/ready-dev
	$(BIN)/python tools/lock.py $(UPGRADE)

docs: $(VENV)/ready-docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/site
	@echo "Made build/site/index.html"

docs-figures: $(VENV)/ready-dev
	$(BIN)/python tools/make_docs_figures.py

node-reference: $(VENV)/ready-dev
	$(BIN)/python tools/make_node_reference.py

clean:
	rm -rf $(VENV) .venv-* build install log *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/ready-run: $(SET_UP_FROM)
	@$(call set_up,run)

$(VENV)/ready-dev: $(SET_UP_FROM)
	@$(call set_up,dev)

$(VENV)/ready-docs: $(SET_UP_FROM)
	@$(call set_up,docs)

$(VENV)/ready-notebooks: $(SET_UP_FROM)
	@$(call set_up,notebooks)

define set_up
command -v $(PYTHON) >/dev/null || { echo "Set-up: there is no $(PYTHON); install Python 3.10 or newer" >&2; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Set-up: $$($(PYTHON) --version 2>&1) is too old; install Python 3.10 or newer and name it: make PYTHON=python3.12 …" >&2; exit 1; }; \
$(PYTHON) tools/set_up.py $(VENV) $(1)
endef
