VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# Executed copies; every notebook leaves its figures in figures/ by itself.
EXECUTED := build/notebooks
SITE := build/site

# Modules are compiled and stored when they are first used. Compiling all of them at the installation takes a minute.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install figures redraw figures-real figures-smollm2 figures-gemma model-figures notebook lab test test-all trials lint lint-javascript format docs docs-numbers world models golden ladder screenshots clean

help:  ## show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

install: $(VENV)/.installed  ## set up .venv with the tested versions of what notebooks need

# The package as it lies here, and then what an extra of it needs; a target that needs more than notebooks do adds the rest.
$(VENV)/.package: pyproject.toml setup.py constraints.txt
	@$(PYTHON) -m venv $(VENV) && .ci/install $(VENV) .package "$^" --no-deps --editable .
$(VENV)/.installed: $(VENV)/.package
	@.ci/install $(VENV) .installed "$^" "pro-workbench[notebooks]"
$(VENV)/.installed-%: $(VENV)/.package
	@.ci/install $(VENV) .installed-$* "$^" "pro-workbench[$*]"

# Runs that several notebooks read, a target each; the notebooks of `figures` come after those that they read.
# The bundled models are too small to gain from a second thread, and one thread gives the same bytes on every machine of a
# kind. Another kind of processor rounds otherwise: no AUROC of `figures` was seen to move by more than 0.0002.
NOTEBOOKS := $(basename $(notdir $(wildcard notebooks/[0-9]*.ipynb)))
GENERATED := run-2m-beams run-2m-samples run-1m run-search
RUN := OMP_NUM_THREADS=1 $(BIN)/python -m pro_lib

# Answers are generated while the packages for notebooks are installed.
figures: $(VENV)/.installed-models  ## the main job: run every notebook headless, three at a time, leave figures/
	@$(MAKE) --no-print-directory -j3 install $(NOTEBOOKS:%=notebook-%)

run-2m-beams:
	@$(RUN) generate facts-2m diverse_beam greedy
run-2m-samples:
	@$(RUN) generate facts-2m multinomial
run-1m:
	@$(RUN) generate facts-1m diverse_beam greedy multinomial
run-search:
	@$(RUN) generate facts-2m threshold --dataset world-facts --search-alpha 0.005

notebook-00_explore_examples notebook-01_generate: | run-2m-beams
notebook-%: install | $(GENERATED)
	@$(RUN) run --executed $(EXECUTED) $*

# What is drawn of published outputs of large models, and of which.
REAL_NOTEBOOKS := 02 03 04 06 09 11 12
comma := ,
REAL := $(foreach name,gpt-3.5-turbo_nq-open gpt-3.5-turbo_meadow Llama-2-7b-chat-hf_nq-open,"$(CURDIR)/data/published/$(name).jsonl"$(comma))

figures-real: install  ## the figures of real models, from published outputs that it downloads once
	@$(BIN)/python data/published/make.py
	@for n in $(REAL_NOTEBOOKS); do $(BIN)/python -m pro_lib run --executed $(EXECUTED)/real_models $$n \
		-p records '[$(REAL)]' -p figures_dir "$(CURDIR)/figures/real_models" || exit 1; done
	@$(BIN)/python -m pro_lib run --executed $(EXECUTED)/real_models 08 \
		-p records '[$(firstword $(REAL))]' -p figures_dir "$(CURDIR)/figures/real_models"

# The figures of a real model MODEL in figures/FOLDER. SciQ and Natural Questions are LitCab's text files in LITCAB=folder;
# without them only world-facts is asked.
LITCAB_SETS := $(if $(LITCAB),$(CURDIR)/build/litcab/sciq.txt $(CURDIR)/build/litcab/nq.txt)
MODEL_SETS := world-facts $(LITCAB_SETS)
MODEL_NOTEBOOKS := 01 02 03 04 05 06 07 09 11 12
MODEL_FIGURES = -p limit 1000 -p figures_dir "$(CURDIR)/figures/$(FOLDER)"

figures-smollm2: MODEL := smollm2-135m
figures-smollm2: FOLDER := smollm2
figures-smollm2: model-figures  ## the figures of SmolLM2-135M (93 MB, 1 to 3 hours); LITCAB=folder adds SciQ and NQ
figures-gemma: MODEL := gemma-3-270m
figures-gemma: FOLDER := gemma-3-270m
figures-gemma: model-figures  ## the figures of Gemma 3 270M (253 MB, 2 to 6 hours); LITCAB=folder adds SciQ and NQ

