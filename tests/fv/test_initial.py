"""Initial data: the published protocol to the last bit, exact averages on any grid, smooth profiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv import initial
from sciml.fv.grid import UniformGrid
from sciml.fv.initial import (
    FourierSeries,
    GaussianBump,
    PiecewiseConstant,
    Sine,
    random_fourier_series,
    random_piecewise_constant,
    riemann_problems,
)


def test_the_protocol_is_reproduced_bit_by_bit():
    data = random_piecewise_constant(42, 1000)
    states = np.random.RandomState(42).rand(1000, 10)
    assert (data.values == states).all()
    assert (data.values[0, :2] == [0.3745401188473625, 0.9507143064099162]).all()
    assert (data.breakpoints == np.linspace(0.0, 0.2, 11)).all()
    burgers = random_piecewise_constant(42, 1000, lower=1.0, upper=-1.0)
    assert (burgers.values == 1 - 2 * states).all()
    assert (random_piecewise_constant(42, 40).values == states[:40]).all()  # fewer states are the first ones


@pytest.mark.parametrize("cells", [2, 7, 10, 37, 200])
@pytest.mark.parametrize("pieces", [1, 3, 10])
def test_cell_averages_are_exact_on_any_grid(cells, pieces):
    random = np.random.default_rng(cells * pieces)
    breakpoints = np.cumsum(0.01 + random.random((4, pieces + 1)), axis=-1)
    data = PiecewiseConstant(breakpoints, random.random((4, pieces)))
    grid = UniformGrid(cells, 0.3, 4.0)
    edges = np.sort(np.concatenate([np.broadcast_to(grid.faces, (4, cells + 1)), breakpoints], axis=-1))
    for sample, average in enumerate(data.cell_averages(grid)):
        alone = PiecewiseConstant(data.breakpoints[sample], data.values[sample])
        middle, width = 0.5 * (edges[sample, 1:] + edges[sample, :-1]), np.diff(edges[sample])
        mass = np.where((middle > 0.3) & (middle < 4.0), width * alone(middle), 0.0)
        cell = np.clip(((middle - 0.3) / grid.dx).astype(int), 0, cells - 1)
        expected = np.bincount(cell, mass, minlength=cells) / grid.dx
        assert np.abs(average - expected).max() <= 1e-12
        assert np.abs(alone.cell_averages(grid) - average).max() == 0
    assert data.cell_averages(grid).dtype == np.float64


def test_constant_cells_keep_their_value_exactly():
    data = random_piecewise_constant(0, 5)
    averages = data.cell_averages(UniformGrid(200, 0.0, 0.2))
    assert np.abs(averages - data.values.repeat(20, axis=-1)).max() <= 1e-14
    inside = np.arange(200) % 20 % 19 != 0
    assert (averages == data.values.repeat(20, axis=-1))[:, inside].all()


def test_evaluation_takes_the_left_state_at_a_breakpoint_and_extends_to_infinity():
    data = PiecewiseConstant([0.0, 1.0, 2.0], [[3.0, 4.0], [5.0, 6.0]])
    assert (data([-9.0, 0.5, 1.0, 1.5, 9.0]) == [[3, 3, 3, 4, 4], [5, 5, 5, 6, 6]]).all()
    shared = PiecewiseConstant([[0.0, 1.0, 2.0], [0.0, 1.6, 2.0]], [3.0, 4.0])
    assert (shared([1.2, 1.8]) == [[4, 4], [3, 4]]).all()


@pytest.mark.parametrize(
    ("breakpoints", "values", "words"),
    [([0.0, 1.0], [1.0, 2.0], "n\\+1"), ([0.0, 2.0, 1.0], [1.0, 2.0], "increase"), ([0.0], [], "n\\+1")],
)
def test_bad_pieces_are_refused(breakpoints, values, words):
    with pytest.raises(ValueError, match=words):
        PiecewiseConstant(breakpoints, values)


def test_riemann_problems_stay_in_their_range_and_domain():
    data = riemann_problems(1, 500, -1.0, 3.0, domain=(0.0, 2.0), shift=0.25)
    assert data.values.shape == (500, 2) and data.values.min() >= -1 and data.values.max() <= 3
    jump = data.breakpoints[:, 1]
    assert 0.75 <= jump.min() < 0.8 and 1.2 < jump.max() <= 1.25
    assert (riemann_problems(1, 500, -1.0, 3.0).values == data.values).all()
    assert (riemann_problems(1, 5).breakpoints == [0.0, 0.1, 0.2]).all()
    with pytest.raises(ValueError, match="shift"):
        riemann_problems(1, 5, shift=1.0)


def test_traffic_profiles_are_what_their_names_say():
    domain = (0.0, 4.0)
    assert (initial.back_of_queue(20, 120, domain=domain)([1.0, 3.0]) == [20, 120]).all()
    assert (initial.queue_discharge(20, 120, domain=domain, position=1.5)([1.0, 3.0]) == [120, 20]).all()
    queue = initial.congestion(20, 120, domain=domain, start=1.0, end=2.0)
    assert queue.cell_averages(UniformGrid(4, 0.0, 4.0)) == pytest.approx([20, 120, 20, 20], abs=0)
    with pytest.raises(ValueError, match="denser"):
        initial.back_of_queue(120, 20, domain=domain)


PROFILES = {
    "sine": Sine(0.4, 0.1, 0.7, 0.05),
    "bump": GaussianBump(0.1, 0.6, 0.3, 0.08),
    "fourier": FourierSeries(0.5, [0.1, 0.0], [0.05, -0.1], 1.0),
    "random": random_fourier_series(0.5, 0.4, 5, key=jax.random.key(3)),
}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_profiles_keep_their_numbers_in_float64_and_follow_the_dtype_of_x(profile):
    x = np.linspace(-0.5, 1.5, 101)
    assert profile(jnp.asarray(x, jnp.float32)).dtype == jnp.float32
    with jax.enable_x64(True):
        fine = profile(jnp.asarray(x))
        assert fine.dtype == jnp.float64
        assert profile(jnp.asarray(x, jnp.float32)).dtype == jnp.float32
        fine = np.asarray(fine)
    assert np.abs(np.asarray(profile(x)) - fine).max() <= 1e-5
    grid = UniformGrid(20)
    averages = profile.cell_averages(grid)
    assert averages.dtype == np.float64
    nested = profile.cell_averages(UniformGrid(60)).reshape(20, 3).mean(-1)
    assert np.abs(averages - nested).max() <= 1e-14


def test_profiles_are_their_formulas():
    x = np.linspace(0, 1, 11)
    with jax.enable_x64(True):
        sine, bump, series = (np.asarray(PROFILES[name](x)) for name in ("sine", "bump", "fourier"))
    assert sine == pytest.approx(0.4 + 0.1 * np.sin(2 * np.pi * (x - 0.05) / 0.7), abs=1e-15)
    assert bump == pytest.approx(0.1 + 0.6 * np.exp(-((x - 0.3) ** 2) / (2 * 0.08**2)), abs=1e-15)
    w = 2 * np.pi * x
    assert series == pytest.approx(0.5 + 0.1 * np.cos(w) + 0.05 * np.sin(w) - 0.1 * np.sin(2 * w), abs=1e-15)


def test_random_series_stay_in_their_band_and_depend_on_the_key_only():
    x = jnp.linspace(0.0, 1.0, 400)
    for seed in range(20):
        u = random_fourier_series(0.5, 0.4, 6, key=jax.random.key(seed))(x)
        assert u.min() >= 0.1 - 1e-6 and u.max() <= 0.9 + 1e-6
    again = random_fourier_series(0.5, 0.4, 6, key=jax.random.key(19))(x)
    assert (again == u).all()
    assert abs(float(u.mean()) - 0.5) < 0.01


def test_profiles_do_not_retrace_per_value():
    traces = []

    @jax.jit
    def evaluate(profile, x):
        traces.append(x.shape)
        return profile(x)

    for amplitude in (0.1, 0.2, 0.3):
        evaluate(Sine(0.5, amplitude), jnp.zeros(3))
    assert len(traces) == 1
