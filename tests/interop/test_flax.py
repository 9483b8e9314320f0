"""Flax inside Equinox and Equinox inside Flax, each in a training step that lowers the loss."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

flax = pytest.importorskip("flax")

from flax import linen, nnx  # noqa: E402

from sciml.crystal import FourierBasis, SpaceGroup, SpaceGroupFourierLayer  # noqa: E402
from sciml.crystal.lattice import lattice_of, random_metric  # noqa: E402
from sciml.interop.flax import EquinoxInLinen, EquinoxInNNX, LinenCallable, NNXCallable  # noqa: E402


@pytest.fixture(scope="module")
def problem():
    group = SpaceGroup.from_number(62)
    basis = FourierBasis(group, lattice_of(random_metric(group, np.random.default_rng(0))), cutoff=0.5)
    field = jax.random.normal(jax.random.key(0), (*basis.exists.shape, 3)) * basis.exists[..., None]
    target = field.sum(-1, keepdims=True) * jnp.exp(-4 * basis.frequency**2)[:, None, None]
    return basis, field, target


def make_layer(key):
    return SpaceGroupFourierLayer(3, 1, 0.6, key=key)


def halves(losses):
    assert losses[-1] < 0.5 * losses[0], losses


def test_layer_inside_linen(problem):
    basis, field, target = problem

    class Model(linen.Module):
        @linen.compact
        def __call__(self, field):
            scale = self.param("scale", lambda _: jnp.ones(()))
            return scale * EquinoxInLinen(make_layer)(basis, field)

    model = Model()
    params = model.init(jax.random.key(1), field)
    optimiser = optax.adam(0.03)

    @jax.jit
    def step(params, state):
        loss, gradient = jax.value_and_grad(lambda p: jnp.mean((model.apply(p, field) - target) ** 2))(params)
        updates, state = optimiser.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, loss

    state, losses = optimiser.init(params), []
    for _ in range(40):
        params, state, loss = step(params, state)
        losses.append(float(loss))
    halves(losses)


def test_layer_inside_linen_equals_the_layer(problem):
    basis, field, _ = problem
    wrapped = EquinoxInLinen(make_layer)
    params = wrapped.init(jax.random.key(1), basis, field)
    weight = next(leaf for leaf in jax.tree.leaves(params) if leaf.ndim == 3)
    layer = eqx.tree_at(lambda one: one.filter.weight, make_layer(jax.random.key(7)), weight)
    assert np.allclose(wrapped.apply(params, basis, field), layer(basis, field), atol=1e-6)
    other = wrapped.init(jax.random.key(2), basis, field)
    assert not np.allclose(jax.tree.leaves(other)[-1], jax.tree.leaves(params)[-1])


def test_layer_inside_nnx(problem):
    basis, field, target = problem
    model = EquinoxInNNX(make_layer(jax.random.key(1)))
    assert np.allclose(model(basis, field), make_layer(jax.random.key(1))(basis, field), atol=1e-6)
    optimiser = nnx.Optimizer(model, optax.adam(0.03), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimiser):
        loss, gradient = nnx.value_and_grad(lambda m: jnp.mean((m(basis, field) - target) ** 2))(model)
        optimiser.update(model, gradient)
        return loss

    halves([float(step(model, optimiser)) for _ in range(40)])


def train(model, x, y, steps=60):
    optimiser = optax.adam(0.02)
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, state):
        loss, gradient = eqx.filter_value_and_grad(lambda m: jnp.mean((jax.vmap(m)(x) - y) ** 2))(model)
        updates, state = optimiser.update(gradient, state)
        return eqx.apply_updates(model, updates), state, loss

    losses = []
    for _ in range(steps):
        model, state, loss = step(model, state)
        losses.append(float(loss))
    return model, losses


def regression():
    x = jax.random.normal(jax.random.key(0), (64, 4))
    return x, jnp.sin(x[:, :1]) + x[:, 1:2]


def test_linen_module_as_callable():
    x, y = regression()
    module = linen.Sequential([linen.Dense(16), jnp.tanh, linen.Dense(1)])
    model = LinenCallable(module, x[0], key=jax.random.key(0))
    assert np.allclose(model(x[0]), module.apply({"params": model.params}, x[0]))
    trained, losses = train(model, x, y)
    halves(losses)
    assert not np.allclose(jax.tree.leaves(trained.params)[0], jax.tree.leaves(model.params)[0])


def test_nnx_module_as_callable():
    x, y = regression()

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(4, 16, rngs=rngs)
            self.norm = nnx.BatchNorm(16, use_running_average=True, rngs=rngs)
            self.second = nnx.Linear(16, 1, rngs=rngs)

        def __call__(self, x):
            return self.second(jnp.tanh(self.norm(self.first(x))))

    net = Net(nnx.Rngs(0))
    model = NNXCallable(net)
    assert np.allclose(model(x[0]), net(x[0]), atol=1e-6)
    trained, losses = train(model, x, y)
    halves(losses)
    # statistics are no parameters
    assert all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(trained.rest), jax.tree.leaves(model.rest), strict=True)
    )
