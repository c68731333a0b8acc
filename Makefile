# Every recipe works from a clean clone; each is a script in ci/ that can be run alone.
# PYTHON=python3.10 chooses the interpreter of .venv (default: the newest that is supported).

.DEFAULT_GOAL := help
.PHONY: help setup demo test check lint export docs lock clean
export PYTHON

help: ## list the recipes
	@sed -n 's/^\([a-z]*\):.*## /  make \1  /p' Makefile

setup: ## make .venv from the lock (the other recipes do this first)
	@ci/setup

demo: setup ## check, compile, tune, serve and ask a pair of models; prints what was gained
	@ci/demo

test: check ## the same as make check

check: setup ## everything that must hold: style, types, layers, sizes, tests
	@ci/check

lint: setup ## the pieces of check that take seconds
	@ci/check format lint types layers sizes

export: setup ## optional: the exporter for other architectures (brings a CPU build of torch, or nothing)
	@ci/install-export

docs: setup ## write the generated files again: docs/cli.md, profiles/schema.json and its tables
	@.venv/bin/python ci/schema.py
	@.venv/bin/python ci/clidocs.py > docs/cli.md

lock: ## resolve the dependencies again (UPGRADE=1 takes newer releases)
	@ci/lock

clean: ## remove .venv, demo/ and caches (the engine store stays: specbuild store)
	rm -rf .venv demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
