"""Doctests of rooms whose optional dependency is missing are not collected."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/latlin/swag/*"]
