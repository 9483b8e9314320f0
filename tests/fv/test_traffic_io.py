"""Readers of measured density: what they read equals what was written, and every bad file gives one clear
error.
"""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from sciml.fv.density_field import cell_ranges, density_field, unit_factor
from sciml.fv.torch_tensor import read_tensor
from sciml.fv.traffic_io import read_csv, read_density, read_i24, read_netcdf, read_ngsim, write_netcdf

RNG = np.random.default_rng(0)


def integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def numbers(values) -> bytes:
    return b"(" + b"".join(integer(value) for value in values) + b"t"


def archive(
    storage: np.ndarray,
    size,
    stride,
    offset=0,
    *,
    kind="DoubleStorage",
    order: str | None = "little",
    function="torch._utils\n_rebuild_tensor_v2\n",
    declared: int | None = None,
    key="0",
    tail=b".",
    compression=zipfile.ZIP_STORED,
) -> bytes:
    """The bytes of a `.pt` archive, written opcode by opcode."""
    count = storage.size if declared is None else declared
    place = (
        b"("
        + text("storage")
        + f"ctorch\n{kind}\n".encode()
        + text(key)
        + text("cpu")
        + integer(count)
        + b"tQ"
    )
    arguments = (
        place + integer(offset) + numbers(size) + numbers(stride) + b"\x89" + b"ccollections\nOrderedDict\n)R"
    )
    program = b"\x80\x02c" + function.encode() + b"(" + arguments + b"tR" + tail
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as made:
        made.writestr("day/data.pkl", program)
        if order is not None:
            made.writestr("day/byteorder", order)
        made.writestr("day/data/0", storage.tobytes())
    return buffer.getvalue()


@pytest.mark.parametrize("kind, dtype", [("DoubleStorage", "f8"), ("FloatStorage", "f4")])
@pytest.mark.parametrize("order, sign", [("little", "<"), ("big", ">"), (None, "<")])
@pytest.mark.parametrize("offset, stride", [(0, (9, 1)), (22, (9, 1)), (3, (1, 7)), (5, (2, 0))])
def test_tensor_is_the_view_of_its_storage(tmp_path, kind, dtype, order, sign, offset, stride):
    storage = RNG.random(120).astype(sign + dtype)
    path = tmp_path / "day.pt"
    path.write_bytes(archive(storage, (6, 7), stride, offset, kind=kind, order=order))
    i, j = np.mgrid[:6, :7]
    expected = storage[offset + i * stride[0] + j * stride[1]]
    found = read_tensor(path)
    assert found.dtype == np.dtype(dtype) and found.flags.c_contiguous
    np.testing.assert_array_equal(found, expected)


STORAGE = np.arange(20.0)
BROKEN = {
    "not a zip": (b"hello", "not a .pt archive"),
    "cut short": (archive(STORAGE, (4, 5), (5, 1))[:200], "file"),
    "leaves its storage": (archive(STORAGE, (4, 5), (5, 1), 1), "stride"),
    "negative offset": (archive(STORAGE, (4, 5), (5, 1), -1), "non-negative"),
    "negative stride": (archive(STORAGE, (4, 5), (-5, 1), 19), "non-negative"),
    "huge view": (archive(STORAGE, (2**20, 2**20), (0, 0)), "size"),
    "wrong length": (archive(STORAGE, (4, 5), (5, 1), declared=40), "data/0"),
    "other dtype": (archive(STORAGE, (4, 5), (5, 1), kind="LongStorage"), "dtype"),
    "byte order": (archive(STORAGE, (4, 5), (5, 1), order="middle"), "byteorder"),
    "other record": (archive(STORAGE, (4, 5), (5, 1), key="1"), "data/1"),
    "path as record": (archive(STORAGE, (4, 5), (5, 1), key="../x"), "data.pkl"),
    "runs a command": (archive(STORAGE, (4, 5), (5, 1), function="os\nsystem\n"), "os system"),
    "unknown opcode": (archive(STORAGE, (4, 5), (5, 1), tail=b"}b."), "opcode EMPTY_DICT"),
    "not a tensor": (archive(STORAGE, (4, 5), (5, 1), tail=b"0)."), "opcode POP"),
    "no stop": (archive(STORAGE, (4, 5), (5, 1), tail=b""), "data.pkl"),
    "ranks differ": (archive(STORAGE, (4, 5), (5,)), "size"),
}


