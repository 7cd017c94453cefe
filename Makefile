# Everything runs inside the clone: .venv, .cache and saved_model are made here and nowhere else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL_NAME := efficientnet_lite0
MODEL_BASE_PATH := $(CURDIR)/saved_model/$(MODEL_NAME)
PORT ?= 8500
REST_API_PORT ?= 8501

.PHONY: help install demo bake serve check test clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## Make .venv with the exporter, the server and the client.

demo: $(VENV)/.installed ## Bake EfficientNet-Lite0, serve it, ask it about two photos, stop.
	@$(BIN)/python tools/demo.py

bake: $(VENV)/.installed ## Bake EfficientNet-Lite0 unless a version is published already.
	@ls $(MODEL_BASE_PATH)/[0-9]*/saved_model.pb >/dev/null 2>&1 || $(BIN)/python -m exporter bake --model efficientnet-lite0

serve: bake ## Serve EfficientNet-Lite0 in the foreground: gRPC on 8500, REST on 8501.
	exec $(BIN)/python -m serving --port=$(PORT) --rest_api_port=$(REST_API_PORT) \
		--model_name=$(MODEL_NAME) --model_base_path=$(MODEL_BASE_PATH)

check: $(VENV)/.installed-dev ## Lint, types and import rules.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(VENV)/.installed-dev ## All tests that need Python alone.
	$(BIN)/python -m pytest

clean: ## Remove what make has made, published models excepted.
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[export,serve,demo]'
	@touch $@

# The labelled photos of foolbox are test data; the package itself is not used, so its dependencies stay away.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[export,serve,demo,dev]'
	$(BIN)/python -m pip install --quiet --no-deps foolbox==3.3.4
	@touch $@
