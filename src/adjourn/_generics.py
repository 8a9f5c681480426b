"""Type parameters that can be left out, on every Python.

To a type checker, a bare `Runner` is a `Runner[Any, Any, Any]`, and `Runner[Deps]` leaves out what follows. Python
itself knows such defaults from 3.13 on; `Defaulted` does the same on older ones, without another dependency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar
    from typing_extensions import TypeForm as TypeForm

    Deps = TypeVar("Deps", default=Any)
    Deps_contra = TypeVar("Deps_contra", default=Any, contravariant=True)
    Deps_co = TypeVar("Deps_co", default=Any, covariant=True)
    Out = TypeVar("Out", default=Any)
    Out_co = TypeVar("Out_co", default=Any, covariant=True)
    Goto_co = TypeVar("Goto_co", bound=str, default=str, covariant=True)
    S = TypeVar("S", default=Any)
    State_co = TypeVar("State_co", default=Any, covariant=True)
    Product_co = TypeVar("Product_co", default=Any, covariant=True)
    P = ParamSpec("P", default=...)
else:
    from typing import ParamSpec, TypeVar

    Deps, Deps_contra, Deps_co = TypeVar("Deps"), TypeVar("Deps_contra"), TypeVar("Deps_co")
    Out, Out_co, Product_co = TypeVar("Out"), TypeVar("Out_co"), TypeVar("Product_co")
    Goto_co = TypeVar("Goto_co", bound=str, covariant=True)
    S, State_co = TypeVar("S"), TypeVar("State_co")
    P = ParamSpec("P")
    # `typing.get_type_hints` reads annotations of public functions, so each name in them must exist.
    TypeForm = type


class Defaulted:
    """A generic class whose last type parameters can be left out: they are Any."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __class_getitem__(cls, given: Any) -> Any:
            given = given if isinstance(given, tuple) else (given,)
            left_out = len(getattr(cls, "__parameters__", ())) - len(given)
            return super().__class_getitem__((*given, *[Any] * left_out))
