# pyright: reportCallIssue=false, reportArgumentType=false, reportAssignmentType=false
"""Exact solutions: jump and entropy conditions on every wave; independent methods that must agree."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv import exact
from sciml.fv.fundamental_diagram import (
    Greenberg,
    Greenshields,
    NewellDaganzo,
    Trapezoidal,
    Triangular,
    Underwood,
)
from sciml.fv.grid import UniformGrid
from sciml.fv.initial import PiecewiseConstant, Sine, random_piecewise_constant
from sciml.fv.law import AbstractLaw, BuckleyLeverett, Burgers, FluxFunction, LinearAdvection, as_dtype
from sciml.fv.wave_front import WaveFronts


class Polygon(AbstractLaw):
    """A piecewise-linear flux through given points, neither concave nor convex."""

    nodes: np.ndarray = eqx.field(converter=np.asarray)
    values: np.ndarray = eqx.field(converter=np.asarray)
    curvature: ClassVar = "neither"

    @property
    def lower(self):
        return self.nodes[0]

    @property
    def upper(self):
        return self.nodes[-1]

    @property
    def kinks(self):
        return tuple(self.nodes[1:-1])

    @property
    def piecewise_linear(self):
        return True

    @property
    def stationary_points(self):
        return tuple(self.nodes[1:-1])

    def flux(self, u):
        return jnp.interp(u, self.nodes, self.values)

    def wave_speed(self, u):
        slopes = jnp.diff(self.values) / jnp.diff(self.nodes)
        return slopes[jnp.clip(jnp.searchsorted(jnp.asarray(self.nodes), u) - 1, 0, len(self.nodes) - 2)]

    def legendre_state(self, speed, lower, upper):
        raise NotImplementedError


SMOOTH = {
    "greenshields": Greenshields(2.0, 1.5),
    "greenberg": Greenberg(2.0),
    "underwood": Underwood(0.68),
    "underwood-to-inflection": Underwood(1.0, 0.5),
    "burgers": Burgers(),
    "user-concave": FluxFunction(lambda u: u * (1 - u) * (1 + u / 4), 0.0, 1.0),
    "user-convex": FluxFunction(jnp.exp, -1.0, 1.0),
}
LINEAR_PIECES = {
    "triangular": Triangular(),
    "triangular-skewed": Triangular(2.0, 1.0),
    "triangular-veh-km": Triangular(90.0, 18.0, 140.0),
    "trapezoidal": Trapezoidal(),
    "newell-daganzo": NewellDaganzo(),
    "linear": LinearAdvection(-0.7),
}
LEGENDRE = SMOOTH | LINEAR_PIECES  # concave, convex or linear
NEITHER = {
    "buckley-leverett": BuckleyLeverett(),
    "buckley-leverett-viscous": BuckleyLeverett(5.0),
    "sine": FluxFunction(lambda u: jnp.sin(5 * u), 0.0, 2.0),
    "user-kinks": FluxFunction(
        lambda u: jnp.where(u < 0.3, u, jnp.where(u < 0.6, 0.45 - u / 2, 2 * u - 1.05)), 0.0, 1.0
    ),
    "polygon": Polygon([0.0, 0.2, 0.5, 0.6, 0.9, 1.0], [0.0, 0.3, 0.1, 0.4, 0.2, 0.5]),
}
ALL = LEGENDRE | NEITHER


def over(laws):
    return pytest.mark.parametrize("law", laws.values(), ids=laws.keys())


def interval(law) -> tuple[float, float]:
    lower, upper = float(law.lower), float(law.upper)
    return (lower, upper) if np.isfinite(upper - lower) else (-1.0, 1.0)


def random_states(law, *shape, seed=0):
    lower, upper = interval(law)
    return lower + (upper - lower) * np.random.default_rng(seed).random(shape)


def jumps(law):
    lower, upper = interval(law)
    fixed = [
        (lower, upper),
        (upper, lower),
        (0.5 * (lower + upper), upper),
        (lower, 0.7 * upper + 0.3 * lower),
    ]
    return fixed + [tuple(pair) for pair in random_states(law, 6, 2)]


def evaluate(method, law, u):
    """A method of the law in float64, as numpy."""
    with jax.enable_x64(True):
        return np.asarray(getattr(as_dtype(law, jnp.float64), method)(jnp.asarray(u, jnp.float64)))


def speed_scale(law):
    speeds = evaluate("wave_speed", law, np.linspace(*interval(law), 200))
    return float(np.abs(speeds).max())


# -------------------------------------------------------------------------------- Riemann problems


@over(ALL)
def test_riemann_waves_join_the_states_and_satisfy_jump_and_entropy_conditions(law):
    scale = speed_scale(law)
    span = interval(law)[1] - interval(law)[0]
    for left, right in jumps(law):
        waves = exact.riemann_waves(law, left, right)
        states = [waves[0].left, *(w.right for w in waves)]
        assert states[0] == pytest.approx(left, abs=1e-12 * span)
        assert states[-1] == pytest.approx(right, abs=1e-12 * span)
        assert all(w.left == pytest.approx(u, abs=1e-12 * span) for w, u in zip(waves, states, strict=False))
        assert (np.diff(states) * np.sign(right - left) > 0).all()
        speeds = np.array([[w.slowest, w.fastest] for w in waves]).ravel()
        assert (np.diff(speeds) >= -1e-11 * scale).all()
        for wave in waves:
            if wave.kind == "rarefaction" and law is NEITHER["user-kinks"]:
                continue  # kinks that the law does not declare: waves and rests in one
            if wave.kind == "rarefaction":
                speed = wave.slowest + (wave.fastest - wave.slowest) * np.linspace(1e-6, 1 - 1e-6, 21)
                u = exact.riemann(law, left, right, speed)
                moving = np.abs(np.gradient(u, speed)) > 1e-6 * span / scale  # not waiting at a kink
                error = np.abs(evaluate("wave_speed", law, u) - speed)
                assert error[moving].max() <= 1e-11 * scale
                assert u[[0, -1]] == pytest.approx([wave.left, wave.right], abs=5e-3 * span)  # f″ may be 0
                continue
            v = np.linspace(wave.left, wave.right, 41)
            f = evaluate("flux", law, v)
            jump = wave.slowest * (v[-1] - v[0])  # Rankine-Hugoniot
            assert (f[-1] - f[0]) == pytest.approx(jump, abs=1e-13 * scale * span)
            # Oleinik: chords from the left state are steeper than the shock, those from the right flatter.
            above = np.sign(v[-1] - v[0]) * (f[0] + wave.slowest * (v - v[0]) - f)
            assert above.max() <= 1e-13 * scale * span


@over(ALL)
def test_riemann_state_is_the_best_of_all_states_at_every_speed(law):
    scale = speed_scale(law)
    for left, right in jumps(law):
        speed = np.linspace(-1.2 * scale, 1.2 * scale, 61)
        u = exact.riemann(law, left, right, speed)
        assert u.dtype == np.float64
        assert u.min() >= min(left, right) and u.max() <= max(left, right)
        assert (np.diff(u) * np.sign(right - left) >= -1e-12).all()
        sampled = np.linspace(left, right, 2001)
        sign = 1 if left < right else -1
        value = sign * (evaluate("flux", law, u) - speed * u)
        others = sign * (evaluate("flux", law, sampled) - speed[:, None] * sampled)
        assert (value <= others.min(axis=1) + 1e-13 * scale * max(1.0, abs(left), abs(right))).all()


@over(ALL)
def test_riemann_averages_conserve_and_are_self_similar(law):
    scale = speed_scale(law)
    faces = np.linspace(-1.5, 1.5, 61) * scale
    for left, right in jumps(law):
        average = exact.riemann_cell_averages(law, left, right, faces, 1.0)
        inflow = np.subtract(*evaluate("flux", law, [left, right]))
        expected = 1.5 * scale * (left + right) + inflow
        size = max(1.0, abs(left), abs(right))
        assert (average * np.diff(faces)).sum() == pytest.approx(expected, abs=1e-13 * size * scale * 10)
        shifted = exact.riemann_cell_averages(law, left, right, 3 * faces + 5, 3.0, position=5.0)
        assert np.abs(average - shifted).max() <= 1e-12 * size


def test_buckley_leverett_shock_is_the_welge_tangent():
    (fan, shock) = exact.riemann_waves(BuckleyLeverett(0.5), 1.0, 0.0)
    assert (fan.kind, shock.kind) == ("rarefaction", "shock")
    assert shock.left == pytest.approx(np.sqrt(0.5 / 1.5), abs=1e-14)  # f(u)/u = f′(u) at u = (M/(1+M))^½
    assert fan.fastest == pytest.approx(shock.slowest, abs=1e-13)


def test_a_transonic_rarefaction_passes_the_sonic_point():
    assert exact.riemann(Burgers(), -1.0, 2.0, np.array([-2.0, -1.0, 0.0, 1.5, 3.0])) == pytest.approx(
        [-1.0, -1.0, 0.0, 1.5, 2.0], abs=0
    )


def test_equal_states_make_no_wave():
    assert exact.riemann_waves(Burgers(), 0.3, 0.3) == []
    assert (exact.riemann(Burgers(), 0.3, 0.3, np.linspace(-1, 1, 5)) == 0.3).all()


# -------------------------------------------------------------------------------- Lax-Hopf formula

FACES = np.linspace(-0.1, 0.3, 41)
TIMES = np.array([0.0, 1e-6, 0.01, 0.1, 0.4])


def profiles(law, count=4, pieces=6):
    """Random states on random pieces, with equal neighbours among them."""
    values = random_states(law, count, pieces, seed=1)
    values[0, 2] = values[0, 3]
    values[-1] = values[-1, :2].repeat(3)
    widths = 0.2 + np.random.default_rng(2).random((count, pieces))
    breakpoints = np.concatenate([np.zeros((count, 1)), np.cumsum(widths, -1)], -1)
    return 0.2 * breakpoints / breakpoints[:, -1:], values


def times_for(law):
    return TIMES / speed_scale(law)


def state_scale(law):
    return max(1.0, *map(abs, interval(law)))


@over(LEGENDRE)
def test_lax_hopf_agrees_with_riemann_solutions(law):
    times = times_for(law)
    averages = exact.lax_hopf_cell_averages(law, [-0.3, 0.0617, 0.9], jumps(law), FACES, times)
    for (left, right), ours in zip(jumps(law), averages, strict=True):
        for t, average in zip(times, ours, strict=True):
            theirs = exact.riemann_cell_averages(law, left, right, FACES, t, position=0.0617)
            assert np.abs(average - theirs).max() <= 1e-12 * state_scale(law)


@over(LINEAR_PIECES)
def test_lax_hopf_agrees_with_wave_front_tracking(law):
    breakpoints, values = profiles(law, count=12)
    kinks = np.array([float(k) for k in law.kinks] + list(interval(law)))
    values[6:] = np.random.default_rng(3).choice(kinks, values[6:].shape)  # states exactly at kinks
    times = times_for(law)
    ours = exact.lax_hopf_cell_averages(law, breakpoints, values, FACES, times)
    for b, v, averages in zip(breakpoints, values, ours, strict=True):
        fronts = WaveFronts(law, b, v)
        for t, average in zip(times, averages, strict=True):
            assert np.abs(average - fronts.cell_averages(FACES, t)).max() <= 1e-12 * state_scale(law)


NUMPY_FLUX = {
    "greenshields": lambda k: 2.0 * k * (1 - k / 1.5),
    "greenberg": lambda k: 2.0 * k * np.log(1 / np.maximum(k, 1e-7)),
    "underwood": lambda k: np.float64(np.float32(0.68)) * k * np.exp(-k),
    "underwood-to-inflection": lambda k: k * np.exp(-2 * k),
    "burgers": lambda u: u * u / 2,
    "user-concave": lambda u: u * (1 - u) * (1 + u / 4),
    "user-convex": np.exp,
}


def maximise(function, lower, upper):
    """Maximum of functions that are concave on [lower, upper], elementwise by golden sections."""
    ratio = 0.5 * (np.sqrt(5) - 1)
    for _ in range(60):
        a, b = upper - ratio * (upper - lower), lower + ratio * (upper - lower)
        right = function(a) < function(b)
        lower, upper = np.where(right, a, lower), np.where(right, upper, b)
    return function(0.5 * (lower + upper))


@pytest.mark.parametrize("name", NUMPY_FLUX)
def test_lax_hopf_potential_is_the_maximum_over_all_feet(name):
    """The variational formula itself, maximised by brute force over y and u in numpy."""
    law, flux = SMOOTH[name], NUMPY_FLUX[name]
    sign = -1 if law.curvature == "convex" else 1
    (breakpoints, _), (states, _) = profiles(law, count=2)
    lower, upper = interval(law)
    x, t = np.linspace(-0.1, 0.3, 23)[:, None], 0.1 / speed_scale(law)
    start = np.concatenate([[0], np.cumsum(states * np.diff(breakpoints))[:-1]])
    ends = breakpoints.copy()
    ends[0], ends[-1] = -1.0, 1.5

    def value(y):
        transform = maximise(
            lambda u: sign * (flux(u) - (x - y) / t * u), np.full(y.shape, lower), np.full(y.shape, upper)
        )
        return sign * (start + states * (y - breakpoints[:-1])) - t * transform

    shape = (len(x), len(states))
    best = maximise(value, np.broadcast_to(ends[:-1], shape), np.broadcast_to(ends[1:], shape))
    best = np.maximum(best, np.maximum(value(ends[:-1] + 0 * best), value(ends[1:] + 0 * best)))
    with jax.enable_x64(True):
        ours = exact.lax_hopf_potential(law, *map(jnp.asarray, (breakpoints, states, x[:, 0], t)))
    assert np.abs(np.asarray(ours) - sign * best.max(axis=1)).max() <= 2e-14


@over(LEGENDRE)
def test_lax_hopf_averages_start_exact_nest_conserve_and_stay_in_bounds(law):
    breakpoints, values = profiles(law)
    times, size = times_for(law), state_scale(law)
    ours = exact.lax_hopf_cell_averages(law, breakpoints, values, FACES, times)
    initial = PiecewiseConstant(breakpoints, values)
    assert np.abs(ours[:, 0] - initial.face_averages(FACES)).max() <= 1e-13 * size
    assert ours.min() >= values.min() - 1e-12 * size and ours.max() <= values.max() + 1e-12 * size
    variation = np.abs(np.diff(ours, axis=-1)).sum(-1)
    assert (np.diff(variation, axis=-1) <= 1e-11 * size).all() or (
        variation <= variation[:, :1] + 1e-11
    ).all()
    inflow = evaluate("flux", law, values[:, 0]) - evaluate("flux", law, values[:, -1])
    mass = (ours * np.diff(FACES)).sum(-1)
    quiet = times * speed_scale(law) < 0.1 - 1e-9  # no wave has reached the ends of the faces
    defect = mass - mass[:, :1] - times * inflow[:, None]
    assert np.abs(defect[:, quiet]).max() <= 1e-13 * size
    fine = exact.lax_hopf_cell_averages(
        law, breakpoints, values, np.linspace(FACES[15], FACES[25], 41), times
    )
    assert np.abs(fine.reshape(4, 5, 10, 4).mean(-1) - ours[..., 15:25]).max() <= 1e-12 * size


@over(SMOOTH)
def test_lax_hopf_solutions_form_an_l1_contraction_and_keep_order(law):
    breakpoints, values = profiles(law)
    other = values.copy()
    other[:, 1:-1] = np.maximum(values[:, 1:-1], random_states(law, 4, 4, seed=5))
    times = times_for(law)
    faces = np.linspace(-0.6, 0.8, 281)  # contains all waves
    first = exact.lax_hopf_cell_averages(law, breakpoints, values, faces, times)
    second = exact.lax_hopf_cell_averages(law, breakpoints, other, faces, times)
    assert (second - first).min() >= -1e-12
    distance = (np.abs(second - first) * np.diff(faces)).sum(-1)
    start = (np.abs(other - values) * np.diff(breakpoints)).sum(-1)
    assert (distance <= start[:, None] + 1e-12).all()


def test_burgers_mirrors_greenshields():
    data = random_piecewise_constant(42, 5)
    traffic = exact.lax_hopf_cell_averages(Greenshields(), data.breakpoints, data.values, FACES, TIMES)
    burgers = exact.lax_hopf_cell_averages(Burgers(), data.breakpoints, 1 - 2 * data.values, FACES, TIMES)
    assert np.abs(burgers - (1 - 2 * traffic)).max() <= 1e-12


def test_lax_hopf_is_float64_in_a_float32_program():
    assert not jax.config.jax_enable_x64
    data = random_piecewise_constant(42, 3)
    ours = exact.lax_hopf_cell_averages(Trapezoidal(), data.breakpoints, data.values, FACES, TIMES)
    with jax.enable_x64(True):
        law = as_dtype(Trapezoidal(), jnp.float32)  # the same numbers, given in another mode
        theirs = exact.lax_hopf_cell_averages(law, data.breakpoints, data.values, FACES, TIMES)
    assert isinstance(ours, np.ndarray) and ours.dtype == np.float64
    assert np.abs(ours - theirs).max() == 0
    assert not jax.config.jax_enable_x64
    assert jnp.zeros(2).dtype == jnp.float32


@over({"greenshields": Greenshields(), "trapezoidal": Trapezoidal()})
def test_lax_hopf_batch_is_the_loop(law):
    data = random_piecewise_constant(7, 5)
    batch = exact.lax_hopf_cell_averages(law, data.breakpoints, data.values, FACES, TIMES)
    assert batch.shape == (5, 5, 40)
    for values, averages in zip(data.values, batch, strict=True):
        alone = exact.lax_hopf_cell_averages(law, data.breakpoints, values, FACES, TIMES)
        assert alone.shape == (5, 40)
        assert np.abs(alone - averages).max() <= 1e-14
    stacked = exact.lax_hopf_cell_averages(law, data.breakpoints, data.values.reshape(5, 1, 10), FACES, TIMES)
    assert (stacked[:, 0] == batch).all()


class CountedGreenshields(AbstractLaw):
    """Greenshields' flux that counts how often it is traced."""

    speed: jax.Array
    curvature: ClassVar = "concave"
    lower: ClassVar = 0.0
    upper: ClassVar = 1.0
    stationary_points: ClassVar = (0.5,)
    traces: ClassVar = []

    def flux(self, u):
        self.traces.append(u.shape)
        return self.speed * u * (1 - u)

    def wave_speed(self, u):
        return self.speed * (1 - 2 * u)

    def legendre_state(self, speed, lower, upper):
        return jnp.clip(0.5 * (1 - speed / self.speed), lower, upper)


