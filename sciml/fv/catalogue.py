"""The names of the command line and of `metrics.json`: laws, schemes, and what each name is made of."""

import dataclasses
import difflib
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from sciml.fv.boundary import AbstractBoundary
from sciml.fv.dg import DiscontinuousGalerkin
from sciml.fv.finite_volume import AbstractScheme, FiniteVolume
from sciml.fv.fundamental_diagram import (
    Greenberg,
    Greenshields,
    NewellDaganzo,
    Trapezoidal,
    Triangular,
    Underwood,
)
from sciml.fv.grid import UniformGrid
from sciml.fv.law import AbstractLaw, BuckleyLeverett, Burgers, LinearAdvection
from sciml.fv.limiter import minmod, monotonized_central, superbee, van_leer
from sciml.fv.numerical_flux import AbstractNumericalFlux, MUSCLHancock, ReconstructedFlux, Ultrabee
from sciml.fv.reconstruction import ENO, MUSCL, WENO3, WENO5, PiecewiseConstant
from sciml.fv.riemann import EngquistOsher, LaxFriedrichs, Rusanov
from sciml.fv.runge_kutta import SSPRK2, SSPRK3, AbstractSSPRK, ForwardEuler
from sciml.fv.source import AbstractSource
from sciml.fv.subcell import SubCell

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class SchemeEntry:
    """One named scheme.

    `order` is the formal order on smooth solutions away from extrema, `order_at_extrema` the order in L1 on
    grids of 50 to 400 cells when there are some; `tvd` tells whether the total variation never grows and
    whether states stay within the range of the data at CFL numbers up to `tvd_cfl`; `weights` names the
    trained flux of a learned scheme, which depends on the law.
    """

    doc: str
    flux: Callable[[], AbstractNumericalFlux] | None
    integrator: AbstractSSPRK
    order: int
    tvd: bool
    tvd_cfl: float = 1.0
    degree: int = 0
    extrema: int | None = None
    weights: str | None = None

    @property
    def order_at_extrema(self) -> int:
        return self.order if self.extrema is None else self.extrema

    def build(
        self,
        law: AbstractLaw,
        grid: UniformGrid,
        boundary: AbstractBoundary,
        source: AbstractSource | None = None,
    ) -> AbstractScheme:
        """The scheme for a law on a grid; a `ValueError` when a learned scheme has no weights for the law."""
        if self.weights is not None:
            from sciml.fv.released import flux_for

            flux = flux_for(self.weights, law)
            return FiniteVolume(law, grid, boundary, numerical_flux=flux, source=source)
        if self.flux is not None:
            return FiniteVolume(law, grid, boundary, numerical_flux=self.flux(), source=source)
        # With the bounds alone, quadratic polynomials can settle on wrong solutions, and linear ones do so
        # where the flux is neither concave nor convex.
        degree = 2 if self.degree == 2 else 1
        limiter = "moment" if degree == 2 or law.curvature == "neither" else "bounds"
        return DiscontinuousGalerkin(law, grid, boundary, degree=degree, limiter=limiter, source=source)


def _rec(reconstruction, riemann_solver=None):
    return lambda: ReconstructedFlux(reconstruction(), *([riemann_solver()] if riemann_solver else []))


