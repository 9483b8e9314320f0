"""Axis, offset and angles from the line integrals themselves."""

import dataclasses

import jax
import numpy as np
import pytest

from sciml.ct import PHANTOMS, ImageGrid, calibrate, centre_of_rotation, read_scan, with_gaussian_noise
from sciml.ct.calibration import coarser
from tests.ct.scans import geometry, unit_grid


@pytest.mark.parametrize("turn", [np.pi, 2 * np.pi, 0.7 * np.pi])
@pytest.mark.parametrize("shift", [-0.2, 0.07])
def test_centre_of_mass_tells_the_axis(shift, turn):
    scan = geometry("parallel", 30, 64, turn=turn, width=2.8, axis_shift=shift)
    data = np.array(PHANTOMS["slotted-blocks"]().sinogram(scan, samples=5))
    data[7] *= np.linspace(0, 2, 64)  # a bad view
    bin = 2.8 / 64
    assert centre_of_rotation(data, scan) == pytest.approx(shift, abs=0.1 * bin)
    with pytest.raises(ValueError, match="at least three views"):
        centre_of_rotation(data[:2], scan.subset(slice(0, 2)))


@pytest.mark.parametrize("kind", ["parallel", "fan"])
def test_axis_and_angles_are_repaired(kind):
    """Of parallel views the angles are not asked for: a stretched object explains smooth changes of them."""
    turn = np.pi if kind == "parallel" else 2 * np.pi
    free = ("axis_shift",) if kind == "parallel" else ("axis_shift", "angles")
    wrong = np.deg2rad(0.6) * np.random.default_rng(0).normal(size=48) * (kind == "fan")
    wrong -= wrong.mean()
    stated = geometry(kind, 48, 64, turn=turn)
    bin_at_axis = 2.4 / 64
    true = dataclasses.replace(stated, angles=stated.angles + wrong, axis_shift=2 * bin_at_axis)
    data = PHANTOMS["slotted-blocks"]().sinogram(true, samples=5)
    data = with_gaussian_noise(data, 0.003, key=jax.random.key(0))
    fitted = calibrate(data, stated, unit_grid(48), free=free, factors=(1,), rounds=12)
    assert float(fitted.geometry.axis_shift) == pytest.approx(2 * bin_at_axis, abs=0.25 * bin_at_axis)
    left = np.asarray(fitted.geometry.angles) - np.asarray(true.angles)
    assert np.std(left) <= 0.8 * np.std(wrong)


def test_detector_offset_of_a_fan():
    stated = geometry("fan", 48, 64)
    bin = float(stated.spacing)
    true = dataclasses.replace(stated, detector_offset=1.5 * bin)
    data = PHANTOMS["slotted-blocks"]().sinogram(true, samples=5)
    fitted = calibrate(data, stated, unit_grid(48), free=("detector_offset",), factors=(2,))
    assert float(fitted.geometry.detector_offset) == pytest.approx(1.5 * bin, abs=0.2 * bin)
    assert fitted.image.shape == (24, 24) and fitted.misfit[-1] < fitted.misfit[0]


def test_coarser_bins_look_along_the_same_lines():
    scan = geometry("fan", 5, 22, detector_offset=0.03)
    means, wide, grid = coarser(jax.numpy.ones(scan.shape), scan, ImageGrid(10, 9, 0.2), 4)
    assert means.shape == (5, 5) == wide.shape and grid == ImageGrid(3, 3, 0.8)
    np.testing.assert_allclose(wide.bin_positions()[1], scan.bin_positions()[4:8].mean(), rtol=1e-5)


def test_wrong_names_are_refused():
    scan = geometry("parallel", 12, 32)
    with pytest.raises(ValueError, match="'source_to_axis' is no field of this geometry"):
        calibrate(np.ones(scan.shape, np.float32), scan, unit_grid(8), free=("source_to_axis",))
    with pytest.raises(ValueError, match="too few to calibrate"):
        narrow = geometry("parallel", 12, 6)
        calibrate(np.ones(narrow.shape, np.float32), narrow, unit_grid(8))


@pytest.mark.data
def test_axes_of_measured_scans(data_folder):
    tooth = read_scan(data_folder / "ct" / "tomopy_tooth" / "tooth.h5").row(0)
    axis = 319.5 + centre_of_rotation(tooth.sinogram, tooth.geometry)
    assert axis == pytest.approx(295.8, abs=0.5)  # 295.6 to 296 by the eye of others
    shepp = read_scan(data_folder / "ct" / "svmbirct_shepp" / "shepp.sinoparams")
    found = centre_of_rotation(shepp.sinogram, shepp.geometry) / float(shepp.geometry.spacing)
    assert found == pytest.approx(-6, abs=0.05)
