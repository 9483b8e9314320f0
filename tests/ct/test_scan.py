"""Scans: views, rows, pixels, npz files, what is repaired and what looks odd."""

import dataclasses

import numpy as np
import pytest

from sciml.ct import (
    PHANTOMS,
    ImageGrid,
    Scan,
    VolumeGeometry,
    VolumeGrid,
    field_of_view,
    read_scan,
    save_scan,
)
from sciml.ct.io import _repeats
from tests.ct.scans import angles_of, geometry

KINDS = ("parallel", "fan", "curved")


def a_scan(kind="fan", **lengths) -> Scan:
    scan = geometry(kind, 12, 30, **lengths)
    return Scan(np.asarray(PHANTOMS["disc"]().sinogram(scan)), scan, "mm", "disc")


@pytest.mark.parametrize("kind", [*KINDS, "cone", "per-view"])
def test_npz_round_trip(kind, tmp_path):
    if kind == "cone":
        made = VolumeGeometry.cone(angles_of(5), 3, 8, 0.5, source_to_axis=4.0, source_to_detector=6.0)
        values = np.zeros(made.shape, np.float32)
        values[:, :, 3:5] = np.random.default_rng(0).random((5, 3, 2))
        scan = Scan(values, made, "mm", "scan")
    elif kind == "per-view":
        scan = a_scan("fan", axis_shift=np.linspace(0, 0.1, 12))
    else:
        scan = a_scan(kind, detector_offset=0.05)
    again = read_scan(save_scan(tmp_path / "scan.npz", scan))
    assert type(again.geometry) is type(scan.geometry) and again.unit == "mm" and again.notes == ()
    np.testing.assert_array_equal(again.sinogram, scan.sinogram)
    for field in dataclasses.fields(scan.geometry):
        np.testing.assert_array_equal(getattr(again.geometry, field.name), getattr(scan.geometry, field.name))


def test_npz_errors(tmp_path):
    path = tmp_path / "scan.npz"
    good = {"sinogram": np.ones((3, 8)), "angles": np.arange(3.0), "spacing": 1.0}

    def refused(words, **changes):
        content = {**good, **changes}
        np.savez(path, allow_pickle=False, **{k: v for k, v in content.items() if v is not None})
        with pytest.raises(ValueError, match=words) as caught:
            read_scan(path)
        assert str(path) in str(caught.value)

    refused("angles is missing", angles=None)
    refused("source_to_axis is missing", geometry="fan")
    refused("geometry is 'spiral'", geometry="spiral")
    refused("pitch is no field", pitch=2.0)
    refused(r"sinogram has shape \(3,\)", sinogram=np.ones(3))
    refused("views and bins swapped", sinogram=np.ones((8, 3)), angles=np.arange(3.0))
    refused("give no line integral", sinogram=np.where(np.eye(3, 8) > 0, np.nan, 1.0))
    refused("not a positive|positive length", spacing=-1.0)
    refused("must be real numbers", sinogram=np.ones((3, 8), complex))
    refused("must be real numbers", sinogram=np.full((3, 8), "a"))
    refused("not all angles are finite", angles=np.array([0, np.nan, 1]))
    with pytest.raises(ValueError, match="a folder; describe its images"):
        read_scan(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"not a readable \.npz"):
        read_scan(path)
    with pytest.raises(ValueError, match="a scan is one of"):
        (tmp_path / "scan.dat").write_text("1 2 3")
        read_scan(tmp_path / "scan.dat")
    with pytest.raises(FileNotFoundError):
        read_scan(tmp_path / "none.npz")
    with pytest.raises(ValueError, match=r"must end in \.npz"):
        save_scan(tmp_path / "scan.dat", a_scan())


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (
            lambda p: np.where(np.arange(p.size).reshape(p.shape) == 40, np.nan, p),
            "1 values that are not finite",
        ),
        (lambda p: p - 2 * (np.arange(p.shape[1]) == 3), "go down to"),
        (lambda p: 1000 + p, "are these counts"),
        (lambda p: 0 * p, "all line integrals are zero"),
        (lambda p: p + 1, "wider than the field of view"),
    ],
)
def test_what_looks_odd_is_noted(change, note, tmp_path):
    scan = a_scan("parallel")
    odd = dataclasses.replace(scan, sinogram=change(scan.sinogram))
    assert any(note in each for each in read_scan(save_scan(tmp_path / "scan.npz", odd)).notes)


def test_repeated_single_and_narrow(tmp_path):
    full = geometry("fan", 13, 30)
    full = dataclasses.replace(full, angles=np.linspace(0, 2 * np.pi, 13))
    scan = Scan(np.asarray(PHANTOMS["disc"]().sinogram(full)), full)
    again = read_scan(save_scan(tmp_path / "scan.npz", scan))
    assert again.geometry.views == 12 and "repeats the first" in again.notes[0]
    twice = dataclasses.replace(full, angles=np.linspace(-2 * np.pi, 2 * np.pi, 13))
    again = read_scan(save_scan(tmp_path / "scan.npz", Scan(scan.sinogram, twice)))
    assert again.geometry.views == 12
    with pytest.warns(UserWarning, match="if these are degrees"):  # 360 radians are no whole turns
        coarse = geometry("parallel", 13, 30)
        coarse = type(coarse)(np.linspace(0, 360, 13), 30, 0.1)
    assert not _repeats(coarse)
    for views, bins, words in ((1, 30, "a single view"), (4, 1, "a single detector bin")):
        small = geometry("parallel", views, bins)
        made = Scan(np.ones((views, bins), np.float32), small)
        assert any(words in note for note in read_scan(save_scan(tmp_path / "scan.npz", made)).notes)


def test_thinned_views_and_default_pixels():
    scan = a_scan("fan")
    few = scan.thinned(5)
    index = np.arange(5) * 12 // 5
    np.testing.assert_array_equal(few.sinogram, scan.sinogram[index])
    np.testing.assert_array_equal(few.geometry.angles, scan.geometry.angles[index])
    with pytest.raises(ValueError, match="has 12 views: choose 1 to 12, not 13"):
        scan.thinned(13)
    radius, height = field_of_view(scan.geometry)
    assert height == 0 and radius == pytest.approx(1.2, rel=0.05)
    assert scan.grid() == ImageGrid(30, pixel=2 * radius / 30) and scan.grid(8, 0.1) == ImageGrid(
        8, pixel=0.1
    )


def test_a_row_of_a_panel():
    stack = VolumeGeometry.parallel(angles_of(6, np.pi), 3, 9, 0.5, axis_shift=0.25)
    values = np.random.default_rng(0).random(stack.shape, np.float32)
    scan = Scan(values, stack, "mm", "stack")
    row = scan.row(1)
    np.testing.assert_array_equal(row.sinogram, values[:, 1])
    np.testing.assert_allclose(row.geometry.angles, stack.angles)
    np.testing.assert_allclose(row.geometry.detector_offset, -0.25, atol=1e-6)
    assert scan.grid() == VolumeGrid(3, 9, pixel=scan.grid().pixel)
    with pytest.raises(ValueError, match="choose 0 to 2"):
        scan.row(3)
    cone = VolumeGeometry.cone(angles_of(6), 3, 9, 0.5, source_to_axis=4.0, source_to_detector=6.0)
    with pytest.raises(ValueError, match="parallel rays"):
        Scan(values, cone).row(0)
