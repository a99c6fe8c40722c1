# Each target sets itself up: a virtual environment in .venv, made again when pyproject.toml or constraints.txt changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# On a busy two-core machine two threads ran up to 62 times slower than one.
ONE_THREAD := OMP_NUM_THREADS=1

.PHONY: help demo test test-full lint types weights bench bench-quick bench-loss bench-data bench-answers \
	bench-finetuning bench-tasks clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       the whole way in ten minutes: real poems, a vocabulary, pre-training, answers, a report"
	@echo "make test       lint, types and every quick test"
	@echo "make test-full  the same with the slow tests"
	@echo "make lint       ruff only"
	@echo "make bench      pre-training beside transformers: speed, memory (35 minutes); bench-quick: two of it"
	@echo "make bench-loss how soon a held-out loss is reached, beside transformers: two hours on two idle cores"
	@echo "make bench-answers  filling masks and making vectors beside transformers and ONNX Runtime: a table"
	@echo "make bench-data building data beside tokenizers, datasets.map and plain Python: a table"
	@echo "make bench-finetuning  fine-tuning on short texts beside the Trainer of transformers: a table"
	@echo "make bench-tasks  seven tasks fine-tuned by both, what has no summary yet: hours on one core; a table"
	@echo "make weights    fetch the model weights that some tests compare with"

demo: $(VENV)/.demo
	$(BIN)/bertkit demo --output_dir runs/demo --max_minutes 4

test: lint types
	$(ONE_THREAD) $(BIN)/python -m pytest -q

test-full: lint types
	$(ONE_THREAD) $(BIN)/python -m pytest -q -m ""

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

weights: $(VENV)/.dev
	$(BIN)/python tests/fetch_weights.py

bench: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python benchmarks/pretraining.py

bench-quick: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python benchmarks/pretraining.py --quick

bench-loss: $(VENV)/.dev
	OMP_NUM_THREADS=2 $(BIN)/python benchmarks/time_to_loss.py

bench-answers: $(VENV)/.dev
	$(ONE_THREAD) $(BIN)/python benchmarks/answers.py

bench-data: $(VENV)/.bench
	$(ONE_THREAD) $(BIN)/python benchmarks/data.py

bench-finetuning: weights
	$(ONE_THREAD) $(BIN)/python benchmarks/finetuning.py

bench-tasks: weights
	$(ONE_THREAD) $(BIN)/python benchmarks/tasks.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "bertkit needs Python 3.11 or newer: make PYTHON=python3.11"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) -e ".[dev]"
	touch $@

$(VENV)/.demo: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) -e ".[demo]"
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP_INSTALL) -e ".[bench]"
	touch $@