@pytest.mark.parametrize("content, field", BROKEN.values(), ids=BROKEN.keys())
def test_broken_tensor_files_name_file_and_field(tmp_path, content, field):
    path = tmp_path / "broken.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="broken.pt") as error:
        read_tensor(path)
    assert field in str(error.value)


def test_zip_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.pt"
    path.write_bytes(archive(np.zeros(10**6), (1000, 1000), (1000, 1), compression=zipfile.ZIP_DEFLATED))
    assert path.stat().st_size < 20_000
    with pytest.raises(ValueError, match="data/0.*limit"):
        read_tensor(path, max_bytes=10**6)


def test_any_damaged_byte_is_a_value_error_or_harmless(tmp_path):
    content = archive(STORAGE, (4, 5), (5, 1))
    path = tmp_path / "damaged.pt"
    for position in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(bytes(damaged))
        try:
            assert read_tensor(path).dtype.kind == "f"
        except ValueError as error:
            assert "damaged.pt" in str(error)


def i24_file(folder: Path, density: np.ndarray) -> Path:
    path = folder / "11-29-2022_post_TX.pt"
    path.write_bytes(archive(np.ascontiguousarray(density), density.shape, (density.shape[1], 1)))
    return path


def test_i24_in_vehicles_per_kilometre_and_lane(tmp_path):
    density = RNG.random((20, 10))
    density[:, 1:4] = density[:, :1]
    field = read_density(i24_file(tmp_path, density))
    np.testing.assert_allclose(field["density"], 140 * density)
    assert field["density"].attrs["units"] == "veh/km/lane" and field["x"].attrs["units"] == "m"
    np.testing.assert_allclose(np.diff(field["time"]), 10)
    np.testing.assert_allclose(np.diff(field["x"]), 64.3736)
    np.testing.assert_array_equal(np.flatnonzero(field["mask"].all("time")), [0, 1, 2, 3])  # copies
    assert not read_i24(i24_file(tmp_path, density), find_copies=False)["mask"].any()
    chosen = read_i24(i24_file(tmp_path, density), masked_cells="6-7, 9", find_copies=False)["mask"].all(
        "time"
    )
    np.testing.assert_array_equal(np.flatnonzero(chosen), [6, 7, 9])


@pytest.mark.parametrize("separator", ["   ", ", "])
def test_ngsim(tmp_path, separator):
    density = 0.01 + 0.05 * RNG.random((23, 60))
    speed = 20 + 30 * RNG.random((23, 60))
    for label, values in (("Density", density), ("Flow", density * speed)):
        lines = [separator.join(f"{value:.9e}" for value in row) for row in values]
        (tmp_path / f"X_{label}_Data.txt").write_text("\n".join(lines))
    field = read_ngsim(tmp_path / "X_Density_Data.txt", lanes=5, trim=4, window=30)
    assert field.sizes == {"time": 52, "x": 4}
    mean = density[1:21].reshape(4, 5, 60).mean(axis=1).T[4:-4]
    np.testing.assert_allclose(field["density"], mean / 5 / 0.3048e-3, rtol=1e-6)
    np.testing.assert_allclose(field["flow"] / field["density"], field["speed"], rtol=1e-6)
    np.testing.assert_allclose(np.diff(field["x"]), 30.48)
    np.testing.assert_array_equal(np.flatnonzero(field["mask"].all("x")), np.arange(22, 30))
    with pytest.raises(ValueError, match="lanes"):
        read_density(tmp_path / "X_Density_Data.txt")


def small_field(**changes):
    options = {"density_units": "veh/km/lane", "time_units": "s", "x_units": "m", "name": "field"}
    arrays = {"density": 20 + RNG.random((5, 6)), "time": np.arange(5.0), "x": 100 * np.arange(6.0)}
    both = {**arrays, **options, **changes}
    return density_field(both.pop("density"), both.pop("time"), both.pop("x"), **both)