def test_lax_hopf_compiles_once_per_shape():
    faces, times = np.linspace(0, 0.2, 23), np.linspace(0, 0.1, 300)
    for seed, speed in ((1, 1.0), (2, 0.5), (3, 2.0)):
        data = random_piecewise_constant(seed, 9, pieces=4)
        averages = exact.lax_hopf_cell_averages(
            CountedGreenshields(jnp.asarray(speed)), data.breakpoints, data.values, faces, times
        )
        if seed == 1:
            first = len(CountedGreenshields.traces)
        expected = exact.lax_hopf_cell_averages(
            Greenshields(speed), data.breakpoints, data.values, faces, times
        )
        assert np.abs(averages - expected).max() <= 1e-12
    assert len(CountedGreenshields.traces) == first > 0


def test_lax_hopf_potential_inside_a_scan_and_its_gradient():
    law, data = Greenshields(), random_piecewise_constant(42, 3)
    with jax.enable_x64(True):
        faces = jnp.asarray(FACES)

        @jax.jit
        def averages(values):
            def step(_, t):
                return None, jnp.diff(exact.lax_hopf_potential(law, data.breakpoints, values, faces, t))

            return jax.lax.scan(step, None, jnp.asarray(TIMES))[1] / jnp.diff(faces)

        ours = np.asarray(jax.vmap(averages)(jnp.asarray(data.values)))
        expected = exact.lax_hopf_cell_averages(law, data.breakpoints, data.values, FACES, TIMES)
        assert np.abs(ours - expected).max() <= 1e-13

        # N_x = u and N_t = -f(u), here in a fan, in a constant state and on the sides of a shock
        states = jnp.array([0.1, 0.9, 0.2])
        potential = lambda x, t: exact.lax_hopf_potential(  # noqa: E731
            law, jnp.array([0.0, 0.1, 0.2, 0.3]), states, x, t
        )
        slopes = jax.jit(jax.grad(potential, (0, 1)))
        for x, t, u in ((0.19, 0.05, 0.6), (0.05, 0.05, 0.1), (0.12, 0.05, 0.9), (0.2, 0.02, 0.5)):
            n_x, n_t = slopes(jnp.asarray(x), jnp.asarray(t))
            assert float(n_x) == pytest.approx(u, abs=1e-12)
            assert float(n_t) == pytest.approx(-u * (1 - u), abs=1e-12)
    single = [jnp.asarray(a, jnp.float32) for a in (data.breakpoints, data.values[0], FACES)]
    potential = jax.jit(exact.lax_hopf_potential)(law, *single, 0.05)
    assert potential.dtype == jnp.float32 and jnp.isfinite(potential).all()


