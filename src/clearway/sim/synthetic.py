"""Built-in synthetic models by name, and the one call that turns a `synthetic:` argument into a workload."""

from collections.abc import Mapping
from types import MappingProxyType

from clearway.model.errors import InputError
from clearway.sim.generate import SPEC_PREFIX, SyntheticModel, generate, parse_synthetic
from clearway.sim.synthetic_philly import PHILLY_LIKE
from clearway.sim.workload import Workload

BUILT_IN_MODELS: Mapping[str, SyntheticModel] = MappingProxyType({PHILLY_LIKE.name: PHILLY_LIKE})
"""Models that `synthetic:NAME` knows."""


def generate_from_spec(text: str, seed: int = 0) -> Workload:
    """The workload that a `synthetic:MODEL?…` argument asks for. InputError for a spec or model that is not known."""
    spec = parse_synthetic(text)
    model = BUILT_IN_MODELS.get(spec.model)
    if model is None:
        known = ", ".join(f"{SPEC_PREFIX}{name}" for name in BUILT_IN_MODELS)
        raise InputError(f"{text}: expected a built-in model, found {spec.model!r}; known are: {known}")
    return generate(model, jobs=spec.jobs, days=spec.days, seed=seed, load=spec.load, devices=spec.devices)
