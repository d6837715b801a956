# Two commands set everything up and do the work: `make demo` and `make test`.
PYTHON ?= python3
ENV := .venv
BIN := $(ENV)/bin
export OMP_NUM_THREADS ?= 2
export PYTHONUNBUFFERED = 1
TEST_PROCESSES ?= 2

.DEFAULT_GOAL := help
.PHONY: help env demo test lint bench fuzz clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

env: $(ENV)/ready ## the environment, with exact versions

$(ENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(ENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[tensorflow,onnx,hf,ray,cp-sat,dev]'
	touch $@

demo: env ## capture two real models, place them, fine-tune with real timing, write the report
	$(BIN)/gdp demo

lint: env ## style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## every check; what CI runs
	bash tests/browser.sh
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --cov --cov-report=term:skip-covered
	bash tests/wheel.sh $(BIN)/python

bench: env ## the benchmarks behind the published figures
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/agreement.py
	$(BIN)/python benchmarks/grappler.py
	$(BIN)/python benchmarks/tensorflow_order.py
	$(BIN)/python benchmarks/zero_shot.py --out benchmarks/results/zero_shot.json
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/kill_resume.py --out benchmarks/results/kill_resume.json
	$(BIN)/python benchmarks/runtime.py
	$(BIN)/python benchmarks/sim_to_real.py
	$(BIN)/python benchmarks/timing.py
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/gpu.py

fuzz: env ## 100 000 hostile files for every reader (an hour or two; `make test` tries a few hundred)
	$(BIN)/python -m tests.fuzz.run --inputs 100000 --out benchmarks/results/fuzz.json

clean: ## remove what was built
	rm -rf $(ENV) dist build runs outputs .pytest_cache .mypy_cache .ruff_cache