model-figures: install
	@$(BIN)/python -m pro_lib download $(MODEL) $(DOWNLOAD_ARGS)
	@$(if $(LITCAB),mkdir -p build/litcab && cp $(LITCAB)/sciq/test.txt build/litcab/sciq.txt && cp $(LITCAB)/NQ/test.txt build/litcab/nq.txt)
	@$(BIN)/python -m pro_lib generate $(MODEL) greedy threshold diverse_beam multinomial --search-alpha 0.005 --limit 1000 \
		$(MODEL_SETS:%=--dataset %)
	@for n in $(MODEL_NOTEBOOKS); do $(BIN)/python -m pro_lib run --executed $(EXECUTED)/$(FOLDER) $$n \
		-p model '["$(MODEL)"]' -p dataset '[$(foreach set,$(MODEL_SETS),"$(set)"$(comma))]' $(MODEL_FIGURES) || exit 1; done
	@for n in 00 08; do $(BIN)/python -m pro_lib run --executed $(EXECUTED)/$(FOLDER) $$n -p model $(MODEL) $(MODEL_FIGURES) || exit 1; done

redraw: install  ## draw all figures anew from their CSV files, without a model
	@$(BIN)/python docs/redraw.py figures figures/smollm2 figures/gemma-3-270m figures/real_models

notebook: install  ## run one: make notebook N=02 ARGS="-p alpha 0.3"
	@$(BIN)/python -m pro_lib run --executed $(EXECUTED) $(or $(N),"") $(ARGS)

lab: install  ## open JupyterLab
	$(BIN)/jupyter lab $$([ $$(id -u) -ne 0 ] || echo --allow-root) notebooks

# Two workers of one thread each: the tests' models are too small to gain from a second thread.
# Files in the order of their names: by the number of their tests, as is usual, one long test comes last and alone.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test: $(VENV)/.installed-test  ## run the tests: one trial of every kind
	$(PYTEST)

test-all: $(VENV)/.installed-test  ## run all tests: the slow ones too, and more examples of the sized
	$(PYTEST) --size all -m "not trial"

trials: $(VENV)/.installed-test  ## run what takes long: kills, clusters, 10,000 damaged inputs, a fresh installation
	$(PYTEST) --size trials -m "trial or sized"

lint: install $(VENV)/.installed-lint lint-javascript  ## check style, format, types and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-lint  ## put everything into format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The explorer's JavaScript is checked by tools of npm; nothing but these checks needs Node.js.
ifneq ($(shell command -v npm),)
lint-javascript: node_modules/.installed  ## check the explorer's JavaScript: style, format and types
	npm run --silent lint

node_modules/.installed: package.json package-lock.json
	npm ci --silent --no-audit --no-fund
	@touch $@
else
lint-javascript:
	@echo "Node.js is not installed, so the explorer's JavaScript was not checked."
endif

# PAGES="--plain" is for a quick look, with nothing run.
docs: $(VENV)/.installed-docs  ## build the docs as a site into build/site; runs the notebooks that were not
	@$(BIN)/python docs/sourced/doc_numbers.py
	@$(BIN)/python docs/site/pages.py --executed $(EXECUTED) $(PAGES)
	@$(BIN)/python -m zensical build --strict --clean
	@echo "$(SITE)/index.html"

docs-numbers: $(VENV)/.installed-docs  ## write the numbers of the CSV files into README and docs
	$(BIN)/python docs/sourced/doc_numbers.py --write

world: $(VENV)/.installed-test  ## build the world facts from their hand-written relations
	$(BIN)/python data/world_facts/build.py

models: $(VENV)/.installed-test  ## train the bundled models anew
	$(BIN)/python data/models/train.py facts-2m facts-1m

screenshots: $(VENV)/.installed-test  ## make the explorer's pictures in docs/images anew (needs Chromium)
	PYTHONPATH=tests:tests/app $(BIN)/python tests/app/test_browser.py

ladder: install  ## time every step of the speed ladder (needs make golden once)
	$(BIN)/python benchmarks/ladder.py

golden: install  ## make the beam-search golden file anew (uses a second environment, build/golden)
	$(BIN)/python tests/golden/diverse_beam.py prompts
	$(PYTHON) -m venv build/golden
	build/golden/bin/python -m pip install --quiet torch==2.13.0 && build/golden/bin/python -m pip install --quiet transformers==4.56.2
	build/golden/bin/python tests/golden/diverse_beam.py answers

clean:  ## remove what can be made again (not the generations)
	rm -rf build .cache .pytest_cache .ruff_cache .hypothesis node_modules
