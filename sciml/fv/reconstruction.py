"""Reconstructions: from cell averages to the value at a face, seen from one side.

Each looks at an odd number of cells centred on the upwind cell and returns the value at that cell's right
face; the value from the other side is the same rule on the mirrored cells. MUSCL limits a slope; ENO picks
the smoothest stencil; WENO mixes all stencils by their smoothness.
"""

import abc
import math
from collections.abc import Callable
from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from sciml.fv.limiter import minmod
from sciml.typing import Scalar


class AbstractReconstruction(eqx.Module):
    """Value at the right face of the middle cell; `cells` is the odd number of averages it sees."""

    cells: eqx.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self, averages: Float[Array, " cells"]) -> Scalar:
        """Value at the right face of the middle cell, from `averages` in order of rising x."""

    def both(self, averages: Float[Array, " cells"]) -> tuple[Scalar, Scalar]:
        """Values at the left and the right face of the middle cell."""
        return self(averages[::-1]), self(averages)


class PiecewiseConstant(AbstractReconstruction):
    """The cell average itself: first order."""

    cells: ClassVar[int] = 1

    def __call__(self, averages):
        return averages[0]

    def both(self, averages):
        return averages[0], averages[0]


class MUSCL(AbstractReconstruction):
    """A linear profile with a limited slope: second order away from extrema.

    Args:
        limiter: function of the backward and forward differences, see `sciml.fv.limiter`.

    Reference: B. van Leer, J. Comput. Phys. 32, 101 (1979).
    """

    limiter: Callable = eqx.field(static=True, default=minmod)
    cells: ClassVar[int] = 3

    def __call__(self, averages):
        return self.both(averages)[1]

    def both(self, averages):
        before, middle, after = averages
        half = 0.5 * self.limiter(middle - before, after - middle)
        return middle - half, middle + half


class ENO(AbstractReconstruction):
    """The polynomial through the smoothest of all stencils that hold the cell, chosen by divided differences.

    Args:
        order: 2 or 3.

    Reference: A. Harten, B. Engquist, S. Osher, S. Chakravarthy, J. Comput. Phys. 71, 231 (1987).
    """

    order: Literal[2, 3] = eqx.field(static=True, default=3)

    def __check_init__(self):
        if self.order not in (2, 3):
            raise ValueError(f"ENO.order is {self.order}: choose 2 or 3")

    @property
    def cells(self) -> int:
        return 2 * self.order - 1

    def __call__(self, averages):
        if self.order == 2:
            before, middle, after = averages
            backward, forward = middle - before, after - middle
            return middle + 0.5 * jnp.where(jnp.abs(backward) < jnp.abs(forward), backward, forward)
        a, b, c, d, e = averages
        first = [b - a, c - b, d - c, e - d]
        second = [first[1] - first[0], first[2] - first[1], first[3] - first[2]]
        # Stencil {i-2, i-1, i}, {i-1, i, i+1} or {i, i+1, i+2}: extend to the side with the smaller
        # difference, twice.
        far_left = c + first[1] / 2 + second[0] / 3
        centred = c + first[2] / 2 - second[1] / 6
        far_right = c + first[2] / 2 - second[2] / 6
        left = jnp.where(jnp.abs(second[0]) < jnp.abs(second[1]), far_left, centred)
        right = jnp.where(jnp.abs(second[1]) < jnp.abs(second[2]), centred, far_right)
        return jnp.where(jnp.abs(first[1]) < jnp.abs(first[2]), left, right)


def _factors(smoothness, tau=None):
    """Weights 1/(β + ε)², or 1 + (τ/(β + ε))², multiplied through by all denominators to spare divisions.

    ε is relative to the sum of the indicators, so that no scale of the data enters. In float32 the indicators
    are divided by that sum, since products of four of them would over- or underflow, and in derivatives their
    squares would; float64 has the range for differences between 1e-12 and 1e12. On constant
    data all β vanish and all factors are equal.
    """
    total = sum(smoothness)
    if smoothness[0].dtype == jnp.float32:
        inverse = 1e4 / (total + 1e-18)
        bases = [s * inverse + 1e-2 for s in smoothness]
        tau = None if tau is None else tau * inverse
    else:
        floor = 1e-14 * total + 1e-24
        bases = [s + floor for s in smoothness]
    squares = [base**2 for base in bases]
    others = [math.prod(squares[:k] + squares[k + 1 :]) for k in range(len(squares))]
    if tau is None:
        return others
    excess = tau**2
    return [o * (s + excess) for o, s in zip(others, squares, strict=True)]


def _mean(values, factors, linear):
    weights = [c * f for c, f in zip(linear, factors, strict=True)]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


class WENO3(AbstractReconstruction):
    """Two linear stencils mixed by smoothness: third order where smooth.

    Reference: G.-S. Jiang, C.-W. Shu, J. Comput. Phys. 126, 202 (1996).
    """

    cells: ClassVar[int] = 3

    def __call__(self, averages):
        return self.both(averages)[1]

    def both(self, averages):
        before, middle, after = averages
        backward, forward = middle - before, after - middle
        factors = _factors((backward**2, forward**2))
        left = _mean((-backward / 2, -forward / 2), factors, (2 / 3, 1 / 3))
        right = _mean((backward / 2, forward / 2), factors, (1 / 3, 2 / 3))
        return middle + left, middle + right


class WENO5(AbstractReconstruction):
    """Three parabolas mixed by smoothness: fifth order where smooth.

    Args:
        weights: "js" for the classical indicators, "z" for the less dissipative global ones.

    Reference: G.-S. Jiang, C.-W. Shu, J. Comput. Phys. 126, 202 (1996); R. Borges et al., J. Comput. Phys.
    227, 3191 (2008).
    """

    weights: Literal["js", "z"] = eqx.field(static=True, default="z")
    cells: ClassVar[int] = 5

    def __check_init__(self):
        if self.weights not in ("js", "z"):
            raise ValueError(f'WENO5.weights is {self.weights!r}: choose "js" or "z"')

    def __call__(self, averages):
        return self.both(averages)[1]

    def both(self, averages):
        a, b, c, d, e = averages
        # Differences first: a constant background then costs no digits in float32.
        d1, d2, d3, d4 = b - a, c - b, d - c, e - d
        # Four times the classical indicators; both faces of the cell share them.
        smoothness = (
            13 / 3 * (d2 - d1) ** 2 + (3 * d2 - d1) ** 2,
            13 / 3 * (d3 - d2) ** 2 + (d2 + d3) ** 2,
            13 / 3 * (d4 - d3) ** 2 + (3 * d3 - d4) ** 2,
        )
        tau = jnp.abs(smoothness[0] - smoothness[2]) if self.weights == "z" else None
        factors = _factors(smoothness, tau)
        left = _mean((d1 - 4 * d2, -2 * d2 - d3, 2 * d4 - 5 * d3), factors, (0.3, 0.6, 0.1))
        right = _mean((5 * d2 - 2 * d1, d2 + 2 * d3, 4 * d3 - d4), factors, (0.1, 0.6, 0.3))
        return c + left / 6, c + right / 6