def test_netcdf_round_trip(tmp_path):
    field = small_field(
        lanes=3, licence="CC0", saturation=140.0, masked_cells="2", flow=(np.ones((5, 6)), "veh/h/lane")
    )
    write_netcdf(field, tmp_path / "field.nc")
    again = read_density(tmp_path / "field.nc")
    for name in ("density", "mask", "flow", "time", "x"):
        np.testing.assert_array_equal(again[name], field[name])
    assert again.attrs["licence"] == "CC0" and again.attrs["lanes"] == 3
    assert again["density"].attrs == field["density"].attrs


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_netcdf_of_others(tmp_path, engine):
    density = RNG.random((6, 5)) * 60
    data = xr.Dataset(
        {"k": (("position", "t"), density, {"units": "vehicles per mile"})},
        {"t": ("t", np.arange(5.0), {"units": "minutes since 2022-11-29 06:00"}),
         "position": ("position", np.arange(6) * 0.1, {"units": "km"})},
    )  # fmt: skip
    data.to_netcdf(tmp_path / "theirs.nc", engine=engine)
    field = read_netcdf(tmp_path / "theirs.nc", lanes=2)
    np.testing.assert_allclose(field["density"], density.T / 1.609344 / 2)
    np.testing.assert_allclose(field["time"], 60 * np.arange(5))
    np.testing.assert_allclose(field["x"], 100 * np.arange(6))
    with pytest.raises(ValueError, match="theirs.nc: flow"):
        read_netcdf(tmp_path / "theirs.nc", variable="flow")


def test_netcdf_without_units_or_damaged(tmp_path):
    field = small_field()
    del field["time"].attrs["units"]
    write_netcdf(field, tmp_path / "field.nc")
    with pytest.raises(ValueError, match="field.nc: time: units are missing"):
        read_netcdf(tmp_path / "field.nc")
    assert read_netcdf(tmp_path / "field.nc", units={"time": "min"})["time"][1] == 60
    (tmp_path / "text.nc").write_text("no")
    with pytest.raises(ValueError, match="text.nc: file: not a NetCDF"):
        read_netcdf(tmp_path / "text.nc")
    (tmp_path / "cut.nc").write_bytes((tmp_path / "field.nc").read_bytes()[:600])
    with pytest.raises(ValueError, match="cut.nc: file: cannot be read"):
        read_netcdf(tmp_path / "cut.nc")


WIDE = (
    "density [veh/km] time [min] x [km]{s}0{s}0.1{s}0.2{s}0.3\n"
    "0{s}10{s}20{s}30{s}40\n# note\n1{s}11{s}21{s}31{s}41\n2{s}12{s}22{s}32{s}42\n"
)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_wide_and_long_agree(tmp_path, separator):
    (tmp_path / "wide.csv").write_text(WIDE.format(s=separator))
    wide = read_csv(tmp_path / "wide.csv", lanes=2)
    np.testing.assert_allclose(wide["density"], [[5, 10, 15, 20], [5.5, 10.5, 15.5, 20.5], [6, 11, 16, 21]])
    np.testing.assert_allclose(wide["time"], [0, 60, 120])
    np.testing.assert_allclose(wide["x"], [0, 100, 200, 300])
    rows = [
        f"{60 * t}{separator}{100 * j}{separator}7{separator}{10 * (j + 1) + t}"
        for t in range(3)
        for j in range(4)
    ]
    RNG.shuffle(rows)
    header = separator.join(["time (s)", "x [m]", "speed [km/h]", "density [veh/km]"])
    (tmp_path / "long.csv").write_text("\n".join([header, *rows]))
    long = read_csv(tmp_path / "long.csv", lanes=2)
    for name in ("density", "time", "x"):
        np.testing.assert_allclose(long[name], wide[name])


CSV_ERRORS = {
    "no units": (WIDE.replace(" [km]", ""), {}, "x: units are missing"),
    "unknown unit": (WIDE.replace("[veh/km]", "[apples]"), {}, "unknown units 'apples'"),
    "all lanes": (WIDE, {"lanes": None}, "lanes"),
    "word": (WIDE.replace("21", "many"), {}, "row 3: 'many' is not a number"),
    "short row": (WIDE.replace("{s}41", ""), {}, "row 3: 4 values"),
    "gap": (WIDE.replace("21", ""), {}, "1 values are NaN"),
    "backwards": (WIDE.replace("\n2{s}", "\n0.5{s}"), {}, "time: not increasing"),
    "uneven": (WIDE.replace("\n2{s}", "\n4{s}"), {}, "time: not uniform"),
    "uneven x": (WIDE.replace("0.3\n", "0.5\n"), {}, "x: not uniform"),
    "negative": (WIDE.replace("21", "-21"), {}, "negative at t = 60 s, x = 100 m"),
    "above jam": (WIDE.replace("21", "2100"), {}, "above the largest possible 250"),
    "few frames": (WIDE.rsplit("\n", 2)[0] + "\n", {}, "2 times are too few"),
    "empty": ("", {}, "no header"),
    "twice": ("time [s],x [m],density [veh/km]\n0,0,1\n0,0,2\n1,1,3", {}, "given twice at time 0, x 0"),
}


