"""Files of other programs: Data-Exchange, NXtomo, sv-mbirct, Zeiss, and measured scans."""

import io
from typing import Any

import h5py
import numpy as np
import pytest

from sciml.ct import PHANTOMS, read_scan
from sciml.ct.geometry import bin_of_axis
from sciml.ct.txrm import _txrm
from tests.ct.scans import geometry


def counts_of(sinogram, dark=100.0, beam=20000.0):
    return (dark + beam * np.exp(-sinogram)).astype(np.float32)


def test_data_exchange(tmp_path):
    sinogram = np.stack([np.asarray(PHANTOMS["disc"]().sinogram(geometry("parallel", 9, 20)))] * 2, 1)
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        file["exchange/data"] = counts_of(sinogram)
        file["exchange/data_white"] = np.full((2, 2, 20), 20100.0)
        file["exchange/data_dark"] = np.full((2, 2, 20), 100.0)
    with pytest.raises(ValueError, match="theta is missing: give the first and the last angle"):
        read_scan(path)
    scan = read_scan(path, angles=(0, 160))
    np.testing.assert_allclose(scan.sinogram, sinogram, atol=1e-4)
    assert scan.is_volume and scan.geometry.shape == (9, 2, 20)
    np.testing.assert_allclose(np.rad2deg(scan.geometry.angles), np.linspace(0, 160, 9), atol=1e-4)
    with h5py.File(path, "a") as file:
        file["exchange/theta"] = np.arange(9) * 20.0
    assert read_scan(path).geometry.views == 9
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    with pytest.raises(ValueError, match="neither exchange/data"):
        read_scan(tmp_path / "other.h5")
    (tmp_path / "cut.h5").write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="not a readable HDF5 file"):
        read_scan(tmp_path / "cut.h5")


def test_rows_and_pixels_of_a_stack(tmp_path):
    """Rows keep their height; a pixel gives lengths when it has a unit; swapped axes are told."""
    counts = 100 + 1000 * np.random.default_rng(0).random((4, 6, 5))
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        file["exchange/data"], file["exchange/data_white"] = counts, np.full((1, 6, 5), 1500.0)
        file["exchange/theta"] = np.arange(4) * np.pi / 4
        file["exchange/theta"].attrs["units"] = "radians"
        file["measurement/instrument/detector/pixel_size_x"] = [0.65]
    whole = read_scan(path)
    assert whole.unit == "px"
    np.testing.assert_allclose(whole.geometry.angles, np.arange(4) * np.pi / 4, atol=1e-6)
    with h5py.File(path, "a") as file:
        file["measurement/instrument/detector/pixel_size_x"].attrs["units"] = "um"
    part, whole = read_scan(path, rows=(1, 3)), read_scan(path)
    assert part.unit == "mm" and part.geometry.shape == (4, 2, 5)
    np.testing.assert_array_equal(part.sinogram, whole.sinogram[:, 1:3])
    np.testing.assert_allclose(part.geometry.middle, [[0, 0, 0.00065]] * 4, atol=1e-8)
    same = whole.rows_between(1, 3)
    np.testing.assert_allclose(part.geometry.middle, same.geometry.middle, atol=1e-9)
    plane = read_scan(path, rows=(2, 3))
    assert not plane.is_volume
    np.testing.assert_array_equal(plane.sinogram, whole.row(2).sinogram)
    for rows in ((3, 3), (0, 7), (-1, 2)):
        with pytest.raises(ValueError, match="choose some of them"):
            read_scan(path, rows=rows)
        with pytest.raises(ValueError, match="choose some of them"):
            whole.rows_between(*rows)
    with h5py.File(path, "a") as file:
        del file["exchange/theta"]
        file["exchange/theta"] = np.arange(6) * 30.0
    with pytest.raises(
        ValueError, match="6 angles in exchange/theta for 4 views.*are views and rows swapped"
    ):
        read_scan(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"data": np.ones((4, 5))}, r"exchange/data has shape \(4, 5\)"),
        ({"data/x": np.ones(3)}, r"exchange/data has shape \(\)"),
        ({"theta": np.array([b"a"] * 4)}, "theta holds no angles"),
        ({"theta": np.full(4, np.nan)}, "not all angles are finite"),
        ({"data_white": np.ones((2, 3, 6))}, "flats have shape"),
        ({"data": np.zeros((4, 5, 6))}, "view 0 has none"),
    ],
)
def test_errors_of_data_exchange(content, words, tmp_path):
    good = {"data": np.ones((4, 5, 6)), "theta": np.arange(4.0), "data_white": np.full((2, 5, 6), 2.0)}
    if "data/x" in content:
        del good["data"]
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        for name, value in (good | content).items():
            file[f"exchange/{name}"] = value
    with pytest.raises(ValueError, match=words) as caught:
        read_scan(tmp_path / "scan.h5")
    assert str(tmp_path) in str(caught.value)


