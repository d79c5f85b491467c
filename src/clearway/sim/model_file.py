"""Synthetic models from and to files; what may stand there is in `wire.synthetic`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from clearway.sim.bursts import BurstPace, SessionModel
from clearway.sim.generate import JobShape, SyntheticModel
from clearway.sim.quantiles import PROBABILITIES
from clearway.wire.synthetic import TABLE_NUMBERS, SyntheticFile, load_synthetic_file, render_synthetic_file

assert len(PROBABILITIES) == TABLE_NUMBERS


def read_model(path: Path) -> SyntheticModel:
    """The model in a file. InputError that lists all that is wrong with it, by line."""
    return _make_model(load_synthetic_file(path))


def render_model(model: SyntheticModel) -> str:
    """The text of a file that holds the model, with numbers of six digits."""
    values: dict[str, Any] = asdict(model)
    values["tenants"] = [{"name": name, "weight": weight} for name, weight in model.tenants]
    values["kinds"] = [{"kind": str(kind), "weight": weight} for kind, weight in model.kinds]
    if model.sessions is None:
        del values["sessions"]
    shapes = values.pop("shapes")
    return render_synthetic_file({**values, "shapes": shapes})


def _make_model(file: SyntheticFile) -> SyntheticModel:
    values = file.model_dump(exclude={"synthetic_model"})
    values["tenants"] = tuple((tenant.name, tenant.weight) for tenant in file.tenants)
    values["kinds"] = tuple((kind.kind, kind.weight) for kind in file.kinds)
    values["shapes"] = tuple(JobShape(**shape.model_dump()) for shape in file.shapes)
    values["burst_paces"] = tuple(BurstPace(**pace.model_dump()) for pace in file.burst_paces)
    values["sessions"] = None if file.sessions is None else SessionModel(**file.sessions.model_dump())
    return SyntheticModel(**values)
