import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import binary_erosion

from sciml.ct import PHANTOMS, Ellipse, Phantom, filtered_backprojection, psnr
from sciml.ct.filtered import WINDOWS, short_scan_weights

from .scans import GEOMETRIES, geometry, unit_grid

GRID = unit_grid(64)
BLOCK = PHANTOMS["bored-block"]()
TRUE = BLOCK.raster(GRID, samples=4)
INSIDE = np.asarray(binary_erosion(TRUE == 1, iterations=3), bool)
OUTSIDE = np.asarray(binary_erosion(TRUE == 0, iterations=3), bool) & (
    np.hypot(GRID.x, GRID.y[:, None]) < 0.9
)
reconstruct = eqx.filter_jit(filtered_backprojection)


def check(image, scan_name=""):
    """The level is right inside the material and outside; edges are a matter of resolution."""
    image = np.asarray(image)
    assert abs(image[INSIDE].mean() - 1) < 3e-3, scan_name
    assert abs(image[OUTSIDE].mean()) < 3e-3 and image[INSIDE].std() < 0.02
    assert psnr(image, TRUE) > 24


@pytest.mark.parametrize("turn", [2 * np.pi, np.pi, -1.4 * np.pi], ids=["full", "half", "short"])
@pytest.mark.parametrize("kind", GEOMETRIES)
def test_attenuation_comes_out_in_its_unit(kind, turn):
    """Full, half and short scans in both directions, with the axis and the detector displaced or not."""
    if kind != "parallel" and abs(turn) < 4:
        turn = 1.3 * np.pi  # a fan needs half a turn and its opening angle
    for lengths in ({}, {"detector_offset": 0.05, "axis_shift": 0.1}):
        scan = geometry(kind, 180, 120, width=2.7, turn=turn, **lengths)
        check(reconstruct(BLOCK.sinogram(scan, samples=3), scan, GRID, filter="hann"), str(lengths))


def test_views_need_not_be_equally_spaced():
    scan = geometry("parallel", 240, 120, width=2.7, turn=np.pi)
    kept = np.sort(np.r_[np.arange(0, 240, 2), np.arange(1, 120, 2)])  # twice as dense on one side
    scan = scan.subset(np.random.default_rng(0).permutation(kept))
    check(reconstruct(BLOCK.sinogram(scan, samples=3), scan, GRID, filter="hann"))


def test_a_disc_converges_to_its_value_and_windows_blur_in_their_order():
    disc = Phantom([Ellipse((0.1, 0.05), (0.5, 0.5), 0.7)])
    scan = geometry("fan", 180, 120, width=2.7)
    true, sinogram = disc.raster(GRID, samples=4), disc.sinogram(scan, samples=3)
    error = {}
    for name in WINDOWS:
        image = np.asarray(reconstruct(sinogram, scan, GRID, filter=name))
        assert abs(image[np.asarray(binary_erosion(true > 0.69, iterations=3), bool)].mean() - 0.7) < 2e-3
        error[name] = np.abs(image - true).max()
    assert error["shepp-logan"] < error["cosine"] < error["hamming"] < error["hann"]


def test_shares_of_a_line_sum_to_one(x64):
    """The line (β, γ) is measured again at (β + π + 2γ, -γ)."""
    gamma = jnp.linspace(-0.3, 0.3, 31)
    for arc in (np.pi + 0.6, np.pi + 1.1):
        first = jnp.linspace(0, arc, 200)[:, None]
        again = first + np.pi + 2 * gamma
        share = short_scan_weights(first, gamma, jnp.asarray(arc))
        other = short_scan_weights(again, -gamma, jnp.asarray(arc))
        measured_twice = np.asarray((again < arc) & (first >= 0))
        np.testing.assert_allclose((share + other)[measured_twice], 1, atol=1e-9)
        once = np.asarray((again > arc) & (first + 2 * gamma - np.pi < 0))  # neither later nor before
        np.testing.assert_allclose(np.asarray(share)[once], 1, atol=1e-9)


def test_wrong_input_is_refused():
    scan = geometry("parallel", 4, 8)
    with pytest.raises(ValueError, match="hann"):
        filtered_backprojection(jnp.ones((4, 8)), scan, GRID, filter="ramp")  # pyright: ignore
    with pytest.raises(ValueError, match="shape"):
        filtered_backprojection(jnp.ones((8, 4)), scan, GRID)


def test_single_view_single_bin_and_zero_data_stay_finite():
    for kind, views, bins in (("parallel", 1, 8), ("fan", 2, 1), ("curved", 1, 1)):
        scan = geometry(kind, views, bins)
        assert np.isfinite(reconstruct(jnp.ones(scan.shape), scan, unit_grid(5))).all()
        assert not np.asarray(reconstruct(jnp.zeros(scan.shape), scan, unit_grid(5))).any()