def test_nxtomo_with_a_moved_link(tmp_path):
    sinogram = np.random.default_rng(0).random((6, 2, 5))
    keys = np.array([1, 1, 2, 0, 0, 0, 0, 0, 0, 1])
    frames = np.full((10, 2, 5), 20100.0)
    frames[keys == 2], frames[keys == 0] = 100.0, counts_of(sinogram)
    with h5py.File(tmp_path / "frames.h5", "w") as file:
        file["entry/frames"] = frames
    with h5py.File(tmp_path / "scan.nxs", "w") as file:
        detector = file.create_group("entry/instrument/detector")
        detector["image_key"] = keys
        detector["data"] = h5py.ExternalLink("elsewhere/frames.h5", "/entry/frames")
        file["entry/sample/rotation_angle"] = np.linspace(0, 90, 10)
    scan = read_scan(tmp_path / "scan.nxs")
    np.testing.assert_allclose(scan.sinogram, sinogram, atol=1e-3)
    np.testing.assert_allclose(np.rad2deg(scan.geometry.angles), np.linspace(0, 90, 10)[keys == 0], atol=1e-4)


def test_sinoparams(tmp_path):
    numbers = np.random.default_rng(0).random((4, 6)).astype("<f4")
    numbers.tofile(tmp_path / "shepp_slice0001.2Dsinodata")
    text = "Geometry : parallel\nNChannels: 6\nNViews: 4\nDeltaChannel: 0.5\nCenterOffset: -2\n"
    (tmp_path / "shepp.sinoparams").write_text(text)
    scan = read_scan(tmp_path / "shepp.sinoparams")
    np.testing.assert_array_equal(scan.sinogram, numbers)
    assert float(scan.geometry.axis_shift) == -1.0 and "ViewAngleList.txt is missing" in scan.notes[0]
    (tmp_path / "shepp.sinoparams").write_text(text.replace("NViews: 4", "NViews: 5"))
    with pytest.raises(ValueError, match="24 numbers, not 5 views of 6 channels"):
        read_scan(tmp_path / "shepp.sinoparams")
    (tmp_path / "shepp.sinoparams").write_text(text.replace("NViews: 4", "NViews: four"))
    with pytest.raises(ValueError, match="shepp.sinoparams: NViews, NChannels"):
        read_scan(tmp_path / "shepp.sinoparams")


class FakeOle:
    """The streams of a .txrm file."""

    def __init__(self, **streams):
        self.streams = {name.replace("__", "/"): value for name, value in streams.items()}

    def exists(self, name):
        return name in self.streams

    def openstream(self, name):
        return io.BytesIO(self.streams[name].tobytes())


def zeiss(**changes):
    flat = np.linspace(1000, 2000, 12, dtype=np.float32).reshape(3, 4)
    views = np.array([0.5, 0.25])
    streams: dict[str, np.ndarray] = {
        "ImageInfo__NoOfImages": np.array([2], "<i4"),
        "ImageInfo__ImageHeight": np.array([3], "<i4"),
        "ImageInfo__ImageWidth": np.array([4], "<i4"),
        "ImageInfo__DataType": np.array([5], "<i4"),
        "ImageInfo__PixelSize": np.array([2.0], "<f4"),
        "ImageInfo__StoRADistance": np.array([-20.0] * 2, "<f4"),
        "ImageInfo__DtoRADistance": np.array([60.0] * 2, "<f4"),
        "ImageInfo__Angles": np.array([-30, 60, 7], "<f4"),
        "ReferenceData__Image": flat,
        "ReferenceData__DataType": np.array([10], "<i4"),
        "ImageData1__Image1": (views[0] * flat).astype("<u2"),
        "ImageData1__Image2": (views[1] * flat).astype("<u2"),
    }
    return FakeOle(**{name: value for name, value in (streams | changes).items() if value is not None})


