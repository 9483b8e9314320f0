"""Layers: one set of weights for all groups, exact invariance, independence of the description,
gradients that reach weights.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.crystal.fourier import FourierBasis, SymmetricFourierSeries
from sciml.crystal.lattice import lattice_of, random_metric
from sciml.crystal.layers import (
    AtomEncoding,
    SpaceGroupFourierLayer,
    SpaceGroupFourierNetwork,
    atom_density,
)
from sciml.crystal.seitz import DENOMINATOR
from sciml.crystal.space_group import SpaceGroup
from sciml.crystal.symmetrise import asymmetric_points, compatible_shape
from sciml.crystal.testing import assert_invariant, orbit_of

CUTOFF = 0.45


def crystal(number, seed=0):
    """A conventional cell with atoms on two general orbits, as (group, lattice, fractional, species)."""
    rng = np.random.default_rng(seed)
    group = SpaceGroup.from_number(number)
    lattice = lattice_of(random_metric(group, rng, edge=5.0))
    orbits = [orbit_of(group, rng.uniform(size=(1, 3)))[:, 0] for _ in range(2)]
    species = np.repeat([11, 17], group.order)
    return group, lattice, np.concatenate(orbits), species


def primitive(group, lattice, fractional, species):
    inside = fractional @ group.primitive_coordinates.T % 1
    rounded = np.round(inside, 9) % 1
    _, chosen = np.unique(np.column_stack([rounded, species]), axis=0, return_index=True)
    return group.primitive(), group.primitive_basis.T @ lattice, inside[chosen], species[chosen], chosen


def encode(model, group, lattice, fractional, species):
    basis = FourierBasis(group, lattice, cutoff=CUTOFF)
    arrays = jnp.asarray(lattice), jnp.asarray(fractional), jnp.asarray(species)
    return eqx.filter_jit(model)(basis, *arrays)


@pytest.mark.parametrize("number", [5, 43, 146, 166, 216])
def test_features_do_not_depend_on_the_description(number, x64):
    model = AtomEncoding(6, CUTOFF, key=jax.random.key(0))
    group, lattice, fractional, species = crystal(number)
    given = encode(model, group, lattice, fractional, species)
    scale = jnp.abs(given).max()

    *small, chosen = primitive(group, lattice, fractional, species)
    assert len(chosen) * len(group.centring_translations) == len(species)
    assert np.abs(encode(model, *small) - given[chosen]).max() < 1e-11 * scale

    # another origin: x' = x + p, t' = t + p - R p, for p in 24ths
    p = np.array([1, 5, 8])
    moved = SpaceGroup.from_operations([group.rotations, group.translations + p - group.rotations @ p])
    shifted = encode(model, moved, lattice, fractional + p / DENOMINATOR, species)
    assert np.abs(shifted - given).max() < 1e-11 * scale

    # other axes: columns of Q are the new axes, x = Q x', R' = Q^-1 R Q
    q = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    inverse = np.rint(np.linalg.inv(q)).astype(int)
    turned = SpaceGroup.from_operations([inverse @ group.rotations @ q, group.translations @ inverse.T])
    assert (
        np.abs(encode(model, turned, q.T @ lattice, fractional @ inverse.T, species) - given).max()
        < 1e-11 * scale
    )

    # no symmetry used at all
    plain = encode(model, SpaceGroup.from_number(1), lattice, fractional, species)
    assert np.abs(plain - given).max() < 1e-11 * scale
    # equivalent atoms are equal, different orbits are not
    assert np.abs(given[: group.order] - given[0]).max() < 1e-11 * scale
    assert np.abs(given[0] - given[-1]).max() > 1e-2 * scale


def network_inputs(number, stars=24, points=12):
    group, lattice, fractional, species = crystal(number)
    basis = FourierBasis(group, lattice, stars=stars, pad_stars=stars, pad_members=24)
    weights = np.stack([species == 11, species == 17], axis=1).astype(float)
    dtype = basis.frequency.dtype
    field = atom_density(
        basis, jnp.asarray(lattice, dtype), jnp.asarray(fractional, dtype), jnp.asarray(weights, dtype)
    )
    where, share = asymmetric_points(group, compatible_shape(group, (points, points, points)))
    more = 2048 - len(where)
    where, share = np.pad(where, ((0, more), (0, 0))), np.pad(share, (0, more))
    return group, basis, field, jnp.asarray(where, dtype), jnp.asarray(share, dtype)


def test_network_is_invariant_with_the_same_weights_for_every_group(x64):
    network = SpaceGroupFourierNetwork(2, 1, CUTOFF, width=8, depth=2, key=jax.random.key(0))
    traces = []

    @eqx.filter_jit
    def run(network, basis, field, points, share):
        traces.append(None)
        return network(basis, field, points, share)

    for number in (2, 19, 62, 146, 194, 227):
        group, basis, *inputs = network_inputs(number)
        series = SymmetricFourierSeries(basis, (1,), key=jax.random.key(0))
        series = eqx.tree_at(lambda s: s.coefficients, series, run(network, basis, *inputs))
        assert float(jnp.abs(series.coefficients).max()) > 1e-4
        assert_invariant(series, group, points=2, key=jax.random.key(1))
    assert len(traces) == 1


def test_layer_is_a_convolution(x64):
    """Convolving with φ and then evaluating equals the kernel sum with φ."""
    group, basis, field, *_ = network_inputs(62)
    layer = SpaceGroupFourierLayer(2, 3, CUTOFF, key=jax.random.key(0))
    x = jnp.array([[0.1, 0.2, 0.3]])
    values = layer.encode(basis, field, x)
    phi = layer.filter(basis.frequency)
    expected = jnp.einsum("sr,soi,sri->o", basis(x[0]), phi, field)
    assert np.abs(values[0] - expected).max() < 1e-12
    assert not phi[basis.frequency >= CUTOFF].any()


def test_gradients_reach_weights_and_leave_tables(dtype):
    _, basis, field, points, share = network_inputs(19, points=8)
    network = SpaceGroupFourierNetwork(2, 1, CUTOFF, width=4, depth=1, key=jax.random.key(0))

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(models):
        network, basis = models
        return (network(basis, field, points, share) ** 2).sum()

    of_network, of_basis = gradient((network, basis))
    weight = of_network.lift.filter.weight
    assert weight.dtype == dtype and float(jnp.abs(weight).max()) > 0
    assert not of_network.lift.filter.cutoff and not of_basis.frequency.any()
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(of_network))


def test_forces_are_the_gradient_of_the_encoding(x64):
    group, lattice, fractional, species = crystal(19)
    model = AtomEncoding(2, CUTOFF, key=jax.random.key(0))
    basis = FourierBasis(SpaceGroup.from_number(1), lattice, cutoff=CUTOFF)

    @eqx.filter_jit
    def energy(x):
        return model(basis, jnp.asarray(lattice), x, jnp.asarray(species)).sum()

    x = jnp.asarray(fractional)
    force = jax.grad(energy)(x)
    direction = np.random.default_rng(0).normal(size=x.shape)
    step = 1e-5
    numeric = (energy(x + step * direction) - energy(x - step * direction)) / (2 * step)
    assert abs((force * direction).sum() - numeric) < 1e-6 * abs(numeric)