@pytest.mark.parametrize("content, options, message", CSV_ERRORS.values(), ids=CSV_ERRORS.keys())
def test_csv_errors_name_file_field_and_remedy(tmp_path, content, options, message):
    path = tmp_path / "mine.csv"
    path.write_text(content.format(s=","))
    with pytest.raises(ValueError, match="mine.csv") as error:
        read_csv(path, **{"lanes": 2, **options})
    assert message in str(error.value)


def test_units_from_the_configuration(tmp_path):
    (tmp_path / "bare.csv").write_text(WIDE.replace("density [veh/km] time [min] x [km]", "k").format(s=","))
    units = {"density": "veh/km/lane", "time": "min", "x": "km"}
    np.testing.assert_allclose(read_csv(tmp_path / "bare.csv", units=units)["density"][0], [10, 20, 30, 40])


def test_gaps_are_interpolated_and_masked(tmp_path):
    density = np.tile(np.arange(5.0)[:, None], (1, 6)) + 10 * np.arange(6)
    density[2, 3] = np.nan
    density[:, 1] = np.nan
    field = small_field(density=density, missing="mask")
    assert field["density"][2, 3] == 32 and field["mask"].sum() == 6
    np.testing.assert_allclose(field["density"][:, 1], 10 + np.arange(5))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"density": np.ones((5, 7))}, "density: shape"),
        ({"x": np.arange(3.0), "density": np.ones((5, 3))}, "3 cells are too few"),
        ({"x": -np.arange(6.0)}, "x: not increasing"),
        ({"masked_cells": "4-9"}, "outside of the cells 0-5"),
        ({"masked_cells": "a"}, "'a' is not a cell"),
        ({"masked_cells": "0-5"}, "every cell is masked"),
        ({"lanes": 0}, "lanes: 0 is not a positive number"),
        ({"density": np.full((5, 6), np.nan), "missing": "mask"}, "no finite value"),
        ({"speed": (np.ones((5, 5)), "km/h")}, "speed: shape"),
    ],
)
def test_field_errors(changes, message):
    with pytest.raises(ValueError, match="field: ") as error:
        small_field(**changes)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "units, quantity, factor, per_lane",
    [
        ("veh/km/lane", "density", 1, True),
        ("veh/km", "density", 1, False),
        ("1/m", "density", 1000, False),
        ("vehicles per mile per lane", "density", 1 / 1.609344, True),
        ("veh/ft", "density", 1000 / 0.3048, False),
        ("ft", "x", 0.3048, False),
        ("hours", "time", 3600, False),
        ("veh/s", "flow", 3600, False),
        ("mph", "speed", 1.609344, False),
        ("ft/s", "speed", 1.09728, False),
    ],
)
def test_units(units, quantity, factor, per_lane):
    found, lane = unit_factor(units, quantity)
    assert found == pytest.approx(factor) and lane is per_lane


def test_cell_ranges_include_both_ends():
    np.testing.assert_array_equal(np.flatnonzero(cell_ranges("", "0-2,5", 8)), [0, 1, 2, 5])


@pytest.mark.data
def test_real_days_are_not_sheared(data_folder):
    """Read as a plain array the rows of most days are sheared: the next frame then differs four times as
    much.
    """
    path = data_folder / "traffic/i24/11-29-2022_post_TX.pt"
    density = read_tensor(path)
    assert density.shape == (1300, 90)
    with zipfile.ZipFile(path) as made:
        plain = np.frombuffer(made.read("11-29-2022_post_TX/data/0"), "<f8")[: density.size].reshape(
            density.shape
        )
    step = lambda u: np.mean(np.diff(u, axis=0) ** 2)  # noqa: E731
    assert step(plain) > 4 * step(density) and step(density) < 0.009
    copies = read_i24(data_folder / "traffic/i24/11-21-2022_post_TX.pt")["mask"].all("time")
    np.testing.assert_array_equal(np.flatnonzero(copies), np.arange(22))
