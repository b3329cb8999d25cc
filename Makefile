# What one does with the project. Needs make, a network for pip, and Python 3.11 or newer; no GPU.
#   make demo      tune and benchmark the ResNet layers on the CPU, under 5 minutes; results in build/demo/
#   make test      every test that this machine can run; K=shapes: those whose names have it
#   make check     ruff and mypy
#   make bench     the committed CPU benchmarks, anew (BENCH_FLAGS="--budget 60s" to spend more)
#   make test-gpu  the device tests; with a CUDA GPU on that too
#   make profile PROBLEM=n1c512h7w7k512r3s3p1-f32 [DEVICE=cuda]   what the model and the profiler see
# Each sets up .venv once. USE_PYTHON=/path/to/python uses that interpreter as it is, and installs nothing.
# PyTorch is never installed here (its default wheel is gigabytes); it is a peer wherever it can be imported.

SHELL := bash
VENV := .venv
DEVICE ?= cpu
DEMO := build/demo
PYTEST_FLAGS ?= -n auto --maxprocesses 4 --dist worksteal

ifdef USE_PYTHON
PY := $(USE_PYTHON)
DEMO_READY :=
TEST_READY :=
CUDA_READY :=
else
PY := $(VENV)/bin/python
DEMO_READY := $(VENV)/.demo-ready
TEST_READY := $(VENV)/.test-ready
CUDA_READY := $(VENV)/.cuda-ready
# The first interpreter that runs and is new enough.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
endif

.PHONY: help demo test check bench test-gpu profile clean

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

demo: $(DEMO_READY)
	@mkdir -p $(DEMO)
	$(PY) -m tilewright bench resnet --device cpu --peers onnxruntime,onednn --budget 10s \
		--json $(DEMO)/resnet-f32.json --markdown $(DEMO)/resnet-f32.md --plot $(DEMO)/resnet-f32.svg

# Tests start many processes: what they import is compiled once, even where the environment says otherwise. All their
# kernels are kept from run to run, a GB of them.
test: $(TEST_READY)
	OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= TILEWRIGHT_CACHE_MIB=4096 $(PY) -m pytest $(PYTEST_FLAGS) $(if $(K),-k "$(K)")

check: $(TEST_READY)
	$(PY) -m ruff check
	$(PY) -m mypy

bench: $(DEMO_READY)
	$(PY) -m tilewright bench resnet --device cpu $(BENCH_FLAGS) --json benchmarks/cpu/resnet-f32.json
	$(PY) -m tilewright bench yolo9000 --device cpu $(BENCH_FLAGS) --json benchmarks/cpu/yolo9000-f32.json
	$(PY) benchmarks/make_tables.py

test-gpu: $(TEST_READY) $(CUDA_READY)
	$(PY) -m pytest tests/device $(PYTEST_FLAGS) -n 0

profile: $(DEMO_READY) $(if $(filter cuda%,$(DEVICE)),$(CUDA_READY))
	@test -n "$(PROBLEM)" || { echo 'error: say which layer: make profile PROBLEM=n1c512h7w7k512r3s3p1-f32' >&2; exit 2; }
	$(PY) -m tilewright profile "$(PROBLEM)" --device $(DEVICE)

$(VENV)/.made:
	@echo "setting up $(VENV), once; pip takes a minute or two …"
	@test -n "$(PYTHON)" || { echo 'error: no Python 3.11 or newer with the venv module was found; install one' \
		'(Debian: apt install python3 python3-venv) or name it: make PYTHON=/path/to/python3.11' >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(DEMO_READY): pyproject.toml | $(VENV)/.made
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[onnx,plot]'
	@touch $@

$(TEST_READY): pyproject.toml | $(VENV)/.made
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev,onnx,plot]'
	@touch $@

$(CUDA_READY): pyproject.toml | $(VENV)/.made
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[cuda]'
	@touch $@

clean:
	rm -rf build .mypy_cache .pytest_cache .ruff_cache
