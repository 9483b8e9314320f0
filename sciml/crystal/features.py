"""Fixed features of atoms that do not depend on how a crystal is described.

`atom_features` is the untrained form of `sciml.crystal.layers.AtomEncoding`: for every atom a, radial kernel
φ_p and weight w,

    Σ_b w_b K_p(x_a, x_b) / V,     K_p(x, y) = Σ_s φ_p(|k_s|) f_s(x) f_s(y),

a smeared count of the atoms around a, summed over the whole crystal. Equal for equivalent atoms; independent
of origin, setting, orientation and cell. It is a two-body quantity and does not know left from right.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sciml.crystal.fourier import FourierBasis
from sciml.crystal.layers import atom_density, radial_bumps


def atom_features(
    basis: FourierBasis,
    lattice: Float[Array, "3 3"],
    fractional: Float[Array, "atoms 3"],
    weights: Float[Array, "atoms channels"],
    *,
    cutoff: float,
    terms: int = 8,
) -> Float[Array, "atoms terms channels"]:
    """Kernel features of all atoms of a crystal.

    **Arguments:**

    - `basis`: of the cell; it must hold all stars up to `cutoff`.
    - `lattice`: rows in Å.
    - `fractional`: all atoms of the cell.
    - `weights`: what an atom contributes, zero for padded atoms: ones, a one-hot of the element, a property.
    - `cutoff`: in 1/Å.
    - `terms`: number of radial kernels.
    """
    density = atom_density(basis, lattice, fractional, weights)
    radial = radial_bumps(basis.frequency.astype(fractional.dtype), cutoff, terms)
    values = jax.vmap(basis)(fractional)
    return jnp.einsum("asr,sp,src->apc", values, radial, density, precision=jax.lax.Precision.HIGHEST)
