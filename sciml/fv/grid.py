"""Uniform one-dimensional grids of cells, described by values that never change during a run."""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float


@dataclasses.dataclass(frozen=True)
class UniformGrid:
    """The interval [lower, upper] cut into `cells` equal cells; hashable, so static under `jax.jit`.

    Args:
        cells: number of cells, at least 2.
        lower: left end of the domain [length unit of the problem].
        upper: right end of the domain [same unit], above `lower`.

    Raises:
        ValueError: when there are fewer than 2 cells or the ends are not finite and increasing.
    """

    cells: int
    lower: float = 0.0
    upper: float = 1.0

    def __post_init__(self):
        if int(self.cells) != self.cells or self.cells < 2:
            raise ValueError(
                f"grid.cells is {self.cells}: a conservation law needs a grid of at least 2 cells; raise"
                " grid.cells"
            )
        object.__setattr__(self, "cells", int(self.cells))
        object.__setattr__(self, "lower", float(self.lower))
        object.__setattr__(self, "upper", float(self.upper))
        if not (np.isfinite(self.lower) and np.isfinite(self.upper) and self.lower < self.upper):
            raise ValueError(
                f"grid.lower = {self.lower} and grid.upper = {self.upper}: need finite ends with lower <"
                " upper"
            )

    @property
    def dx(self) -> float:
        """Cell width Δx = (upper - lower) / cells."""
        return (self.upper - self.lower) / self.cells

    @property
    def faces(self) -> Float[np.ndarray, " cells+1"]:
        """Positions x_{i+½} of the faces, both ends included (float64)."""
        return np.linspace(self.lower, self.upper, self.cells + 1)

    @property
    def centres(self) -> Float[np.ndarray, " cells"]:
        """Positions x_i of the cell centres (float64)."""
        faces = self.faces
        return 0.5 * (faces[1:] + faces[:-1])

    def cell_average(self, function: Callable, points: int = 5) -> Float[np.ndarray, " cells"]:
        """Averages ū_i = (1/Δx) ∫ u dx over every cell by Gauss-Legendre quadrature (float64).

        Args:
            function: u(x) acting elementwise on numpy arrays.
            points: quadrature points per cell; exact for polynomials up to degree 2·points - 1.
        """
        nodes, weights = np.polynomial.legendre.leggauss(points)
        x = self.centres[:, None] + 0.5 * self.dx * nodes
        return np.asarray(function(x), dtype=np.float64) @ (0.5 * weights)
