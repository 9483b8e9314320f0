"""Layers on functions of a crystal, with one set of weights for all space groups.

A *field* is an invariant function with C channels, given by its coefficients (stars, 2, C) in a
`FourierBasis`. The group enters through the basis alone; weights know only |k| in 1/Å.

    RadialFilter              learned φ(|k|): the Fourier transform of an isotropic kernel
    SpaceGroupFourierLayer    field -> field, the convolution with that kernel; or field -> values at atoms
    (`encode`) SpaceGroupFourierNetwork  layers with pointwise nonlinearities in between: field -> field,
    nonlinear AtomEncoding              atoms -> features of atoms, through the density that they make

Since K_φ(x, y) = Σ φ(|k|) f(x) f(y) depends on the crystal alone, so do these features: not on origin,
setting, orientation or choice of cell.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sciml.crystal.fourier import FourierBasis
from sciml.typing import Key, Scalar, ScalarLike


def radial_bumps(
    frequency: Float[Array, " stars"], cutoff: ScalarLike, terms: int
) -> Float[Array, "stars terms"]:
    """Gaussians of |k| with centres from 0 to the cut-off (1/Å) that fall to zero at it."""
    relative = frequency / cutoff
    centres = jnp.linspace(0, 1, terms, dtype=frequency.dtype)
    bumps = jnp.exp(-0.5 * ((relative[:, None] - centres) * (terms - 1)) ** 2)
    return bumps * (jnp.maximum(1 - relative**2, 0) ** 2)[:, None]


class RadialFilter(eqx.Module):
    """Learned radial weights φ_oi(|k|) = (1 - |k|²/k_c²)²₊ Σ_p w_poi exp(-(|k| - k_p)² / 2σ²).

    **Arguments:**

    - `in_channels`, `out_channels`: sizes of i and o.
    - `cutoff`: k_c in 1/Å; the weight falls to zero there, so features change smoothly when a lattice is
      strained.
    - `terms`: number P of Gaussians, centred at k_p from 0 to k_c, σ their spacing; default 12.
    """

    weight: Float[Array, "terms out in"]
    cutoff: Scalar

    def __init__(self, in_channels: int, out_channels: int, cutoff: float, terms: int = 12, *, key: Key):
        scale = (in_channels * 2) ** -0.5
        self.weight = scale * jax.random.normal(key, (terms, out_channels, in_channels))
        self.cutoff = jnp.asarray(cutoff, self.weight.dtype)

    def __call__(self, frequency: Float[Array, " stars"]) -> Float[Array, "stars out in"]:
        """φ at |k| in 1/Å."""
        frequency = jax.lax.stop_gradient(frequency).astype(self.weight.dtype)
        bumps = radial_bumps(frequency, jax.lax.stop_gradient(self.cutoff), self.weight.shape[0])
        return jnp.einsum("sp,poi->soi", bumps, self.weight)


class SpaceGroupFourierLayer(eqx.Module):
    """Spectral convolution on stars, c'_s = φ(|k_s|) c_s + b δ(k_s): isotropic, linear, the same weights for
    every group.

    **Arguments:**

    - `in_channels`, `out_channels`: channels of the field before and after.
    - `cutoff`: in 1/Å; stars beyond it do not pass.
    - `terms`: number of radial terms; see `RadialFilter`.
    """

    filter: RadialFilter
    bias: Float[Array, " out"]

    def __init__(self, in_channels: int, out_channels: int, cutoff: float, terms: int = 12, *, key: Key):
        self.filter = RadialFilter(in_channels, out_channels, cutoff, terms, key=key)
        self.bias = jnp.zeros(out_channels, self.filter.weight.dtype)

    def __call__(self, basis: FourierBasis, field: Float[Array, "stars 2 in"]) -> Float[Array, "stars 2 out"]:
        """The convolved field."""
        mixed = jnp.einsum("soi,sri->sro", self.filter(basis.frequency), field)
        constant = basis.exists & (basis.frequency == 0)[:, None]
        return mixed + constant[..., None] * self.bias

    def encode(
        self, basis: FourierBasis, field: Float[Array, "stars 2 in"], fractional: Float[Array, "atoms 3"]
    ) -> Float[Array, "atoms out"]:
        """Values of the convolved field at atoms: the positional encoding. Equivalent atoms get equal
        rows.
        """
        return jnp.einsum("asr,sro->ao", jax.vmap(basis)(fractional), self(basis, field))


class AtomEncoding(eqx.Module):
    """Features of atoms from the density that all atoms make, Σ_b ∫ φ(r_a - r) δ(r - r_b) over the crystal.

    **Arguments:**

    - `channels`: size of the features.
    - `cutoff`: in 1/Å.
    - `elements`: number of rows of the element table; row 0 is padding. Default 119.
    - `embedding`: size of the element vectors; default 16.
    """

    table: Float[Array, "elements embedding"]
    layer: SpaceGroupFourierLayer

    def __init__(self, channels: int, cutoff: float, elements: int = 119, embedding: int = 16, *, key: Key):
        table_key, layer_key = jax.random.split(key)
        self.table = jax.random.normal(table_key, (elements, embedding))
        self.layer = SpaceGroupFourierLayer(embedding, channels, cutoff, key=layer_key)

    def density(
        self,
        basis: FourierBasis,
        lattice: Float[Array, "3 3"],
        fractional: Float[Array, "atoms 3"],
        species: Int[Array, " atoms"],
    ) -> Float[Array, "stars 2 embedding"]:
        """Coefficients (1/Å³) of the density of point atoms that carry their element's vector."""
        return atom_density(basis, lattice, fractional, self.table[species] * (species > 0)[:, None])

    def __call__(
        self,
        basis: FourierBasis,
        lattice: Float[Array, "3 3"],
        fractional: Float[Array, "atoms 3"],
        species: Int[Array, " atoms"],
    ) -> Float[Array, "atoms channels"]:
        """Features of the atoms of one crystal (rows of padded atoms are meaningless)."""
        return self.layer.encode(basis, self.density(basis, lattice, fractional, species), fractional)


