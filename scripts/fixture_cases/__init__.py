"""The models of `tests/fixtures/`. Importing registers them in the order that fixes their seeds."""
from . import weights, forms, quantised, nets  # noqa: F401
from .case import CASES, Case, Program, Rng  # noqa: F401
