"""Synthetic models by name or file, and the calls that turn a `synthetic:` argument or such a file into a workload."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from clearway.model.errors import InputError
from clearway.sim.generate import SPEC_PREFIX, SyntheticModel, generate, parse_synthetic
from clearway.sim.model_file import read_model
from clearway.sim.synthetic_philly import PHILLY_LIKE
from clearway.sim.workload import Workload
from clearway.wire.synthetic import MARK

BUILT_IN_MODELS: Mapping[str, SyntheticModel] = MappingProxyType({PHILLY_LIKE.name: PHILLY_LIKE})
"""Models that `synthetic:NAME` knows without a file."""
FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""What ends so was meant as a file."""


def generate_from_spec(text: str, seed: int = 0) -> Workload:
    """The workload that a `synthetic:MODEL?…` argument asks for. InputError for a spec or model that is not known."""
    spec = parse_synthetic(text)
    model = _find_model(spec.model, text)
    return generate(model, jobs=spec.jobs, days=spec.days, seed=seed, load=spec.load, devices=spec.devices)


def recognise_model(head: tuple[str, ...]) -> bool:
    """Whether the first lines, comments aside, are those of a model that `clearway trace fit` wrote."""
    return next((line for line in head if line and not line.startswith("#")), "").startswith(MARK)


def _find_model(name: str, text: str) -> SyntheticModel:
    """The built-in model of this name, else the one in the file."""
    if name in BUILT_IN_MODELS:
        return BUILT_IN_MODELS[name]
    path = Path(name)
    if path.is_file() or path.suffix in FILE_SUFFIXES:
        return read_model(path)
    known = ", ".join(f"{SPEC_PREFIX}{known}" for known in BUILT_IN_MODELS)
    raise InputError(
        f"{text}: expected a built-in model, or a file of `clearway trace fit`, found {name!r}; known are: {known}"
    )
