"""Other names for our options, mostly those of other libraries, answered by an error that says our name."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

# What POT, SciPy, scikit-learn and GeomLoss call our options; a `score` is what a direction gets by a `method`.
_OURS = {
    "a": "x_weights",
    "b": "y_weights",
    "u_weights": "x_weights",
    "v_weights": "y_weights",
    "n_projections": "n_directions",
    "num_projections": "n_directions",
    "n_slices": "n_directions",
    "projections": "directions",
    "seed": "rng",
    "random_state": "rng",
    "rng": "seed",
    "tol": "rtol",
    "n_jobs": "workers",
    "score": "method",
}
_HINTS = {"projections": ", whose rows are the directions (POT's are the columns)"}


def answers_other_names(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """The same function, but the error for another library's name of an option says our name.

    Names are looked up only after a call has failed.

    Examples
    --------
    >>> @answers_other_names
    ... def distance(x, *, rng=None): ...
    >>> distance([[0.0]], seed=0)
    Traceback (most recent call last):
    TypeError: `distance` takes `rng=`; got `seed=`.
    """

    @functools.wraps(function)
    def call(*args: Arguments.args, **options: Arguments.kwargs) -> Answer:
        try:
            return function(*args, **options)
        except TypeError as error:
            _tell_our_name(function, error)
            raise

    return call


def says(hint: str) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """The same function, but the error for arguments that it does not take ends with `hint`.

    Examples
    --------
    >>> @says("A radius goes into `affine`.")
    ... def ball(dim): ...
    >>> ball(3, 2.0)
    Traceback (most recent call last):
    TypeError: ball() takes 1 positional argument but 2 were given. A radius goes into `affine`.
    """

    def hinting(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        @functools.wraps(function)
        def call(*args: Arguments.args, **options: Arguments.kwargs) -> Answer:
            try:
                return function(*args, **options)
            except TypeError as error:
                if _failed_deeper(error):
                    raise
                raise TypeError(f"{error}. {hint}") from None

        return call

    return hinting


def _failed_deeper(error: TypeError) -> bool:
    """Whether it was another call that failed, within the function that was called."""
    return error.__traceback__ is None or error.__traceback__.tb_next is not None


def _tell_our_name(function: Callable[..., object], error: TypeError) -> None:
    """Raise with our name for an option, if that is what a call failed at."""
    if _failed_deeper(error):
        return
    what, parameters = function.__qualname__.removesuffix(".__init__"), inspect.signature(function).parameters
    if re.search(r"positional arguments? but", str(error)) and "x_weights" in parameters:
        raise TypeError(f"{error}. Weights are passed by name, as `x_weights=` and `y_weights=`.") from None
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    name = unknown[1] if unknown else ""
    ours = _OURS.get(name)
    if ours in parameters:
        raise TypeError(f"`{what}` takes `{ours}=`{_HINTS.get(name, '')}; got `{name}=`.") from None
