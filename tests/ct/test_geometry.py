import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.ct import CurvedFanBeam, FanBeam, ImageGrid, ParallelBeam, bin_of_axis

from .scans import GEOMETRIES, geometry

pytestmark = pytest.mark.usefixtures("x64")
OFFSETS = {"detector_offset": 0.13, "axis_shift": -0.21}


def test_pixel_centres():
    grid = ImageGrid(3, 4, 0.5, centre=(1.0, 2.0))
    np.testing.assert_allclose(grid.x, [0.25, 0.75, 1.25, 1.75])
    np.testing.assert_allclose(grid.y, [2.5, 2.0, 1.5])  # the first row is on top
    assert grid.shape == (3, 4) and ImageGrid(5).shape == (5, 5)
    assert hash(grid) == hash(ImageGrid(3, 4, 0.5, (1, 2)))


@pytest.mark.parametrize("kind", GEOMETRIES)
def test_a_point_of_a_line_is_seen_in_its_bin(kind):
    scan = geometry(kind, 9, 7, **OFFSETS)
    bins = jnp.arange(7.0) + 0.25
    for number in range(scan.views):
        view = jax.tree.map(lambda leaf: leaf[number], scan.scanner())  # noqa: B023
        l0, l1, l2 = view.line(bins)
        np.testing.assert_allclose(l0**2 + l1**2, 1)
        for along in (-0.7, 0.0, 0.4):
            x, y = -l0 * l2 - l1 * along, -l1 * l2 + l0 * along
            np.testing.assert_allclose(view.bin_of(x, y), bins, atol=1e-12)


@pytest.mark.parametrize("kind", ["fan", "curved"])
def test_lines_join_source_and_bin(kind):
    """Against source and detector placed by hand with the definitions of the module."""
    scan = geometry(kind, 6, 5, **OFFSETS)
    scanner = scan.scanner()
    for number, theta in enumerate(np.asarray(scan.angles)):
        e_u, e_r = np.array([np.cos(theta), np.sin(theta)]), np.array([-np.sin(theta), np.cos(theta)])
        source = 0.21 * e_u - 4.0 * e_r
        for k in range(5):
            u = (k - 2) * 1.5 * 2.4 / 5 + 0.13
            if kind == "fan":
                target = source + 6.0 * e_r + u * e_u
            else:
                target = source + 6.0 * (np.cos(u / 6) * e_r + np.sin(u / 6) * e_u)
            view = jax.tree.map(lambda leaf: leaf[number], scanner)  # noqa: B023
            line = np.array(view.line(jnp.asarray(float(k))))
            assert abs(line @ [*source, 1]) < 1e-12 and abs(line @ [*target, 1]) < 1e-12


def test_a_parallel_bin_looks_along_its_line():
    scan = ParallelBeam([0.3], 5, 0.7, detector_offset=0.1, axis_shift=0.25)
    l0, l1, l2 = jax.vmap(lambda view: view.line(jnp.arange(5.0)))(scan.scanner())
    np.testing.assert_allclose(-l2[0] / np.hypot(l0, l1)[0], (np.arange(5) - 2) * 0.7 + 0.1 - 0.25)
    np.testing.assert_allclose(l1 / l0, np.tan(0.3))


def test_bin_of_the_axis():
    np.testing.assert_allclose(bin_of_axis(ParallelBeam([0.0, 1.0], 8, 0.5, axis_shift=1.0)), 5.5)
    np.testing.assert_allclose(bin_of_axis(geometry("fan", 3, 8, axis_shift=0.2)), 3.5 + 0.2 * 8 / 2.4)


@pytest.mark.parametrize("kind", GEOMETRIES)
def test_subset_keeps_the_lengths_of_its_views(kind):
    scan = geometry(kind, 6, 5, axis_shift=np.linspace(0, 0.1, 6))
    part = scan.subset(np.array([4, 1]))
    assert part.shape == (2, 5)
    whole, some = scan.scanner(), part.scanner()
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(some), strict=True):
        np.testing.assert_allclose(a[np.array([4, 1])], b)


DISTANCES = {"source_to_axis": 4.0, "source_to_detector": 6.0}


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: ParallelBeam([], 4), "at least one"),
        (lambda: ParallelBeam([[0.0]], 4), "one angle per view"),
        (lambda: ParallelBeam([np.nan], 4), "finite"),
        (lambda: ParallelBeam([0.0], 0), "bins"),
        (lambda: ParallelBeam([0.0], 4, -1.0), "spacing"),
        (lambda: ParallelBeam([0.0], 4, axis_shift=[0.0, 1.0]), "each of the 1 views"),
        (lambda: FanBeam([0.0], 4, 1.0, source_to_axis=6.0, source_to_detector=4.0), "swapped"),
        (lambda: FanBeam([0.0], 4, 1.0, source_to_axis=-6.0, source_to_detector=4.0), "positive"),
        (lambda: CurvedFanBeam([0.0], 400, 0.1, **DISTANCES).narrowest_spacing(ImageGrid(2)), "90"),
        (lambda: FanBeam([0.0], 4, 1.0, **DISTANCES).narrowest_spacing(ImageGrid(64)), "same unit"),
        (lambda: ImageGrid(0), "rows"),
        (lambda: ImageGrid(4, pixel=0.0), "pixel"),
        (lambda: ImageGrid(4, centre=(np.inf, 0.0)), "centre"),
    ],
)
def test_bad_input_says_what_to_do(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_degrees_are_noticed():
    with pytest.warns(UserWarning, match="deg2rad"):
        ParallelBeam(np.arange(0.0, 180.0), 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ParallelBeam(np.arange(0.0, 4 * np.pi, 0.1), 4)  # two turns are no mistake