def test_many_pieces_and_far_away_domains():
    data = random_piecewise_constant(3, 1, pieces=400, domain=(1000.0, 1000.2))
    law = Triangular(2.0, 1.0)
    faces = np.linspace(1000.0, 1000.2, 101)
    ours = exact.lax_hopf_cell_averages(law, data.breakpoints, data.values[0], faces, [0.0, 0.003, 0.05])
    fronts = WaveFronts(law, data.breakpoints, data.values[0], 0.05)
    for t, average in zip((0.0, 0.003, 0.05), ours, strict=True):
        assert (
            np.abs(average - fronts.cell_averages(faces, t)).max() <= 5e-9
        )  # positions are only known to 1e-13


def test_one_piece_stays_constant():
    for law, state in ((Greenberg(), 0.0), (Burgers(), -2.0), (Underwood(), 1.0)):
        ours = exact.lax_hopf_cell_averages(law, [0.0, 1.0], [state], FACES, TIMES)
        assert np.abs(ours - state).max() <= 1e-13


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"law": BuckleyLeverett()}, "neither"),
        ({"states": [0.2, 1.3]}, "admits"),
        ({"states": [0.2, np.nan]}, "not finite"),
        ({"times": [0.0, -1.0]}, "at least 0"),
        ({"breakpoints": [0.0, 2.0, 1.0]}, "increase"),
        ({"breakpoints": [0.0, 1.0]}, "breakpoints"),
        ({"faces": [0.0, 0.0, 1.0]}, "increase"),
        ({"times": [[0.0]]}, "one axis"),
    ],
)
def test_lax_hopf_names_what_is_wrong(change, words):
    arguments = {
        "law": Greenshields(),
        "breakpoints": [0.0, 1.0, 2.0],
        "states": [0.2, 0.8],
        "faces": [0.0, 1.0, 2.0],
        "times": [0.0, 1.0],
    }
    with pytest.raises(ValueError, match=words):
        exact.lax_hopf_cell_averages(**(arguments | change))