SCHEMES: dict[str, SchemeEntry] = {
    "godunov": SchemeEntry(
        "exact Riemann flux of cell averages", _rec(PiecewiseConstant), ForwardEuler(), 1, True
    ),
    "engquist-osher": SchemeEntry(
        "flux split into its rising and falling parts",
        _rec(PiecewiseConstant, EngquistOsher),
        ForwardEuler(),
        1,
        True,
    ),
    "lax-friedrichs": SchemeEntry(
        "viscosity Δx/Δt, very diffusive at small steps",
        _rec(PiecewiseConstant, LaxFriedrichs),
        ForwardEuler(),
        1,
        True,
    ),
    "rusanov": SchemeEntry(
        "local Lax-Friedrichs", _rec(PiecewiseConstant, Rusanov), ForwardEuler(), 1, True, 0.5
    ),
    "muscl-minmod": SchemeEntry(
        "limited slopes, minmod", _rec(lambda: MUSCL(minmod)), SSPRK2(), 2, True, 0.5
    ),
    "muscl-van-leer": SchemeEntry(
        "limited slopes, van Leer", _rec(lambda: MUSCL(van_leer)), SSPRK2(), 2, True, 0.5
    ),
    "muscl-mc": SchemeEntry(
        "limited slopes, MC", _rec(lambda: MUSCL(monotonized_central)), SSPRK2(), 2, True, 0.5
    ),
    "muscl-superbee": SchemeEntry(
        "limited slopes, superbee", _rec(lambda: MUSCL(superbee)), SSPRK2(), 2, True, 0.5
    ),
    "hancock-mc": SchemeEntry(
        "MUSCL-Hancock, MC slopes", lambda: MUSCLHancock(monotonized_central), ForwardEuler(), 2, False
    ),
    "eno2": SchemeEntry("smoothest of two stencils", _rec(lambda: ENO(2)), SSPRK2(), 2, False),
    "eno3": SchemeEntry("smoothest of three stencils", _rec(lambda: ENO(3)), SSPRK3(), 3, False),
    "weno3": SchemeEntry("two stencils mixed by smoothness", _rec(WENO3), SSPRK3(), 3, False, extrema=2),
    "weno5-js": SchemeEntry(
        "three stencils, Jiang-Shu weights", _rec(lambda: WENO5("js")), SSPRK3(), 5, False, extrema=4
    ),
    "weno5-z": SchemeEntry("three stencils, Z weights", _rec(lambda: WENO5("z")), SSPRK3(), 5, False),
    "ultrabee": SchemeEntry(
        "limited downwind: sharp jumps, staircases on slopes that steepen", Ultrabee, ForwardEuler(), 1, False
    ),
    "subcell": SchemeEntry(
        "two pieces per cell, exact Lax-Hopf evolution", SubCell, ForwardEuler(), 1, False
    ),
    "dg1": SchemeEntry(
        "discontinuous Galerkin, linear, bound-preserving", None, SSPRK2(), 2, False, degree=1
    ),
    "dg2": SchemeEntry(
        "discontinuous Galerkin, quadratic, bound-preserving", None, SSPRK3(), 3, False, degree=2
    ),
}


def _learned(weights: str, doc: str) -> SchemeEntry:
    return SchemeEntry(doc, None, ForwardEuler(), 1, False, weights=weights)


LEARNED: dict[str, SchemeEntry] = {
    name: _learned(name, doc)
    for name, doc in (
        ("nfv-2x1", "neural flux of 2 cells, supervised"),
        ("unfv-2x1", "neural flux of 2 cells, trained without labels"),
        ("nfv-4x5", "neural flux of 4 cells and 5 time levels, supervised"),
        ("nfv-10x11", "neural flux of 10 cells and 11 time levels, supervised"),
    )
}


def scheme_entry(name: str) -> SchemeEntry:
    """The scheme of a name: a classical or learned one, or the path of a trained flux ending in .npz; learned
    ones with "+clamps" after the name move fluxes and states into the law's range.

    Raises:
        ValueError: for an unknown name, with the nearest right one.
    """
    plain = name.removesuffix("+clamps")
    if plain.endswith(".npz"):
        return _learned(name, "trained flux from a file")
    if plain != name:
        return _learned(name, lookup("learned scheme", LEARNED, plain).doc + ", with clamps")
    return lookup("scheme", SCHEMES | LEARNED, name)


def evaluation_laws() -> dict[str, AbstractLaw]:
    """The laws of the evaluation protocol, jam density 1 (Burgers on [-1, 1])."""
    # pyright sees neither field converters nor that abstract fields are no arguments.
    return {
        "burgers": Burgers(-1.0, 1.0),  # pyright: ignore
        "greenshields": Greenshields(1.0, 1.0),  # pyright: ignore
        "triangular": Triangular(1.0, 1.0, 1.0),  # pyright: ignore
        "triangular-skewed": Triangular(2.0, 1.0, 1.0),  # pyright: ignore
        "trapezoidal": Trapezoidal(0.2, 0.2, 0.8, 0.3, 1.0),  # pyright: ignore
        "greenberg": Greenberg(2.0, 1.0),  # pyright: ignore
        "underwood": Underwood(0.25 * np.e, 1.0, 1.0),  # pyright: ignore
    }


LAW_TYPES: dict[str, type[AbstractLaw]] = {
    "linear-advection": LinearAdvection,
    "burgers": Burgers,
    "buckley-leverett": BuckleyLeverett,
    "greenshields": Greenshields,
    "triangular": Triangular,
    "trapezoidal": Trapezoidal,
    "newell-daganzo": NewellDaganzo,
    "greenberg": Greenberg,
    "underwood": Underwood,
}


def lookup(kind: str, table: dict[str, T], name: str) -> T:
    """The entry of a table, or a `ValueError` that names the nearest right name.

    Args:
        kind: word for the message, "law" or "scheme".
        table: names and entries.
        name: what the user wrote.
    """
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown {kind} {name!r}: {hint}known are {', '.join(table)}")
