import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.ct import PHANTOMS, AbstractProjector, ImageGrid, JosephProjector, ParallelBeam
from sciml.ct.testing import adjoint_defect, assert_adjoint

from .scans import GEOMETRIES, backproject, geometry, project, unit_grid

KEY = 7
# rows, columns, views, bins: odd, even, oblong, few and many bins per pixel
SIZES = ((9, 14, 7, 15), (16, 8, 5, 90))
LENGTHS = (
    {},
    {"detector_offset": 0.17},
    {"axis_shift": -0.11},
    {"detector_offset": -0.3, "axis_shift": 0.23},
)


class Compiled(AbstractProjector):
    """A projector compiled once per size; `wrong` spoils its transpose."""

    projector: JosephProjector
    wrong: float = 0.0

    def project(self, image):
        return project(self.projector, image)

    def backproject(self, sinogram):
        return backproject(self.projector, sinogram) * (1 + self.wrong)


@pytest.mark.parametrize(
    "kind, size",
    [("parallel", SIZES[0]), ("fan", SIZES[0]), ("fan", SIZES[1]), ("curved", SIZES[1])],
    ids=str,
)
def test_backprojection_is_the_transpose(kind, size, x64):
    rows, columns, views, bins = size
    for number, lengths in enumerate(LENGTHS):
        grid = ImageGrid(rows, columns, 0.37)
        near = {} if kind == "parallel" else {"source_to_axis": 9.0, "source_to_detector": 20.0}
        scan = geometry(kind, views, bins, width=6.0, first=0.4 * number, **near, **lengths)
        projector = JosephProjector(scan, grid)
        assert_adjoint(
            Compiled(projector), grid.shape, scan.shape, jnp.float64, key=jax.random.key(KEY + number)
        )


@pytest.mark.parametrize("kind", GEOMETRIES)
def test_backprojection_is_the_transpose_in_single_precision(kind):
    grid = ImageGrid(33, 20, 0.37)
    near = {} if kind == "parallel" else {"source_to_axis": 30.0, "source_to_detector": 70.0}
    scan = geometry(kind, 18, 41, width=13.0, detector_offset=0.3, **near)
    assert_adjoint(
        Compiled(JosephProjector(scan, grid)), grid.shape, scan.shape, jnp.float32, key=jax.random.key(0)
    )


def test_the_adjoint_check_can_fail(x64):
    grid, scan = ImageGrid(9, 14, 0.37), geometry("parallel", 7, 15, width=6.0)  # compiled above
    bad = Compiled(JosephProjector(scan, grid), 1e-3)
    with pytest.raises(AssertionError, match="transpose"):
        assert_adjoint(bad, grid.shape, scan.shape, key=jax.random.key(1))
    assert adjoint_defect(bad, grid.shape, scan.shape, key=jax.random.key(1)) > 1e-6


def gaussian(grid, scan, centre=(0.1, -0.05), width=0.2):
    """A smooth object and its line integrals."""
    x, y = np.meshgrid(grid.x, grid.y)
    image = np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * width**2))
    l0, l1, l2 = jax.vmap(lambda view: view.line(jnp.arange(scan.bins, dtype=float)))(scan.scanner())
    distance = l0 * centre[0] + l1 * centre[1] + l2
    return jnp.asarray(image), np.sqrt(2 * np.pi) * width * np.exp(-(distance**2) / (2 * width**2))


@pytest.mark.parametrize("kind", GEOMETRIES)
def test_line_integrals_of_a_smooth_object_converge_with_second_order(kind, x64):
    scan = geometry(kind, 24, 40, detector_offset=0.05, axis_shift=0.02)
    errors = []
    for rows in (24, 48):
        grid = ImageGrid(rows, rows + 1, 2 / rows, centre=(0.01, -0.02))
        image, exact = gaussian(grid, scan)
        errors.append(np.abs(project(JosephProjector(scan, grid), image) - exact).max())
    order = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (order > 1.8).all() and errors[-1] < 1e-2 * exact.max(), (order, errors)


def test_line_integrals_of_an_object_with_edges_converge_with_first_order(x64):
    scan, errors = geometry("parallel", 24, 40, detector_offset=0.05), []
    for rows in (24, 48):
        grid = unit_grid(rows)
        image = jnp.asarray(PHANTOMS["hollow-square"]().raster(grid))
        errors.append(
            np.abs(
                project(JosephProjector(scan, grid), image) - PHANTOMS["hollow-square"]().sinogram(scan)
            ).mean()
        )
    assert (np.log2(np.array(errors[:-1]) / errors[1:]) > 1.0).all(), errors


def test_a_pixel_row_is_integrated_along_and_across(x64):
    """0 and 90 degrees, where the sine or cosine is zero: sums of columns and rows."""
    image = jnp.asarray(np.random.default_rng(0).normal(size=(6, 6)))
    scan = ParallelBeam([0.0, np.pi / 2, np.pi], 6, 0.5)
    got = project(JosephProjector(scan, ImageGrid(6, pixel=0.5)), image)
    np.testing.assert_allclose(got[0], 0.5 * image.sum(0), atol=1e-12)
    np.testing.assert_allclose(got[1], 0.5 * image.sum(1)[::-1], atol=1e-12)
    np.testing.assert_allclose(got[2], got[0][::-1], atol=1e-12)  # half a turn mirrors the detector


def test_what_lies_beside_the_object_is_zero_and_one_bin_is_enough(x64):
    image = jnp.ones((5, 5))
    beside = ParallelBeam([0.0, 0.7], 3, 0.1, detector_offset=9.0)
    assert not np.asarray(JosephProjector(beside, ImageGrid(5)).project(image)).any()
    one = JosephProjector(ParallelBeam([0.0], 1), ImageGrid(5)).project(image)
    np.testing.assert_allclose(one, [[5.0]])


