import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.ct import PHANTOMS, Box, Ellipse, ParallelBeam, Phantom, with_gaussian_noise, with_poisson_noise

from .scans import geometry, unit_grid

SHAPES = {
    "ellipse": (Ellipse((0.2, -0.1), (0.5, 0.2), 1.3, 0.4), np.pi * 0.5 * 0.2 * 1.3),
    "box": (Box((0.2, -0.1), (0.5, 0.3), 1.3, 0.4), 0.5 * 0.3 * 1.3),
}


@pytest.mark.parametrize("name", SHAPES)
def test_integral_equals_a_count_of_points_along_the_line(name, x64):
    shape, _ = SHAPES[name]
    scan = geometry("fan", 11, 15)
    lines = jax.vmap(lambda view: jnp.stack(view.line(jnp.arange(15.0))))(scan.scanner())
    got = Phantom([shape]).sinogram(scan)
    t = (np.arange(40000) + 0.5) / 10000 - 2
    for view, bin in ((0, 7), (3, 6), (5, 8), (10, 9)):
        l0, l1, l2 = np.asarray(lines[view, :, bin])
        inside = np.asarray(shape.contains(-l0 * l2 - l1 * t, -l1 * l2 + l0 * t))
        assert float(got[view, bin]) == pytest.approx(1.3 * inside.mean() * 4, abs=4e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_every_view_holds_the_whole_mass(name, x64):
    shape, mass = SHAPES[name]
    scan = ParallelBeam(np.linspace(0, np.pi, 9), 4000, 0.0006)  # 0 and 90 degrees among them
    np.testing.assert_allclose(Phantom([shape]).sinogram(scan).sum(1) * 0.0006, mass, rtol=2e-4)


def test_a_box_seen_along_its_side_is_a_step(x64):
    box = Phantom([Box((0.0, 0.0), (0.5, 0.25), 2.0)])
    got = box.sinogram(ParallelBeam([0.0, np.pi / 2], 5, 0.2))
    np.testing.assert_allclose(got, [[0, 0.5, 0.5, 0.5, 0], [0, 0, 1, 0, 0]], atol=1e-12)


@pytest.mark.parametrize("name", PHANTOMS)
def test_named_phantoms_fit_the_unit_disc(name):
    phantom = PHANTOMS[name]()
    image = phantom.raster(unit_grid(48), samples=2)
    x, y = np.meshgrid(unit_grid(48).x, unit_grid(48).y)
    assert not image[np.hypot(x, y) > 1.02].any() and image.max() > 0.3 and image.min() > -1e-12
    assert np.isfinite(np.asarray(phantom.sinogram(geometry("curved", 1, 9), samples=3))).all()


def test_scaling():
    scan, larger = ParallelBeam([0.3], 20, 0.1), ParallelBeam([0.3], 20, 0.5)
    small = PHANTOMS["bored-block"]()
    got = small.scaled(5.0, 0.1).sinogram(larger)
    np.testing.assert_allclose(got, 0.5 * small.sinogram(scan), rtol=2e-5, atol=1e-6)


def test_noise_has_the_spread_it_says():
    sinogram = jnp.linspace(0.0, 2.0, 40000).reshape(100, 400)
    noise = with_gaussian_noise(sinogram, 0.01, key=jax.random.key(0)) - sinogram
    assert float(noise.std()) == pytest.approx(0.02, rel=0.02)
    noise = (with_poisson_noise(sinogram, 1e4, key=jax.random.key(0)) - sinogram) * jnp.exp(-sinogram / 2)
    assert float(noise.std()) == pytest.approx(0.01, rel=0.02)
    assert np.isfinite(np.asarray(with_poisson_noise(sinogram + 50, 10.0, key=jax.random.key(0)))).all()
