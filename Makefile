# One file sets up everything that a fresh machine needs: Python 3.11+, make and the package index.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SIM_STAMP := $(VENV)/.installed-sim

DATA   ?=
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup test test-real test-kueue test-cluster-api test-newer test-node test-kubelets test-upstream test-image test-chaos test-poison test-crowd search soak interference bench-upstream fuzz mutants nightly check docs demo demo-bars bench crds wheel sbom chart kind clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "cotide needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "setting up $(VENV), once" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(1)]'
	@touch $@
endef

$(STAMP): pyproject.toml constraints.txt
	$(call install,dev)

$(SIM_STAMP): pyproject.toml constraints.txt
	$(call install,sim)

setup: $(STAMP) ## Make the virtual environment with the pinned dependencies

# Three workers for two cores: many tests wait for servers. A file stays with one worker, so that what its tests share
# is made once.
test: setup ## Run the test suite
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Exit code 77: this machine neither has the programs nor can build them, as was said in one line. Two workers, each with
# control planes of its own, since most of these tests wait; then, one by one, those that hold somebody to seconds.
# Exit code 5: ARGS left nothing to that half.
ON_REAL = -m pytest tests/e2e tests/real --ignore tests/real/cluster_api --server real -rs
test-real: setup ## Run the end-to-end tests and more on a real Kubernetes API server (built with Go, once, if there is none)
	@$(BIN)/python tests/controlplane/binaries.py >/dev/null; code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; \
	  $(BIN)/python $(ON_REAL) -n 2 --dist loadfile --no-loadscope-reorder -m "not alone" $(ARGS); together=$$?; \
	  $(BIN)/python $(ON_REAL) -m alone $(ARGS); alone=$$?; \
	  if [ $$together = 5 ] || { [ $$together = 0 ] && [ $$alone != 5 ]; }; then exit $$alone; fi; exit $$together

# Apart from test-real, which skips them where Kueue is not built: that takes five minutes of processor time more.
test-kueue: setup ## Run Jobs through quotas of the real Kueue (built with Go, once, from its module)
	@for programs in tests/controlplane/binaries.py tests/controlplane/kueue_program.py; do \
	  PYTHONPATH=tests/controlplane $(BIN)/python $$programs >/dev/null; code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; done; \
	  $(BIN)/python -m pytest tests/real/kueue -rs $(ARGS)

# Three minutes. Not part of test-real, for the minute that it takes beside.
test-cluster-api: setup ## Take machines of the real Cluster API away and ask for new ones (built with Go, once, from its module)
	@for programs in tests/controlplane/binaries.py tests/controlplane/cluster_api_program.py; do \
	  PYTHONPATH=tests/controlplane $(BIN)/python $$programs >/dev/null; code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; done; \
	$(BIN)/python -m pytest tests/real/cluster_api -rs $(ARGS)

# Ten minutes; likewise skipped by test-real where it is not built.
test-newer: setup ## Run gangs of the server's own on Kubernetes 1.36 (built with Go, once)
	@$(BIN)/python tests/controlplane/other_releases.py 1.36 >/dev/null; code=$$?; \
	if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; \
	$(BIN)/python -m pytest tests/real/newer -rs $(ARGS)

# A Python program in a machine of its own, once the programs of nodes are there.
IN_A_MACHINE = for programs in tests/controlplane/binaries.py tests/node/machine/node_programs.py; do \
  PYTHONPATH=tests/controlplane $(BIN)/python $$programs >/dev/null; code=$$?; \
  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; done; \
  $(BIN)/python tests/node/machine/machine.py -- $(BIN)/python

# Two kubelets with real containers, in namespaces of their own: nothing of it is left, however it ends.
test-node: setup ## Run the tests on real nodes: kubelets, containerd and runc beside the control plane (needs root)
	@$(IN_A_MACHINE) -m pytest tests/node --ignore tests/node/image -rs $(ARGS); code=$$?; \
	  if [ $$code = 77 ]; then exit 0; else exit $$code; fi

# -rs lists the tests that need fake nodes, each with its reason.
test-kubelets: setup ## Run the end-to-end tests on real kubelets (needs root)
	@$(IN_A_MACHINE) -m pytest tests/e2e --server node -rs $(ARGS); code=$$?; \
	  if [ $$code = 77 ]; then exit 0; else exit $$code; fi

