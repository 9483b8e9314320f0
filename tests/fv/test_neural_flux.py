# pyright: reportCallIssue=false, reportArgumentType=false
"""Neural flux: what holds in conservation form whatever the weights, and one answer however batched."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.boundary import Outflow, Periodic, Prescribed
from sciml.fv.catalogue import evaluation_laws
from sciml.fv.finite_volume import FiniteVolume
from sciml.fv.fundamental_diagram import Greenshields
from sciml.fv.grid import UniformGrid
from sciml.fv.integrate import rollout
from sciml.fv.law import LinearAdvection
from sciml.fv.neural_flux import NeuralFlux, elu, without_offset

LAW = Greenshields()
SHAPES = [(2, 1), (4, 5), (10, 11), (6, 2)]


def network(stencil, levels, activation="elu", **options):
    return NeuralFlux(stencil, levels, activation=activation, law=LAW, key=jax.random.key(3), **options)


def plain(flux, window):
    """The network on one window [levels, stencil], in numpy."""
    act = {
        "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
        "relu": lambda x: np.maximum(x, 0),
        "tanh": np.tanh,
    }
    x = (np.asarray(window, float) - float(flux.centre)) / float(flux.half_width)
    h = np.einsum("okl,lk->o", np.asarray(flux.weights[0], float), x) + np.asarray(flux.biases[0])
    for weight, bias in zip(flux.weights[1:], flux.biases[1:], strict=True):
        h = np.asarray(weight) @ act[flux.activation](h) + np.asarray(bias)
    return np.ptp(np.asarray(flux.flux_range)) * h[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
def test_a_line_is_the_network_on_every_window(shape, activation):
    flux = network(*shape, activation)
    lines = np.random.default_rng(0).random((shape[1], 20 + shape[0]))
    found = flux.along(LAW, jnp.asarray(lines, jnp.float32), None)
    windows = [lines[:, k : k + shape[0]] for k in range(21)]
    np.testing.assert_allclose(found, [plain(flux, w) for w in windows], rtol=2e-4, atol=2e-5)
    assert np.isclose(flux(LAW, jnp.asarray(windows[4], jnp.float32), None), found[4], atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batches_and_their_gradients_equal_single_lines(shape):
    flux = network(*shape)
    lines = jnp.asarray(np.random.default_rng(1).random((5, shape[1], 30)), jnp.float32)

    def total(flux, batch):
        return jnp.sum(jax.vmap(lambda x: flux.along(LAW, x, None))(batch) ** 2)

    def one_by_one(flux, batch):
        return sum(jnp.sum(flux.along(LAW, x, None) ** 2) for x in batch)

    for argument in (0, 1):
        together, alone = (jax.grad(f, argument, allow_int=True)(flux, lines) for f in (total, one_by_one))
        for a, b in zip(
            *(jax.tree.leaves(eqx.filter(x, eqx.is_inexact_array)) for x in (together, alone)), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    nested = jax.vmap(jax.vmap(lambda x: flux.along(LAW, x, None)))(lines[None])[0]
    np.testing.assert_allclose(nested, [flux.along(LAW, x, None) for x in lines], rtol=1e-4, atol=1e-6)


def test_gradients_equal_finite_differences():
    with jax.enable_x64(True):
        flux = jax.tree.map(
            lambda x: x.astype(jnp.float64) if eqx.is_inexact_array(x) else x, network(4, 2, "tanh")
        )
        lines = jnp.asarray(np.random.default_rng(2).random((2, 12)))
        gradient = jax.grad(lambda x: jnp.sum(flux.along(LAW, x, None) ** 2))(lines)
        step = 1e-6
        for index in itertools.product((0, 1), (0, 5, 11)):
            shifted = (jnp.sum(flux.along(LAW, lines.at[index].add(s), None) ** 2) for s in (step, -step))
            assert np.isclose(
                gradient[index], (next(shifted) - next(shifted)) / (2 * step), rtol=1e-5, atol=1e-8
            )


def test_an_ensemble_of_networks_is_mapped():
    keys = jax.random.split(jax.random.key(0), 3)
    many = eqx.filter_vmap(lambda key: NeuralFlux(2, 1, law=LAW, key=key))(keys)
    line = jnp.linspace(0.0, 1.0, 12)
    found = eqx.filter_vmap(lambda flux: flux.along(LAW, line, None))(many)
    for k, key in enumerate(keys):
        np.testing.assert_allclose(
            found[k], NeuralFlux(2, 1, law=LAW, key=key).along(LAW, line, None), rtol=1e-5
        )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("boundary", [Periodic(), Outflow()], ids=["periodic", "outflow"])
def test_mass_is_kept_whatever_the_weights(shape, boundary):
    scheme = FiniteVolume(LAW, UniformGrid(40), boundary, network(*shape))
    u0 = jnp.asarray(np.random.default_rng(4).random(40), jnp.float32)
    found = rollout(scheme, u0, 0.1 / 40, 60, throw=False)
    assert float(found.mass_defect.max()) < 1e-6
    assert np.isfinite(found.states).all()


def test_clamped_states_break_the_balance_and_clamped_fluxes_do_not():
    u0 = jnp.asarray(np.random.default_rng(5).random(40), jnp.float32)
    defects = {}
    for name, options in (("flux", {"flux_clamp": True}), ("state", {"state_clamp": True})):
        scheme = FiniteVolume(LAW, UniformGrid(40), Periodic(), network(2, 1, **options))
        found = rollout(scheme, u0, 0.4 / 40, 60, throw=False)
        defects[name] = float(found.mass_defect.max())
        if name == "state":
            assert float(found.states.min()) >= 0 and float(found.states.max()) <= 1
    assert defects["flux"] < 1e-6 < defects["state"]


def test_earlier_levels_are_those_of_the_run():
    """A weight on the third level alone sees the state two steps ago, and the start before the start."""
    flux = network(2, 4)
    zero = jax.tree.map(jnp.zeros_like, (flux.weights, flux.biases))
    flux = eqx.tree_at(lambda f: (f.weights, f.biases), flux, zero)
    flux = eqx.tree_at(lambda f: f.biases[-1], flux, jnp.ones(1))
    boundary = Prescribed(jnp.array([0.0, 1.0]), jnp.array([0.2, 0.6]), jnp.array([0.1, 0.1]))
    scheme = FiniteVolume(LAW, UniformGrid(10), boundary, flux)
    state = scheme.start(jnp.linspace(0.1, 0.5, 10))
    seen = [state[:, 0]]
    for k in range(3):
        rate, _ = scheme.tendency(jnp.asarray(0.1 * k), state, jnp.asarray(0.1))
        state = state + 0.1 * rate
        state = state.at[:, 0].add(0.01 * (k + 1))
        seen.append(state[:, 0])
    np.testing.assert_allclose(state.T, seen[::-1], rtol=1e-6)


def test_ghost_cells_of_earlier_levels_come_from_earlier_times():
    flux = network(2, 3, "relu")
    first = jnp.zeros_like(flux.weights[0]).at[0, 0, 2].set(1.0)  # left cell, two steps ago
    rest = [jnp.zeros_like(w) for w in flux.weights[1:]]
    rest = [w.at[0, 0].set(1.0) for w in rest]
    flux = eqx.tree_at(lambda f: f.weights, flux, (first, *rest))
    boundary = Prescribed(jnp.array([0.0, 1.0]), jnp.array([0.5, 1.0]), jnp.array([0.5, 0.5]))
    scheme = FiniteVolume(LAW, UniformGrid(10), boundary, flux)
    state = scheme.start(jnp.full(10, 0.5))
    for t, expected in ((0.0, 0.0), (0.1, 0.0), (0.4, 0.2)):  # (u - 1/2)/(1/2) at max(t - 2 dt, 0)
        fluxes = scheme.face_fluxes(jnp.asarray(t), state, jnp.asarray(0.1))
        assert np.isclose(float(fluxes[0]), 0.25 * expected, atol=1e-6)


def test_one_trace_serves_all_weights_and_steps():
    traces = []

    @eqx.filter_jit
    def run(flux, u0, dt):
        traces.append(1)
        return rollout(FiniteVolume(LAW, UniformGrid(20), Outflow(), flux), u0, dt, 5, throw=False).states

    for seed in range(3):
        flux = NeuralFlux(2, 1, law=LAW, key=jax.random.key(seed))
        run(flux, jnp.full(20, 0.1 * seed + 0.1), jnp.asarray(0.001 * (seed + 1)))
    assert len(traces) == 1


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_free_constant_is_fixed_and_changes_no_update(shape):
    flux = network(*shape)
    fixed = without_offset(flux, LAW)
    lines = jnp.asarray(np.random.default_rng(6).random((shape[1], 30)), jnp.float32)
    shift = fixed.along(LAW, lines, None) - flux.along(LAW, lines, None)
    np.testing.assert_allclose(shift, shift[0], atol=1e-6)
    states = jnp.linspace(0, 1, 257)
    alike = jnp.broadcast_to(states[:, None, None], (257, shape[1], shape[0]))
    learned = jax.vmap(lambda window: fixed(LAW, window, None))(alike)
    assert abs(float(jnp.mean(learned - LAW.flux(states)))) < 1e-5


@pytest.mark.parametrize("x", [-3.0, -1e-4, 0.0, 2.0])
def test_elu_and_its_derivative(x):
    np.testing.assert_allclose(elu(jnp.asarray(x)), jax.nn.elu(x), atol=1e-6)
    np.testing.assert_allclose(jax.grad(elu)(x), np.exp(min(x, 0)), rtol=1e-5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"stencil": 3}, "even number"),
        ({"levels": 0}, "levels is 0"),
        ({"width": 0}, "width is 0"),
        ({"activation": "gelu"}, "choose one of"),
        ({"law": LinearAdvection(1.0)}, "interval"),
    ],
)
def test_bad_sizes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        NeuralFlux(**{"law": LAW, "key": jax.random.key(0), **options})


def test_scales_follow_the_law():
    for law in evaluation_laws().values():
        flux = NeuralFlux(law=law, key=jax.random.key(0))
        values = law.flux(jnp.linspace(law.lower, law.upper, 401))
        np.testing.assert_allclose(flux.flux_range, [values.min(), values.max()], atol=2e-3)
        assert flux.parameters == 1261
