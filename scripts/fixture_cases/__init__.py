"""The models of `tests/fixtures/`. Importing registers them in the order that fixes their seeds."""
from . import weights, forms, quantised, nets, field, weight_only, activations, int4pack, unsigned, decoders, experts  # noqa: F401
from .case import CASES, Case, Program, Rng  # noqa: F401
from .refused import REFUSED  # noqa: F401
