# The course: `make lab`. The checks of its maintainers: `make test`. Everything else: `make help`.
# Works with GNU make 3.81 (macOS) and in a folder whose name has spaces.

.DEFAULT_GOAL := help
SHELL := /bin/sh
.SUFFIXES:

PYTHON ?=
TENSORFLOW ?=
ARGS ?=
NAMES ?=
ROWS ?=
ONLY ?=
# Processes of pytest; conftest.py counts cores and memory.
JOBS ?= auto
export TENSORFLOW

BIN := .venv/bin
# conftest.py sorts the files, the slow ones first; xdist must not sort them again.
BESIDE = peers hub nbgrader
BENCHMARKS = links limits timing training telemetry simulator collectives pipelines player launch
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --no-loadscope-reorder -rfEs

# The first candidate that runs and fits, because a name on the path may be a shim that only fails.
# The environment that is there comes first; what does not fit may say why, and the last reason counts.
define INSTALL
why=; chosen=; \
for python in $(if $(PYTHON),'$(PYTHON)',$(BIN)/python python3 python3.13 python3.12 python3.11); do \
  if said=$$("$$python" requirements/install.py --fits 2>/dev/null); then chosen=$$python; break; fi; \
  why=$${said:-$$why}; \
done; \
if [ -z "$$chosen" ]; then \
  echo "labkit: $${why:-$(if $(PYTHON),PYTHON=$(PYTHON) is not a Python 3.11$(comma) 3.12 or 3.13 that runs: give the path of one.,needs Python 3.11$(comma) 3.12 or 3.13 and none of python3 and python3.11 to 3.13 runs here: install one$(comma) or name yours: make lab PYTHON=/path/to/python3.12)}" >&2; \
  exit 1; \
fi; \
"$$chosen" requirements/install.py
endef
comma := ,

.PHONY: help
help: ## this list
	@echo "make lab            the course, in JupyterLab (ARGS=\"--no-browser --port 9999\" are passed on)"
	@echo "make test           everything that must hold: lint, types, unit tests, every notebook"
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | grep -v -e '^lab|' -e '^test|' -e '^help|' \
	  | awk -F'|' '{ printf "make %-14s %s\n", $$1, $$2 }'
	@echo
	@echo "PYTHON=/path/to/python3.12 chooses the interpreter, TENSORFLOW=cpu or cuda the build."

.PHONY: lab
lab: ## the course, in JupyterLab
	@$(INSTALL) lab
	@exec $(BIN)/labkit lab $(ARGS)

.PHONY: setup
setup: ## only install what `make lab` needs
	@$(INSTALL) lab

.PHONY: setup-test
setup-test: ## only install what `make test` needs
	@$(INSTALL) test

.PHONY: test
test: setup-test ## everything that must hold
	@$(PYTEST) -m "not browser and not stress" $(ARGS)

.PHONY: check
check: setup-test ## lint, format and types
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary

.PHONY: unit
unit: setup-test ## the unit tests
	@$(PYTEST) tests --ignore=tests/browser $(ARGS)

.PHONY: notebooks-test
notebooks-test: setup-test ## run the notebooks and compare their outputs (nbval)
	@$(PYTEST) notebooks $(ARGS)

.PHONY: browser
browser: setup-test ## run the notebooks, the panel and the player in JupyterLab in headless Chromium
	@$(PYTEST) --dist load tests/browser $(ARGS)

.PHONY: stress
stress: setup-test ## the tests that repeat, enlarge and race
	@$(PYTEST) -m stress $(ARGS)

.PHONY: vary
vary: setup-test ## notebooks and exercises under varied conditions (ROWS="digits busy" for some, ROWS=list)
	@JOBS=$(JOBS) $(BIN)/python .ci/vary.py $(ROWS) $(if $(ONLY),--only $(ONLY)) $(ARGS)

.PHONY: bench
bench: setup-test ## labkit against its peers (ARGS=--quick: each under a minute)
	@for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py $(ARGS) || exit 1; done

.PHONY: frameworks
frameworks: setup ## build the environments of PyTorch, Flower and Horovod (4 GB, 15 minutes)
	@$(BIN)/labkit env build torch flower horovod

.PHONY: setup-website
setup-website: ## what `make website` and `labkit slides` need
	@$(INSTALL) website

