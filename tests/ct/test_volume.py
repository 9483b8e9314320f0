"""Scans in space: the plane as a special case, transposes, gradients, and what comes back from a ball."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from sciml.ct import (
    FanBeam,
    ImageGrid,
    JosephProjector,
    ParallelBeam,
    VolumeGeometry,
    VolumeGrid,
    VolumeProjector,
    cgls,
    filtered_backprojection,
    sart,
    tv_pdhg,
)
from sciml.ct.testing import assert_adjoint

ANGLES = 0.1 + np.arange(7) * 2 * np.pi / 7
DISTANCES = {"source_to_axis": 4.0, "source_to_detector": 6.0}
OFFSETS = {"axis_shift": 0.1, "detector_offset": -0.15}
KINDS = ("parallel", "cone", "wobbling", "steep")

_fbp = eqx.filter_jit(filtered_backprojection)


def scan(kind, angles=ANGLES, rows=11, bins=14, width=2.4):
    if kind == "parallel":
        return VolumeGeometry.parallel(
            angles, rows, bins, (0.9 * width / rows, width / bins), vertical_offset=0.1, **OFFSETS
        )
    if kind == "steep":  # rays that advance most along z
        return VolumeGeometry.cone(angles, 40, bins, 0.5, source_to_axis=2.6, source_to_detector=3.4)
    made = VolumeGeometry.cone(angles, rows, bins, 1.5 * width / bins, **DISTANCES, **OFFSETS)
    if kind == "wobbling":
        turns = Rotation.from_rotvec(np.random.default_rng(0).normal(size=(len(angles), 3)) * 0.2)
        made = made.turned(jnp.asarray(turns.as_matrix(), made.source.dtype))
    return made


def ball(geometry, centre=(0.1, -0.2, 0.15), radius=0.5):
    """Line integrals of a ball of attenuation 1."""
    dtype = geometry.source.dtype
    row, bin = jnp.arange(geometry.rows, dtype=dtype)[:, None], jnp.arange(geometry.bins, dtype=dtype)

    def one(view):
        point, direction = view.ray(row, bin)
        away = [p - c for p, c in zip(point, centre, strict=True)]
        square = sum(d * d for d in direction)
        along = sum(a * d for a, d in zip(away, direction, strict=True))
        inside = along**2 - square * (sum(a * a for a in away) - radius**2)
        return 2 * jnp.sqrt(jnp.maximum(inside, 0)) / jnp.sqrt(square)

    return jax.lax.map(one, geometry.scanner())


@pytest.mark.parametrize("kind", KINDS)
def test_a_point_of_a_ray_is_seen_in_its_pixel(kind, x64):
    geometry = scan(kind)
    rng = np.random.default_rng(1)
    row, bin = rng.uniform(0, 10, 20), rng.uniform(0, 13, 20)
    for k in range(geometry.views):
        view = jax.tree.map(lambda leaf, k=k: leaf[k], geometry.scanner())
        point, direction = view.ray(row, bin)
        place = jnp.stack([p - 0.4 * d for p, d in zip(point, direction, strict=True)] + [jnp.ones(20)])
        u, v, w = view.camera() @ place
        np.testing.assert_allclose((v / w, u / w), (row, bin), atol=1e-10)
        assert (np.asarray(w) > 0).all()


@pytest.mark.parametrize("size", [(9, 8, 7), (5, 10, 10), (1, 6, 9)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_backprojection_is_the_transpose(kind, size, x64):
    projector = VolumeProjector(scan(kind), VolumeGrid(*size, pixel=0.2, centre=(0.03, 0, -0.05)))
    assert_adjoint(projector, size, projector.geometry.shape, key=jax.random.key(0))


def test_backprojection_is_the_transpose_in_single_precision():
    projector = VolumeProjector(scan("wobbling"), VolumeGrid(12, 11, 10, pixel=0.17))
    assert_adjoint(projector, (12, 11, 10), projector.geometry.shape, key=jax.random.key(0))


@pytest.mark.parametrize("kind", ["parallel", "cone"])
def test_the_middle_row_is_a_scan_in_the_plane(kind, x64):
    image = jnp.asarray(np.random.default_rng(2).random((8, 7)))
    if kind == "parallel":
        plane = ParallelBeam(ANGLES, 14, 0.2, **OFFSETS)
        space = VolumeGeometry.parallel(ANGLES, 1, 14, 0.2, **OFFSETS)
    else:
        plane = FanBeam(ANGLES, 14, 0.3, **DISTANCES, **OFFSETS)
        space = VolumeGeometry.cone(ANGLES, 1, 14, 0.3, **DISTANCES, **OFFSETS)
    flat = JosephProjector(plane, ImageGrid(8, 7, pixel=0.3))
    full = VolumeProjector(space, VolumeGrid(1, 8, 7, pixel=0.3))
    sinogram = flat.project(image)
    np.testing.assert_allclose(full.project(image[None])[:, 0], sinogram, atol=1e-12)
    reconstructed = filtered_backprojection(sinogram, plane, flat.grid)
    in_space = filtered_backprojection(sinogram[:, None], space, full.grid)
    np.testing.assert_allclose(in_space[0], reconstructed, atol=1e-11)


@pytest.mark.parametrize("kind", ["parallel", "cone", "wobbling"])
def test_line_integrals_of_a_ball_converge(kind, x64):
    geometry, errors = scan(kind), []
    for rows in (16, 32):
        grid = VolumeGrid(rows, pixel=2 / rows)
        r = np.sqrt((grid.x - 0.1) ** 2 + (grid.y[:, None] + 0.2) ** 2 + (grid.z[:, None, None] - 0.15) ** 2)
        volume = jnp.asarray(np.clip((0.5 - r) / grid.pixel + 0.5, 0, 1))
        errors.append(float(jnp.abs(VolumeProjector(geometry, grid).project(volume) - ball(geometry)).mean()))
    assert errors[1] < 0.45 * errors[0] and errors[1] < 0.01


@pytest.mark.parametrize("kind", ["parallel", "cone", "wobbling", "short"])
def test_a_ball_comes_back_by_filtered_backprojection(kind):
    turn = np.pi + 0.9 if kind == "short" else 2 * np.pi
    angles = np.arange(90) * turn / 90
    geometry = scan("cone" if kind == "short" else kind, angles, 48, 48, 2.8)
    grid = VolumeGrid(32, pixel=2 / 32)
    volume = np.asarray(_fbp(ball(geometry), geometry, grid))
    r = np.sqrt((grid.x - 0.1) ** 2 + (grid.y[:, None] + 0.2) ** 2 + (grid.z[:, None, None] - 0.15) ** 2)
    assert abs(volume[r < 0.35].mean() - 1) < 0.02 and abs(volume[(r > 0.65) & (r < 0.8)].mean()) < 0.02


def test_gradients_against_finite_differences(x64):
    grid = VolumeGrid(6, 7, 8, pixel=0.25)
    smooth = np.exp(-(grid.x**2 + grid.y[:, None] ** 2 + grid.z[:, None, None] ** 2) / 0.3)
    volume = jnp.asarray(smooth)
    data = ball(scan("cone"))
    projector = VolumeProjector(scan("cone"), grid)

    def misfit(volume, axis_shift, offset, distance):
        lengths = {"axis_shift": axis_shift, "detector_offset": offset, "source_to_detector": 6.0}
        moved = VolumeGeometry.cone(ANGLES, 11, 14, 0.26, source_to_axis=distance, **lengths)
        return 0.5 * jnp.sum((projector.with_geometry(moved).project(volume) - data) ** 2)

    point = (0.0131, -0.0117, 4.003)
    gradient = jax.grad(misfit, argnums=(0, 1, 2, 3))(volume, *point)
    direction = jnp.asarray(np.random.default_rng(3).normal(size=grid.shape))
    step = 1e-6
    both = [misfit(volume + sign * step * direction, *point) for sign in (1, -1)]
    np.testing.assert_allclose(jnp.vdot(gradient[0], direction), (both[0] - both[1]) / 2 / step, rtol=1e-6)
    for k in range(3):
        moves = [tuple(p + sign * step * (k == j) for j, p in enumerate(point)) for sign in (1, -1)]
        difference = (misfit(volume, *moves[0]) - misfit(volume, *moves[1])) / 2 / step
        np.testing.assert_allclose(gradient[k + 1], difference, rtol=1e-4)


def test_iterations_work_on_volumes():
    geometry = scan("cone", rows=16, bins=16)
    grid = VolumeGrid(12, pixel=2 / 12)
    projector = VolumeProjector(geometry, grid)
    data = ball(geometry)
    for result in (
        cgls(projector, data, iterations=5),
        sart(projector, data, iterations=3),
        tv_pdhg(projector, data, 1e-3, iterations=30),
    ):
        assert result.image.shape == grid.shape
        left = jnp.linalg.norm(projector.project(result.image) - data) / jnp.linalg.norm(data)
        assert left < 0.25


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="reaches the source"):
        VolumeProjector(scan("cone"), VolumeGrid(10, pixel=1.0))
    with pytest.raises(ValueError, match=r"the volume has shape \(2, 3, 4\)"):
        VolumeProjector(scan("cone"), VolumeGrid(4, pixel=0.3)).project(jnp.zeros((2, 3, 4)))
    with pytest.raises(ValueError, match="are the two swapped"):
        VolumeGeometry.cone(ANGLES, 3, 3, 1.0, source_to_axis=6.0, source_to_detector=4.0)
    with pytest.raises(ValueError, match="geometry.middle has shape"):
        VolumeGeometry(np.ones((2, 4)), np.ones(3), np.ones((2, 3)), np.ones((2, 3)), rows=2, bins=2)
    with pytest.raises(ValueError, match="needs a VolumeGrid"):
        filtered_backprojection(jnp.zeros(scan("cone").shape), scan("cone"), ImageGrid(4))


def test_memory_is_estimated():
    projector = VolumeProjector(scan("cone"), VolumeGrid(10, pixel=0.2))
    assert projector.memory_estimate() == 4 * (6 * 1000 + 3 * 7 * 11 * 14)