# -------------------------------------------------------------------------------- wave-front tracking


@over(LINEAR_PIECES | {"polygon": NEITHER["polygon"]})
def test_wave_fronts_agree_with_riemann_waves(law):
    for left, right in jumps(law):
        waves = exact.riemann_waves(law, left, right)
        fronts = WaveFronts(law, [-1.0, 0.25, 1.0], [left, right])
        positions, speeds, states = fronts.fronts(2.0)
        assert speeds == pytest.approx([w.slowest for w in waves], abs=1e-11 * speed_scale(law))
        assert positions == pytest.approx(0.25 + 2.0 * speeds)
        assert states == pytest.approx([waves[0].left, *(w.right for w in waves)])


def test_wave_fronts_of_a_polygon_restart_conserve_and_obey_the_entropy_condition():
    law = NEITHER["polygon"]
    breakpoints, values = profiles(law, count=6)
    for b, v in zip(breakpoints, values, strict=True):
        fronts = WaveFronts(law, b, v)
        assert np.isfinite(fronts.times).all() and (np.diff(fronts.times) >= 0).all()
        inflow = np.subtract(*evaluate("flux", law, v[[0, -1]]))
        for t in (0.0, 0.02, 0.3):
            mass = fronts.cell_averages([-2.0, 2.5], t)[0] * 4.5
            assert mass == pytest.approx(
                fronts.cell_averages([-2.0, 2.5], 0.0)[0] * 4.5 + t * inflow, abs=1e-12
            )
            positions, speeds, states = fronts.fronts(t)
            assert (np.diff(positions) >= -1e-13).all()
            for speed, left, right in zip(speeds, states[:-1], states[1:], strict=True):
                (wave,) = exact.riemann_waves(law, left, right)  # every front is one admissible jump
                assert wave.slowest == pytest.approx(speed, abs=1e-9)
        positions, _, states = fronts.fronts(0.02)
        keep = np.diff(positions, prepend=-np.inf) > 1e-12
        again = WaveFronts(
            law, [-9.0, *positions[keep], 9.0], states[np.concatenate([np.flatnonzero(keep), [len(keep)]])]
        )
        assert np.abs(again.cell_averages(FACES, 0.28) - fronts.cell_averages(FACES, 0.3)).max() <= 1e-11