def test_zeiss_streams(tmp_path):
    scan = _txrm(tmp_path / "scan.txrm", zeiss())
    np.testing.assert_allclose(scan.sinogram, np.log([2, 4])[:, None, None] * np.ones((3, 4)), atol=4e-3)
    made: Any = scan.geometry
    assert made.shape == (2, 3, 4) and scan.unit == "mm" and scan.notes == ()
    np.testing.assert_allclose(np.rad2deg(made.angles), [-30, 60], atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(made.u_step, axis=1), 0.008, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(made.source[:, :3], axis=1), 20, rtol=1e-6)
    shifts = {"Alignment__X-Shifts": np.array([1, 0], "<f4"), "Alignment__Y-Shifts": np.array([0, 2], "<f4")}
    moved = _txrm(tmp_path / "scan.txrm", zeiss(**shifts, ReconSettings__CenterShift=np.array([3.0], "<f4")))
    assert "shifted by up to 2 pixels" in moved.notes[0] and "CenterShift of 3 pixels" in moved.notes[1]
    there: Any = moved.geometry
    by = there.middle - made.middle
    np.testing.assert_allclose(by, [made.u_step[0], 2 * made.v_step[1]], atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ImageInfo__Angles": None}, "ImageInfo/Angles is missing"),
        ({"ImageInfo__Angles": np.array([1.0], "<f4")}, "ImageInfo/Angles has 1 numbers, not 2"),
        ({"ImageData1__Image2": np.ones(7, "<u2")}, "Image2 has 7 numbers, not 12: is the file cut short"),
        ({"ImageInfo__DataType": np.array([3], "<i4")}, "DataType is 3, neither"),
    ],
)
def test_zeiss_errors(changes, words, tmp_path):
    with pytest.raises(ValueError, match=words) as caught:
        _txrm(tmp_path / "scan.txrm", zeiss(**changes))
    assert "scan.txrm: " in str(caught.value)


@pytest.mark.data
def test_shepp_of_sv_mbirct(data_folder):
    scan = read_scan(data_folder / "ct" / "svmbirct_shepp" / "shepp.sinoparams")
    np.testing.assert_allclose(bin_of_axis(scan.geometry), 255.5 - 6, atol=1e-3)
    mass = scan.sinogram.sum(1)
    assert np.ptp(mass) < 0.02 * mass.mean()
    bins = scan.geometry.bin_positions() - scan.geometry.axis_shift  # the centre of mass moves on a sine
    centre = (scan.sinogram * bins).sum(1) / mass
    angles = np.asarray(scan.geometry.angles)
    sine = np.stack([np.cos(angles), np.sin(angles), np.ones_like(angles)], 1)
    fitted = np.linalg.lstsq(sine, np.asarray(centre), rcond=None)[0]
    assert abs(sine @ fitted - centre).max() < 0.3 and abs(fitted[2]) < 0.3


@pytest.mark.data
def test_measured_scans(data_folder):
    folder = data_folder / "ct"
    htc = read_scan(folder / "htc2022" / "htc2022_tc_full.mat")
    assert htc.geometry.shape == (720, 560) and htc.unit == "mm" and "repeats the first" in htc.notes[0]
    tooth = read_scan(folder / "tomopy_tooth" / "tooth.h5")
    assert tooth.geometry.shape == (181, 2, 640) and 1.5 < tooth.sinogram.max() < 2.5
    one = read_scan(folder / "tomopy_tooth" / "tooth.h5", rows=(1, 2))
    np.testing.assert_array_equal(one.sinogram, tooth.row(1).sinogram)
    beamline = read_scan(folder / "httomo_k11" / "k11-18014.nxs", angles=(0, 180))
    assert beamline.geometry.shape == (3001, 22, 26)
    with pytest.raises(ValueError, match="rotation_angle is missing"):
        read_scan(folder / "httomo_k11" / "k11-18014.nxs")
    chip = read_scan(folder / "xradia_chip" / "txrm_test_chip_tomo.txrm")
    assert chip.geometry.shape == (7, 256, 256) and "no open beam" in chip.notes[0]
    few = read_scan(folder / "xradia_chip" / "txrm_test_chip_tomo.txrm", rows=(10, 20))
    np.testing.assert_array_equal(few.sinogram, chip.sinogram[:, 10:20])