@pytest.mark.parametrize("kind", GEOMETRIES)
def test_gradients_against_finite_differences(kind, x64):
    """Of the misfit with respect to image, angles, offsets, distances; forward and reverse mode agree."""
    grid = unit_grid(16)
    scan = geometry(kind, 7, 20, first=0.13, detector_offset=0.031, axis_shift=0.017)
    projector = JosephProjector(scan, grid)
    rng = np.random.default_rng(3)
    image, _ = gaussian(grid, scan)
    data = jnp.asarray(rng.normal(size=scan.shape))

    @eqx.filter_jit
    def misfit(parameters):
        scan, image = parameters
        return 0.5 * ((projector.with_geometry(scan).project(image) - data) ** 2).sum()

    parameters = scan, image
    gradient = eqx.filter_jit(jax.grad(misfit))(parameters)
    direction = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), parameters)
    forward = eqx.filter_jit(lambda p, d: jax.jvp(misfit, (p,), (d,))[1])
    leaves = jax.tree.leaves(parameters)
    for number in range(len(leaves)):
        one = [d if i == number else 0 * d for i, d in enumerate(jax.tree.leaves(direction))]
        one = jax.tree.unflatten(jax.tree.structure(parameters), one)
        step = 1e-6
        ahead, behind = (
            misfit(jax.tree.map(lambda p, d: p + sign * step * d, parameters, one))  # noqa: B023
            for sign in (1, -1)
        )
        expected = float(ahead - behind) / (2 * step)
        products = jax.tree.map(lambda g, d: (g * d).sum(), gradient, one)
        assert sum(map(float, jax.tree.leaves(products))) == pytest.approx(expected, rel=1e-5, abs=1e-7)
        if kind == "fan":
            assert float(forward(parameters, one)) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_backprojection_is_differentiable_in_the_geometry(x64):
    grid, scan = unit_grid(10), geometry("fan", 5, 14, axis_shift=0.03)
    projector = JosephProjector(scan, grid)
    sinogram = jnp.asarray(np.random.default_rng(1).normal(size=scan.shape))
    image = jnp.asarray(np.random.default_rng(2).normal(size=grid.shape))

    def product(shift):
        moved = eqx.tree_at(lambda scan: scan.axis_shift, scan, shift)
        return (projector.with_geometry(moved).backproject(sinogram) * image).sum()

    def same(shift):
        moved = eqx.tree_at(lambda scan: scan.axis_shift, scan, shift)
        return (projector.with_geometry(moved).project(image) * sinogram).sum()

    a, b = jax.jit(lambda shift: (jax.grad(product)(shift), jax.grad(same)(shift)))(scan.axis_shift)
    assert float(a) == pytest.approx(float(b))


def test_second_derivatives_and_batches(x64):
    """Hessian of the misfit in the image is AᵀA; vmap equals the loop."""
    grid, scan = ImageGrid(3, 4), ParallelBeam([0.2, 1.1, 2.5], 6)
    projector = JosephProjector(scan, grid)
    images = jnp.asarray(np.random.default_rng(0).normal(size=(12, 3, 4)))
    basis = jnp.eye(12).reshape(12, 3, 4)
    matrix = jax.jit(jax.vmap(projector.project))(basis).reshape(12, -1).T
    hessian = jax.jit(jax.hessian(lambda image: 0.5 * (projector.project(image) ** 2).sum()))(images[0])
    np.testing.assert_allclose(hessian.reshape(12, 12), matrix.T @ matrix, atol=1e-12)
    looped = np.stack([project(projector, image) for image in images])
    np.testing.assert_allclose(jax.jit(jax.vmap(projector.project))(images), looped, atol=1e-12)
    back = jax.jit(jax.vmap(projector.backproject))(looped).reshape(12, -1)
    np.testing.assert_allclose(back, looped.reshape(12, -1) @ matrix, atol=1e-12)


def test_subsets_and_precision():
    grid, scan = unit_grid(14), geometry("fan", 8, 20, axis_shift=np.linspace(0, 0.1, 8))
    projector = JosephProjector(scan, grid)
    image = jnp.asarray(PHANTOMS["bored-block"]().raster(grid), jnp.float32)
    whole = project(projector, image)
    assert whole.dtype == jnp.float32 and backproject(projector, whole).dtype == jnp.float32
    index = jnp.array([1, 4, 6])
    np.testing.assert_allclose(project(projector.subset(index), image), whole[index], atol=1e-6)


def test_one_trace_for_all_lengths():
    """Angles and lengths are values: another offset does not compile again."""
    traces = []

    @eqx.filter_jit
    def counted(projector, image):
        traces.append(0)
        return projector.project(image)

    for offset in (0.0, 0.1, 0.2):
        counted(
            JosephProjector(geometry("fan", 4, 9, detector_offset=offset), unit_grid(6)), jnp.ones((6, 6))
        )
    assert len(traces) == 1


def test_wrong_shapes_are_refused():
    projector = JosephProjector(geometry("parallel", 5, 9), unit_grid(6))
    with pytest.raises(ValueError, match="grid"):
        projector.project(jnp.ones((5, 6)))
    with pytest.raises(ValueError, match="views and bins swapped"):
        projector.backproject(jnp.ones((9, 5)))
    with pytest.raises(ValueError, match="with_geometry"):
        jax.jit(lambda length: JosephProjector(geometry("parallel", 5, 9, width=length), unit_grid(6)).taps)(
            2.0
        )
