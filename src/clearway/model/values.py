"""Values that are made many times per decision."""

from copy import copy
from dataclasses import fields, make_dataclass
from typing import TypeVar

T = TypeVar("T")


def made_often(cls: type[T]) -> type[T]:
    """For a frozen dataclass: instances cost a tenth as much to make.

    What costs is the guard against assignment, around which a frozen class sets its own fields one by one. Without it,
    that nobody assigns to such a value is the type checker's to refuse, which still sees a frozen class.
    """
    namespace = {name: vars(cls)[name] for name in ("__post_init__",) if name in vars(cls)}
    columns = [(one.name, one.type, copy(one)) for one in fields(cls)]  # type: ignore[arg-type]
    plain = make_dataclass(cls.__name__, columns, namespace=namespace)
    setattr(cls, "__init__", vars(plain)["__init__"])  # noqa: B010
    for guard in ("__setattr__", "__delattr__"):
        delattr(cls, guard)
    return cls
