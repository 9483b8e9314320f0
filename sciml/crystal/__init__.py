"""Space-group-adapted Fourier bases, layers and models on crystals.

    space_group   SpaceGroup: exact Seitz operators of any of the 530 settings; find_symmetry
    lattice       metrics, reciprocal space, the 2π convention
    star          stars of reciprocal vectors, phases, systematic absences
    fourier       FourierBasis -> features; SymmetricFourierSeries -> a learned density
    symmetrise    a grid or a set of coefficients made invariant
    cell          Cell: validated input
    structure     Crystal: primitive, exact, padded pytree
    detection     Cell -> Crystal: group found, primitive cell, positions snapped
    io, prepare   files -> cells; tables and folders -> one prepared set
    layers        SpaceGroupFourierLayer: one set of weights for all groups
    features      atom features that do not depend on the description of the crystal
    testing       assert_invariant and the self-check over all settings

Names load when they are first used; the symmetry part needs neither JAX nor pymatgen.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "SpaceGroup": "space_group",
    "find_symmetry": "space_group",
    "StarTable": "star",
    "build_stars": "star",
    "classify": "star",
    "count_stars": "star",
    "first_stars": "star",
    "stars_within": "star",
    "FourierBasis": "fourier",
    "SymmetricFourierSeries": "fourier",
    "kernel_sum": "fourier",
    "stack_bases": "fourier",
    "structure_factors": "fourier",
    "symmetrise_coefficients": "symmetrise",
    "symmetrise_grid": "symmetrise",
    "Cell": "cell",
    "Crystal": "structure",
    "Detection": "detection",
    "detect": "detection",
    "detect_with_time_limit": "detection",
    "read_cells": "io",
    "read_cell": "io",
    "PreparedSet": "prepare",
    "prepare": "prepare",
    "AtomEncoding": "layers",
    "RadialFilter": "layers",
    "SpaceGroupFourierLayer": "layers",
    "SpaceGroupFourierNetwork": "layers",
    "atom_features": "features",
    "assert_invariant": "testing",
    "self_check": "testing",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