def test_wave_fronts_by_hand():
    """A triangular queue dissolves: eaten from its front at speed -1, and from its back by a shock."""
    fronts = WaveFronts(Triangular(), [-1.0, 0.0, 1.0, 2.0], [0.2, 1.0, 0.0])
    # back: -0.2/(1 - 0.2) = -0.25; front: 1 → 0.5 at -1, 0.5 → 0 at +1; they meet at x = -1/3, t = 4/3
    assert fronts.times == pytest.approx([0.0, 4 / 3])
    positions, speeds, states = fronts.fronts(1.0)
    assert positions == pytest.approx([-0.25, 0.0, 2.0])
    assert speeds == pytest.approx([-0.25, -1.0, 1.0])
    assert states == pytest.approx([0.2, 1.0, 0.5, 0.0])
    assert fronts([-0.3, -0.2, 1.0, 2.5], 1.0) == pytest.approx([0.2, 1.0, 0.5, 0.0])
    _, speeds, states = fronts.fronts(3.0)
    assert states == pytest.approx([0.2, 0.5, 0.0]) and speeds == pytest.approx([1.0, 1.0])


def test_wave_fronts_refuse_curved_fluxes_and_later_times():
    with pytest.raises(ValueError, match="piecewise-linear"):
        WaveFronts(Greenshields(), [0.0, 1.0, 2.0], [0.1, 0.2])
    with pytest.raises(ValueError, match="breakpoint"):
        WaveFronts(Triangular(), [0.0, 1.0], [0.1, 0.2])
    with pytest.raises(ValueError, match="final_time"):
        WaveFronts(Triangular(), [0.0, 1.0, 2.0], [0.1, 0.2], 1.0)(0.0, 2.0)