.PHONY: website
website: setup-website ## the course as a web site that opens from a disk: build/website and build/labkit-website.zip
	@$(BIN)/python -m labkit.kit.website

.PHONY: beside
beside: setup-test ## environments for tests of the course kit, in .venv (NAMES="hub" for some)
	@$(BIN)/python requirements/beside.py $(or $(NAMES),$(filter-out peers,$(BESIDE)))

.PHONY: images
images: setup ## redraw images/ with their scripts (NAMES="one_step kinds" for some)
	@$(BIN)/python images/draw.py $(NAMES)

.PHONY: notebooks
notebooks: setup ## run the notebooks and save their outputs (NAMES="10 12" for some)
	@$(BIN)/labkit notebooks $(NAMES)
	@$(BIN)/python notebooks/glossary.py
	@$(BIN)/python notebooks/minutes.py

# The newest versions that pyproject.toml allows, with hashes, for every supported platform, and the
# same on every supported Python (--fork-strategy fewest).
# lab-cuda is lab with the other build of TensorFlow; test may not disagree with either.
# rfc3987-syntax (with lark) checks addresses in JSON schemas: 1.3 s for each start of JupyterLab, no use here.
LOCK := pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes --no-header --no-annotate --upgrade \
  --no-emit-package rfc3987-syntax --no-emit-package lark
.PHONY: lock
lock: setup ## renew requirements/*.txt, environments/*/lock.txt and environment.yml
	@$(BIN)/python -m venv .venv/lock
	@.venv/lock/bin/pip install --quiet uv
	@.venv/lock/bin/uv $(LOCK) pyproject.toml --group build --group mpi -o requirements/lab.txt
	@.venv/lock/bin/uv $(LOCK) pyproject.toml --group build --group mpi --group cuda -c requirements/lab.txt \
	  --no-emit-package tensorflow-cpu -o requirements/lab-cuda.txt
	@.venv/lock/bin/uv $(LOCK) --group test -c requirements/lab.txt -o requirements/test.txt
	@.venv/lock/bin/uv $(LOCK) --group website -c requirements/lab.txt -c requirements/test.txt -o requirements/website.txt
	@for name in $(BESIDE); do \
	  .venv/lock/bin/uv $(LOCK) --group $$name -c requirements/lab.txt -o requirements/$$name.txt || exit 1; \
	done
	@grep == requirements/lab.txt | grep -v ^setuptools | tr -d '\\' > .venv/lock/lab.txt  # torch has a limit of its own
	@.venv/lock/bin/uv $(LOCK) -c .venv/lock/lab.txt environments/torch/packages.in -o environments/torch/lock.txt
	@for name in horovod flower; do \
	  .venv/lock/bin/uv $(LOCK) environments/$$name/packages.in -o environments/$$name/lock.txt || exit 1; \
	done
	@rm -rf .venv/lock
	@$(BIN)/python requirements/environment.py
	@echo "Renewed: requirements/*.txt and environment.yml. Now: make test"

VERSION = $$($(BIN)/python -c 'import labkit; print(labkit.__version__)')
.PHONY: release
release: setup-website ## the files of a release in dist/, and its tag; pushes nothing
	@test -z "$$(git status --porcelain)" || { echo "labkit: commit or remove what git status lists, and try again." >&2; exit 1; }
	@grep -q "^## $(VERSION)" CHANGELOG.md || { echo "labkit: CHANGELOG.md has no section ## $(VERSION): name the unreleased one so." >&2; exit 1; }
	@$(MAKE) --no-print-directory website
	@rm -rf dist
	@$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@cp build/labkit-website.zip "dist/labkit-website-$(VERSION).zip"
	@git archive --format=zip -o "dist/labkit-recordings-$(VERSION).zip" HEAD notebooks/recordings notebooks/programs/recordings notebooks/written/recordings
	@git tag -a "v$(VERSION)" -m "labkit $(VERSION)"
	@echo "Tagged v$(VERSION) here; dist/ has the files. To publish: git push origin v$(VERSION), and upload them."

.PHONY: clean
clean: ## remove the environment and everything that can be made again
	@rm -rf .venv environments/*/.venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find labkit tests notebooks requirements benchmarks \( -name __pycache__ -o -name .ipynb_checkpoints \) \
	  -prune -exec rm -rf {} + 2>/dev/null || true