# Upstream's own specs. Half an hour; FOCUS="SchedulerPreemption" runs some (see tests/upstream/exam.py).
POLICY     ?= predictive
KUBERNETES ?= 1.35
SCHEDULER  ?= cotide
FOCUS      ?=
SKIP       ?=
RECORD     ?=
test-upstream: setup ## Run upstream's scheduling specs on real nodes with Cotide (POLICY=, KUBERNETES=, FOCUS=, SKIP=; needs root)
	@for programs in "binaries.py" "other_releases.py $(KUBERNETES)" "upstream_programs.py $(KUBERNETES)"; do \
	  $(BIN)/python tests/controlplane/$$programs >/dev/null; code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; done; \
	  PYTHONPATH=tests/controlplane:tests/node/machine:tests/support:tests/support/servers \
	  $(BIN)/python tests/node/machine/machine.py -- $(BIN)/python tests/upstream/exam.py --scheduler $(SCHEDULER) \
	    --policy $(POLICY) --kubernetes $(KUBERNETES) --focus '$(FOCUS)' --skip '$(SKIP)' $(if $(RECORD),--record); code=$$?; \
	  if [ $$code = 77 ]; then exit 0; else exit $$code; fi

# The Dockerfile's image, built by buildah, deployed from each overlay as it is (COTIDE_IMAGE_SECONDS=600 for longer).
test-image: setup ## Build the image without Docker and run it on real nodes from the overlays (needs root)
	@PYTHONPATH=tests/controlplane $(BIN)/python tests/controlplane/binaries.py >/dev/null; code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; \
	  image=$$(PYTHONPATH=tests/controlplane $(BIN)/python tests/node/machine/image_build.py); code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; \
	  COTIDE_IMAGE=$$image $(BIN)/python tests/node/machine/machine.py -- $(BIN)/python -m pytest tests/node/image $(ARGS)

# On the emulator each await point is walked and 10,000 pods come at once; on the real server each fifth point.
CHAOS_RUNS      ?= 160
CHAOS_REAL_RUNS ?= 50
CHAOS_SEED      ?= 0
test-chaos: setup ## Hurt the operator and its API server, seeded (CHAOS_RUNS=N CHAOS_REAL_RUNS=N CHAOS_SEED=S for others)
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/chaos --chaos-runs $(CHAOS_RUNS) --chaos-seed $(CHAOS_SEED) \
	  --chaos-every 1 --chaos-matrix 1 --chaos-burst 10000 $(ARGS)
	@$(BIN)/python tests/controlplane/binaries.py >/dev/null; code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; \
	  $(BIN)/python -m pytest tests/chaos --chaos-server real --chaos-runs $(CHAOS_REAL_RUNS) \
	    --chaos-seed $(CHAOS_SEED) --chaos-every 5 $(ARGS)

# Each run is done twice, with an object that once stopped everybody and without; the longest step may be 2 s later.
RUNS ?= 100
test-poison: setup ## Poison pills among ordinary objects, on the emulator and on a real API server (RUNS=N, CHAOS_SEED=S)
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/chaos/test_poison_pills.py --poison-runs $(RUNS) \
	  --chaos-seed $(CHAOS_SEED) $(ARGS)
	@$(BIN)/python tests/controlplane/binaries.py >/dev/null; code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; \
	  $(BIN)/python -m pytest tests/chaos/test_poison_pills.py --chaos-server real --poison-runs $(RUNS) \
	    --chaos-seed $(CHAOS_SEED) $(ARGS)

# As above, with a crowd of legal objects of another tenant, whose labels change all the time. One run at a time: server
# and operator share a process, so two runs on two cores take from each other the time that they measure.
test-crowd: setup ## Crowds of objects beside ordinary ones, on the emulator and on a real API server (RUNS=N, CHAOS_SEED=S)
	$(BIN)/python -m pytest tests/chaos/test_crowds.py --crowd-runs $(RUNS) --chaos-seed $(CHAOS_SEED) $(ARGS)
	@$(BIN)/python tests/controlplane/binaries.py >/dev/null; code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; \
	  $(BIN)/python -m pytest tests/chaos/test_crowds.py --chaos-server real --crowd-runs $(RUNS) \
	    --chaos-seed $(CHAOS_SEED) $(ARGS)

search: setup ## Try the laws on new random examples (ARGS="--hypothesis-seed=7" for one seed)
	HYPOTHESIS_PROFILE=search $(BIN)/python -m pytest -n 3 --dist worksteal -m hypothesis $(ARGS)

soak: setup ## An hour of a day's churn: flat memory and metric series, or exit code 3 (ARGS="--seconds 300" for less)
	$(BIN)/python benchmarks/days/soak.py $(ARGS)

