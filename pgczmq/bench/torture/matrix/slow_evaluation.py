"""A small task in torch whose evaluation waits at a gate, so that a master can be met while it is going on."""

from collections.abc import Callable
from dataclasses import replace
from typing import ParamSpec, TypeVar

from pgczmq.train.gates import Gates
from pgczmq.train.task import Task, accuracy
from pgczmq.train.tasks import logistic_regression

PLACE = "evaluation"

Given = ParamSpec("Given")
Result = TypeVar("Result")


def task(gates: str, *, seed: int) -> Task:
    """Logistic regression; ``gates`` is the directory of the gate at PLACE."""
    return replace(logistic_regression(seed=seed), metric=_behind(Gates(gates), accuracy))


def _behind(gates: Gates, function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function, once the gate is open."""

    def patient(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        gates.go_through(PLACE)
        return function(*args, **kwargs)

    return patient
