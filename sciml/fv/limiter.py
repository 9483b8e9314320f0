"""Slope limiters: from the two one-sided differences of a cell to one slope that creates no new extremum.

All are symmetric, homogeneous and zero where the differences disagree in sign. Reference: P. K. Sweby, SIAM
J. Numer. Anal. 21, 995 (1984).
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

Differences = Float[Array, "..."]


def minmod(backward: Differences, forward: Differences) -> Differences:
    """The smaller of the two differences."""
    smaller = jnp.minimum(jnp.abs(backward), jnp.abs(forward))
    return jnp.where(backward * forward > 0, jnp.sign(forward) * smaller, 0)


def van_leer(backward: Differences, forward: Differences) -> Differences:
    """Harmonic mean 2ab/(a + b)."""
    product = backward * forward
    total = jnp.where(product > 0, backward + forward, 1)
    return jnp.where(product > 0, 2 * product / total, 0)


def monotonized_central(backward: Differences, forward: Differences) -> Differences:
    """Central slope, at most twice the smaller difference (MC)."""
    smaller = 2 * jnp.minimum(jnp.abs(backward), jnp.abs(forward))
    central = 0.5 * jnp.abs(backward + forward)
    return jnp.where(backward * forward > 0, jnp.sign(forward) * jnp.minimum(smaller, central), 0)


def superbee(backward: Differences, forward: Differences) -> Differences:
    """The steepest slope of the second-order TVD region: max(min(2a, b), min(a, 2b))."""
    a, b = jnp.abs(backward), jnp.abs(forward)
    steepest = jnp.maximum(jnp.minimum(2 * a, b), jnp.minimum(a, 2 * b))
    return jnp.where(backward * forward > 0, jnp.sign(forward) * steepest, 0)


LIMITERS: dict[str, Callable] = {
    "minmod": minmod,
    "van-leer": van_leer,
    "mc": monotonized_central,
    "superbee": superbee,
}