# Stopped anywhere, the same command goes on; a table and JSON are in build/interference.
interference: setup ## Measure memcached beside batch on a real node, 20 minutes (needs root and Prometheus; ARGS="--repeats 2" for less)
	@for programs in tests/controlplane/binaries.py tests/node/machine/node_programs.py; do \
	  PYTHONPATH=tests/controlplane $(BIN)/python $$programs >/dev/null; code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; done; \
	  $(BIN)/python tests/node/machine/machine.py -- $(BIN)/python benchmarks/interference/interference.py $(ARGS); code=$$?; \
	  if [ $$code = 77 ]; then exit 0; else exit $$code; fi

# Stopped anywhere, the same command goes on; it begins again once build/upstream/perf is removed.
bench-upstream: setup ## Run upstream's scheduler_perf under kube-scheduler and Cotide, 40 minutes (ARGS="--only Preemption" for less)
	@$(BIN)/python tests/controlplane/binaries.py >/dev/null; code=$$?; \
	  if [ $$code = 77 ]; then exit 0; elif [ $$code != 0 ]; then exit $$code; fi; \
	  $(BIN)/python benchmarks/upstream/upstream_perf.py $(ARGS); code=$$?; \
	  if [ $$code = 77 ]; then exit 0; else exit $$code; fi

# Exit code 77: atheris has no wheel for this Python, as was said in one line.
SECONDS_FUZZ = $(or $(SECONDS),60)
fuzz: setup ## Fuzz every parser of untrusted text, guided by coverage (SECONDS=N, shared by all, one a core at a time)
	@$(BIN)/python tests/fuzz/fuzz.py $(SECONDS_FUZZ); code=$$?; if [ $$code = 77 ]; then exit 0; else exit $$code; fi

# Mutants of modules that must not break, in a copy of the tree. The tool is no part of the development set.
MUTANTS      ?= 300
MUTANTS_SEED ?= 0
mutants: setup ## Change one place at a time and see a test fail, an hour and a half (MUTANTS=N MUTANTS_SEED=S, ARGS="--only lease")
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mutants]'
	$(BIN)/python tests/mutation/mutants.py --count $(MUTANTS) --seed $(MUTANTS_SEED) $(ARGS)

# Each step runs whatever became of those before; what failed is named at the end, with exit code 1. test-node comes
# twice: the second finds what the first left behind.
NIGHTLY ?= test-real test-kueue test-cluster-api test-newer test-node test-node test-kubelets test-upstream test-image test-chaos test-poison test-crowd search soak bench-upstream fuzz mutants
NIGHTLY_FUZZ_SECONDS  ?= 600
NIGHTLY_IMAGE_SECONDS ?= 600
nightly: setup ## Run all that takes long, hours in all (NIGHTLY="soak fuzz" for some of it)
	@failed=; for step in $(NIGHTLY); do echo "== make $$step, $$(date +%H:%M:%S)"; \
	  COTIDE_CONFORMANCE_SEED=new COTIDE_IMAGE_SECONDS=$(NIGHTLY_IMAGE_SECONDS) $(MAKE) --no-print-directory $$step SECONDS=$(NIGHTLY_FUZZ_SECONDS) \
	    || failed="$$failed $$step"; done; \
	if [ -n "$$failed" ]; then echo "nightly: failed:$$failed" >&2; exit 1; fi; echo "nightly: all passed"

check: setup ## Lint, types and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup ## Build the docs site into build/site, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "read it: $(BIN)/python -m http.server --directory build/site 8000"

# Without the development tools, but for an environment that has them.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(SIM_STAMP)) ## Run the whole system on this machine (DATA=DIR for real traces, ARGS="..." for more)
	@$(BIN)/cotide demo $(if $(DATA),--data $(DATA)) $(ARGS)

demo-bars: setup ## Hold the demo to its objectives over five seeds, exit code 3 when it misses one (ARGS="--seeds 1,2")
	@$(BIN)/python benchmarks/days/demo_bars.py $(if $(DATA),--data $(DATA)) $(ARGS)

bench: setup ## Run every benchmark and print its figures
	@for b in benchmarks/*/bench_*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done

crds: setup ## Write deploy/crds from the models in code
	$(BIN)/python -m cotide_operator.apis.crd_generation deploy/crds

wheel: setup ## Build the wheel into dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

sbom: setup ## Write the parts list of the wheel and the image (CycloneDX) into build/sbom
	@mkdir -p build/sbom
	$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --mc-type application --output-reproducible \
	  --output-format JSON --output-file build/sbom/cotide.cdx.json

IMAGE ?=
chart: setup ## Make the Helm chart from the overlays into build/chart (needs kubectl; IMAGE=REPOSITORY@DIGEST names another image)
	$(BIN)/python deploy/chart/generate.py build/chart $(IMAGE)

kind: ## Run the operator on a kind cluster (needs Docker, kind and kubectl; not part of the test suite)
	bash deploy/kind.sh

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