# -------------------------------------------------------------------------------- characteristics


def wave(law, share=0.4):
    lower, upper = interval(law)
    middle = 0.5 * (lower + upper)
    return Sine(middle + 0.05 * (upper - lower), share * (upper - lower), 1.0)


CURVED = {name: SMOOTH[name] for name in ("greenberg", "underwood", "burgers", "user-concave")} | {
    "buckley-leverett": BuckleyLeverett(),
    "sine": NEITHER["sine"],
}


@over(CURVED)
def test_characteristics_obey_their_equation_and_the_averages_are_exact(law):
    grid, u0 = UniformGrid(24), wave(law)
    t = 0.95 * exact.shock_time(law, u0, 0.0, 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    x = grid.centres[:, None] + 0.5 * grid.dx * nodes
    u = exact.characteristics(law, u0, x, t)
    assert u.dtype == np.float64 and u.shape == x.shape
    foot = x - t * evaluate("wave_speed", law, u)
    with jax.enable_x64(True):
        assert np.abs(np.asarray(u0(jnp.asarray(foot))) - u).max() <= 1e-11
    average = exact.characteristic_cell_averages(law, u0, grid, t)
    # Quadrature sees a steep front only roughly: there the test is that four times finer averages nest.
    smooth = np.ptp(u, axis=1) < 0.15 * np.ptp(u)
    assert np.abs(average - u @ (0.5 * weights))[smooth].max() <= 1e-12 and smooth.sum() >= 15
    assert average.mean() == pytest.approx(float(u0.mean), abs=1e-13)
    steepest = max(3, min(21, int(np.argmax(np.ptp(u, axis=1)))))
    part = UniformGrid(24, grid.faces[steepest - 3], grid.faces[steepest + 3])
    fine = exact.characteristic_cell_averages(law, u0, part, t)
    assert np.abs(fine.reshape(6, 4).mean(-1) - average[steepest - 3 : steepest + 3]).max() <= 1e-12
    start = exact.characteristic_cell_averages(law, u0, grid, 0.0)
    assert np.abs(start - u0.cell_averages(grid)).max() <= 1e-14


@over({name: CURVED[name] for name in ("burgers", "greenberg", "buckley-leverett", "sine")})
def test_characteristics_stop_at_the_first_shock(law):
    u0 = wave(law)
    t = exact.shock_time(law, u0, 0.0, 1.0)
    with jax.enable_x64(True):
        y = jnp.linspace(0, 1, 20001)
        slope = jax.vmap(jax.grad(lambda y: as_dtype(law, jnp.float64).wave_speed(u0(y))))(y)
        assert t == pytest.approx(-1 / float(slope.min()), rel=1e-6)
    exact.characteristics(law, u0, np.linspace(0, 1, 9), 0.999 * t)
    with pytest.raises(ValueError, match="first shock"):
        exact.characteristics(law, u0, np.linspace(0, 1, 9), 1.001 * t)
    with pytest.raises(ValueError, match="first shock"):
        exact.characteristic_cell_averages(law, u0, UniformGrid(8), 1.001 * t)


def test_characteristics_in_closed_form():
    x, t = np.linspace(-3, 3, 13), 0.7
    ramp = exact.characteristics(Burgers(), lambda y: 0.5 * y, x, t)
    assert ramp == pytest.approx(0.5 * x / (1 + 0.5 * t), abs=1e-13)
    moved = exact.characteristics(LinearAdvection(-2.0), jnp.tanh, x, t)
    assert moved == pytest.approx(np.tanh(x + 2 * t), abs=1e-14)
    assert exact.shock_time(Burgers(), Sine(0.3, 0.25, 2.0), 0.0, 2.0) == pytest.approx(
        2.0 / (2 * np.pi * 0.25), rel=1e-12
    )
    assert exact.shock_time(Burgers(), lambda y: 0.5 * y, 0.0, 1.0) == np.inf
    assert exact.shock_time(LinearAdvection(3.0), jnp.tanh, -1.0, 1.0) == np.inf


def test_smooth_data_cross_a_kink_as_a_plateau_or_a_shock():
    law = Triangular()
    falling, rising = (lambda y: 0.5 - 0.1 * jnp.tanh(y)), (lambda y: 0.5 + 0.1 * jnp.tanh(y))
    x = np.linspace(-2, 2, 9)
    u = exact.characteristics(law, falling, x, 1.0)
    expected = np.where(x < -1, 0.5 - 0.1 * np.tanh(x + 1), np.where(x > 1, 0.5 - 0.1 * np.tanh(x - 1), 0.5))
    assert u == pytest.approx(expected, abs=1e-13)
    assert exact.shock_time(law, falling, -3.0, 3.0) == np.inf
    assert exact.shock_time(law, rising, -3.0, 3.1) == 0.0
    grid = UniformGrid(10, -2.0, 2.0)
    average = exact.characteristic_cell_averages(law, falling, grid, 1.0)
    assert average[4:6] == pytest.approx([0.5, 0.5], abs=1e-14)
    assert average.mean() == pytest.approx(0.5, abs=1e-13)


def test_characteristics_agree_with_lax_hopf_as_the_steps_shrink():
    """Smooth data cut into n steps of the right mean: the averages differ by a little less than O(n⁻²)."""
    law, u0, grid = Greenshields(), Sine(0.5, 0.2, 1.0), UniformGrid(20)
    smooth = exact.characteristic_cell_averages(law, u0, grid, 0.3)
    errors = []
    for steps in (200, 400):
        fine = UniformGrid(3 * steps, -1.0, 2.0)
        stepped = exact.lax_hopf_cell_averages(law, fine.faces, u0.cell_averages(fine), grid.faces, [0.3])[0]
        errors.append(np.abs(stepped - smooth).max())
    assert errors[1] < 1e-4 and errors[0] / errors[1] > 2.5


@pytest.mark.parametrize("t", [-1.0, np.nan, np.inf])
def test_times_must_be_finite_and_positive(t):
    with pytest.raises(ValueError, match="t is"):
        exact.characteristics(Burgers(), jnp.sin, [0.0, 1.0], t)
    with pytest.raises(ValueError, match="t is"):
        exact.riemann_cell_averages(Burgers(), 0.0, 1.0, [0.0, 1.0], t)


def test_lax_hopf_averages_at_time_zero_are_finite_for_slow_laws():
    """Jumps on faces at t = 0 with speeds below one: no quotient may underflow."""
    places, states = np.linspace(0.0, 0.2, 11), np.random.RandomState(42).rand(3, 10)
    faces = np.linspace(0.0, 0.2, 201)
    for law in (Underwood(0.1, 1.0, 1.0), Greenshields(0.3, 1.0), Triangular(0.2, 0.1, 1.0)):
        found = exact.lax_hopf_cell_averages(law, places, states, faces, [0.0, 1e-3])
        np.testing.assert_allclose(found[:, 0], np.repeat(states, 20, axis=1), rtol=0, atol=1e-12)
        assert np.isfinite(found).all()
