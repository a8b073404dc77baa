# Titen's commands. `make` alone lists them.

PORT ?= 8000
VAR ?= var
export TITEN_VAR := $(abspath $(VAR))

VENV := .venv
BIN := $(VENV)/bin
# A command beside the database of the state folder, which is started when nobody runs it.
WITH_DATABASE := $(BIN)/python -m titen.embedded $(BIN)/python manage.py

# The first of these that is at least 3.12 and really runs (a pyenv shim may not).
define FIND_PYTHON
for candidate in "$(PYTHON)" python3 python3.14 python3.13 python3.12 \
		/usr/bin/python3 /usr/local/bin/python3 "$$(uv python find '>=3.12' 2>/dev/null)"; do \
	if [ -n "$$candidate" ] && "$$candidate" -c \
		'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; \
	then python=$$candidate; break; fi; \
done; \
if [ -z "$$python" ]; then \
	echo "Titen needs Python 3.12 or later with its venv module (Debian: apt-get install python3-venv)." \
		"Found none; name one with: make PYTHON=/path/to/python3" >&2; \
	exit 1; \
fi
endef

# Installs a requirements file unless the very same one is installed. All words go to standard error.
# $(1): the file; $(2): its name in the stamp
define INSTALL
@set -e; \
if ! $(BIN)/python -c '' 2>/dev/null; then \
	$(FIND_PYTHON); \
	echo "making $(VENV) with $$($$python --version)" >&2; \
	rm -rf $(VENV); "$$python" -m venv $(VENV); \
fi; \
sum=$$($(BIN)/python -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' $(1)); \
if [ "$$(cat $(VENV)/$(2).sum 2>/dev/null)" != "$$sum" ]; then \
	all=$$(grep -c '^[a-z].*==' $(1)); \
	echo "installing the $$all packages of $(1) (once; a minute or two)" >&2; \
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --require-hashes -r $(1) \
		>$(VENV)/install.log 2>&1 & pip=$$!; \
	trap 'kill $$pip 2>/dev/null' INT TERM; \
	while kill -0 $$pip 2>/dev/null; do \
		sleep 2; now=$$(grep -cE '^(Collecting|Requirement already)' $(VENV)/install.log || true); \
		[ "$$now" = "$$seen" ] || echo "  $$now" >&2; seen=$$now; \
	done; \
	wait $$pip || { tail -n 5 $(VENV)/install.log >&2; \
		echo "The packages of $(1) could not be installed; all of it: $(VENV)/install.log" >&2; exit 1; }; \
	echo "$$sum" >$(VENV)/$(2).sum; \
fi
endef

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: up demo
up: install ## Serve on 127.0.0.1 (PORT=8000, state in VAR=var)
	@exec $(BIN)/python manage.py up --port $(PORT)

demo: install ## The same with demo data and four agents at work
	@exec $(BIN)/python manage.py up --port $(PORT) --demo

.PHONY: key user
key: install ## Print a new API key: ORG=acme NAME=worker-1 SCOPES="tasks:claim tasks:read"
	@: "$${ORG:?$(KEY_USAGE)}" "$${NAME:?$(KEY_USAGE)}" "$${SCOPES:?$(KEY_USAGE)}"; \
	exec $(WITH_DATABASE) key --org "$$ORG" --name "$$NAME" --scopes "$$SCOPES"

user: install ## Make a user: ORG=acme EMAIL=a@b.c ROLE=approver, password in TITEN_PASSWORD
	@: "$${ORG:?$(USER_USAGE)}" "$${EMAIL:?$(USER_USAGE)}" "$${ROLE:?$(USER_USAGE)}" \
		"$${TITEN_PASSWORD:?$(USER_USAGE)}"; \
	exec $(WITH_DATABASE) user --org "$$ORG" --email "$$EMAIL" --role "$$ROLE"

KEY_USAGE := is missing, as in: make key ORG=acme NAME=worker-1 SCOPES='tasks:claim tasks:read'
USER_USAGE := is missing, as in: TITEN_PASSWORD=... make user ORG=acme EMAIL=a@b.c ROLE=approver

.PHONY: test lint
test: lint chromium ## Everything that CI checks
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not alone" $(ARGS) $(OR_NOTHING)
	$(BIN)/python -m pytest -m alone $(ARGS) $(OR_NOTHING)

# Each worker has servers of its own, which want a core with it.
WORKERS ?= 2
# What ARGS choose may lie in one half only.
OR_NOTHING := || [ $$? -eq 5 ]

.PHONY: soak
soak: install-dev ## The cases in their long forms (a quarter of an hour or more)
	TITEN_LONG=1 $(BIN)/python -m pytest tests/cases -o timeout=1800 $(ARGS)

lint: install-dev ## Style, types, import directions, migrations, deployment checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/lint-imports
	$(PRODUCTION) DATABASE_URL= $(BIN)/python manage.py makemigrations --check --dry-run --skip-checks
	$(PRODUCTION) $(BIN)/python manage.py check --deploy --fail-level WARNING

.PHONY: bench proof screenshot
bench: install-dev ## Cycles per second over HTTP, beside the floor of the same server
	@exec $(WITH_DATABASE) bench

screenshot: install-dev chromium ## The picture in the README
	@exec $(BIN)/python -m tests.screenshot

proof: ## Both README commands in a fresh clone of HEAD with an empty home and cache
	@$(FIND_PYTHON); exec "$$python" .ci/proof

.PHONY: requirements
requirements: install-dev ## Pin the newest versions of requirements*.in
	$(BIN)/python -m pip install --quiet uv
	$(PIN) requirements.in -o requirements.txt
	$(PIN) requirements-dev.in -o requirements-dev.txt

PIN := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.12 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make requirements"

.PHONY: install install-dev chromium
install:
	$(call INSTALL,requirements.txt,requirements)

install-dev:
	$(call INSTALL,requirements-dev.txt,requirements-dev)

chromium:
	@for name in chromium chromium-browser google-chrome; do \
		command -v $$name >/dev/null && exit 0; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing Chromium for the browser tests (once)" >&2; \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y chromium >/dev/null; \
	else \
		echo "The browser tests need Chromium; install it (Debian: sudo apt-get install chromium)." >&2; exit 1; \
	fi

# Settings of an installation with HTTPS; nothing connects to these addresses.
PRODUCTION := env TITEN_VAR=$(abspath $(VENV)) TITEN_HTTPS=1 TITEN_ALLOWED_HOSTS=titen.example \
	TITEN_SECRET_KEY=a-key-for-the-checks-alone-of-more-than-fifty-characters-0123456789 \
	TITEN_SECRET_KEYS=a-ring-for-the-checks-alone-0123456789 TITEN_PUBLIC_URL=https://titen.example \
	DATABASE_URL=postgresql://titen@titen.invalid/titen CELERY_BROKER_URL=redis://titen.invalid