def atom_density(
    basis: FourierBasis,
    lattice: Float[Array, "3 3"],
    fractional: Float[Array, "atoms 3"],
    weights: Float[Array, "atoms channels"],
) -> Float[Array, "stars 2 channels"]:
    """Coefficients of ρ(r) = Σ_a w_a δ(r - r_a): structure factors per volume, so that they do not
    depend on the cell.
    """
    return basis.structure_factors(fractional, weights) / jnp.abs(jnp.linalg.det(lattice))


class SpaceGroupFourierNetwork(eqx.Module):
    """A nonlinear map from fields to fields: spectral convolutions, with a pointwise network between them.

        v <- v + MLP(layer(c) + A v) at the points, c <- coefficients of v

    The result lies in the span of the basis, so it is invariant exactly, whatever points are used; points
    that are a fine grid (`sciml.crystal.symmetrise.asymmetric_points`) make it independent of the description
    of the cell as well.

    **Arguments:**

    - `in_channels`, `out_channels`: of the field.
    - `cutoff`: in 1/Å.
    - `width`: hidden channels; default 32.
    - `depth`: number of convolutions; default 3.
    """

    lift: SpaceGroupFourierLayer
    layers: list[SpaceGroupFourierLayer]
    mixers: list[eqx.nn.MLP]
    head: eqx.nn.MLP

    def __init__(
        self, in_channels: int, out_channels: int, cutoff: float, width: int = 32, depth: int = 3, *, key: Key
    ):
        lift_key, head_key, *keys = jax.random.split(key, 2 + 2 * depth)
        self.lift = SpaceGroupFourierLayer(in_channels, width, cutoff, key=lift_key)
        self.layers = [SpaceGroupFourierLayer(width, width, cutoff, key=k) for k in keys[:depth]]
        self.mixers = [eqx.nn.MLP(2 * width, width, width, 1, jax.nn.gelu, key=k) for k in keys[depth:]]
        self.head = eqx.nn.MLP(width, out_channels, 2 * width, 1, jax.nn.gelu, key=head_key)

    def __call__(
        self,
        basis: FourierBasis,
        field: Float[Array, "stars 2 in"],
        points: Float[Array, "points 3"],
        weights: Float[Array, " points"],
    ) -> Float[Array, "stars 2 out"]:
        """The new field.

        **Arguments:**

        - `points`: fractional coordinates at which the pointwise networks act.
        - `weights`: quadrature weights with sum 1; zero for padding.
        """
        waves = jax.vmap(basis)(points)

        def analyse(values):
            return jnp.einsum("q,qsr,qc->src", weights.astype(waves.dtype), waves, values)

        def synthesise(coefficients):
            return jnp.einsum("qsr,src->qc", waves, coefficients)

        coefficients = self.lift(basis, field)
        values = synthesise(coefficients)
        for layer, mixer in zip(self.layers, self.mixers, strict=True):
            spread = synthesise(layer(basis, coefficients))
            values = values + jax.vmap(mixer)(jnp.concatenate([values, spread], axis=-1))
            coefficients = analyse(values)
        return analyse(jax.vmap(self.head)(values))
