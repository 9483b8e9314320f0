"""Hyperbolic conservation laws u_t + f(u)_x = s in one dimension, by finite volumes.

A scheme is put together from parts that know nothing of each other. MUSCL is a limited reconstruction with a
Riemann solver; the numerical flux is the one interface behind which both stand, or any other function from
the cells around a face to the flux through it, a network included.

| question | module |
|---|---|
| which law? | `law` (advection, Burgers, any f), `fundamental_diagram` (traffic) |
| where, and what lies beyond? | `grid`, `boundary`, `source` |
| which flux between two states? | `riemann` |
| which states at a face? | `reconstruction`, `limiter`; combined in `numerical_flux`, `subcell` |
| or a network for both? | `neural_flux`; trained by `neural_training`, `weak_form`; kept in `released` |
| rate of change of the state | `finite_volume`, `dg` |
| in time | `runge_kutta`; `integrate`: `solve` by CFL number, `rollout` by fixed steps |
| names of laws and schemes | `catalogue` |
| exact solutions, initial data | `exact`, `wave_front`, `initial` |
| errors; laws that a scheme must obey | `metrics`, `testing` |
| measured traffic | `density_field`, `traffic`, `calibrate` |

The names below load when they are first used; importing the package starts no JAX backend.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "law": ("AbstractLaw", "LinearAdvection", "Burgers", "BuckleyLeverett", "FluxFunction"),
    "fundamental_diagram": (
        "AbstractFundamentalDiagram",
        "Greenshields",
        "Triangular",
        "NewellDaganzo",
        "Trapezoidal",
        "Greenberg",
        "Underwood",
    ),
    "grid": ("UniformGrid",),
    "boundary": (
        "AbstractBoundary",
        "Periodic",
        "Outflow",
        "Prescribed",
        "PrescribedFunction",
        "DemandSupply",
        "Sides",
    ),
    "source": ("AbstractSource", "OnRamp", "OffRamp", "SourceFunction", "Sources"),
    "riemann": ("AbstractRiemannSolver", "Godunov", "EngquistOsher", "Rusanov", "LaxFriedrichs", "Upwind"),
    "reconstruction": ("AbstractReconstruction", "PiecewiseConstant", "MUSCL", "ENO", "WENO3", "WENO5"),
    "numerical_flux": (
        "AbstractNumericalFlux",
        "AbstractCellwiseFlux",
        "ReconstructedFlux",
        "MUSCLHancock",
        "Ultrabee",
    ),
    "subcell": ("SubCell",),
    "neural_flux": ("NeuralFlux",),
    "released": ("flux_for", "load_flux", "save_flux"),
    "finite_volume": ("AbstractScheme", "FiniteVolume"),
    "dg": ("DiscontinuousGalerkin",),
    "runge_kutta": ("ForwardEuler", "SSPRK2", "SSPRK3"),
    "integrate": (
        "NumericalFailure",
        "Result",
        "Solution",
        "ensemble",
        "rollout",
        "solve",
    ),
    "catalogue": ("LAW_TYPES", "SCHEMES", "evaluation_laws", "scheme_entry"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULE:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE[name]}"), name)
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
