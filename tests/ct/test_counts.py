"""Counts of a detector and their line integrals: exact ones back, failed pixels repaired, refusals."""

import numpy as np
import pytest

from sciml.ct import line_integrals
from sciml.ct.counts import interpolated

RNG = np.random.default_rng(3)
SHAPES = [(6, 40), (6, 5, 40)]


def measured(shape, flat=20000.0, dark=100.0):
    """Smooth line integrals with air at both ends, and their counts."""
    bump = np.exp(-((np.linspace(-1, 1, shape[-1]) / 0.3) ** 2))
    exact = np.broadcast_to(bump, shape) * np.linspace(0.5, 1, shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    return exact, dark + (flat - dark) * np.exp(-exact)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint16", ">u2"])
def test_exact_line_integrals_come_back(shape, dtype):
    exact, counts = measured(shape)
    panel = shape[1:]
    flats, darks = np.full((3, *panel), 20000.0), np.full((2, *panel), 100.0)
    flats[0] += 7
    flats[2] -= 7
    made, notes = line_integrals(counts.astype(dtype), flats, darks)
    assert made.dtype == np.float32 and notes == ()
    np.testing.assert_allclose(made, exact, atol=2e-4)
    for one in ((flats[1], darks[1]), (20000.0, 100.0)):
        np.testing.assert_allclose(line_integrals(counts.astype(dtype), *one)[0], made, atol=1e-6)


def test_every_pixel_has_its_own_sensitivity():
    exact, counts = measured((6, 40))
    gain, offset = 1 + 0.3 * RNG.random(40), 50 * RNG.random(40)
    made, _ = line_integrals(gain * counts + offset, gain * 20000 + offset, gain * 100 + offset)
    np.testing.assert_allclose(made, exact, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_without_an_open_beam(shape):
    """Air in every view stands for it, also when the lamp gets brighter."""
    exact, counts = measured(shape, dark=0.0)
    lamp = np.linspace(1, 2, shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    made, notes = line_integrals(lamp * counts)
    np.testing.assert_allclose(made, exact, atol=1e-3)
    assert "no open beam" in notes[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reading", [0.0, 40.0, -5.0, np.nan, np.inf])
def test_failed_pixels_are_interpolated_and_counted(shape, reading):
    exact, counts = measured(shape)
    where = [(1, 3), (1, 4), (2, 0), (4, shape[-1] - 1)]
    for view, bin in where:
        counts[view, ..., bin] = reading
    made, notes = line_integrals(counts, 20000.0, 100.0)
    count = len(where) * int(np.prod(shape[1:-1]))
    assert notes == (f"{count} readings without a logarithm were interpolated along the detector",)
    np.testing.assert_allclose(made, exact, atol=0.02)


def test_a_dead_pixel_of_the_flat_field():
    exact, counts = measured((6, 40))
    flats = np.full(40, 20000.0)
    flats[7], counts[:, 7] = 0, 0
    made, notes = line_integrals(counts, flats, 100.0)
    assert notes[0].startswith("6 readings")
    np.testing.assert_allclose(made, exact, atol=0.02)


def test_a_dead_row_comes_from_its_neighbours():
    exact, counts = measured((2, 60, 40))
    counts[1, 30] = np.nan
    counts[1, 29, 5] = np.nan
    made, notes = line_integrals(counts, 20000.0, 100.0)
    assert notes[0].startswith("41 readings")
    np.testing.assert_allclose(made, exact, atol=0.02)


def test_interpolation_is_that_of_numpy():
    values = RNG.random((30, 50)).astype(np.float32)
    holes = RNG.random(values.shape) < 0.04
    holes[3, :2] = holes[4, -2:] = True
    made, count = interpolated(np.where(holes, np.nan, values), "values")
    assert count == holes.sum()
    bins = np.arange(50)
    for line, hole, value in zip(made, holes, values, strict=True):
        np.testing.assert_allclose(line, np.interp(bins, bins[~hole], value[~hole]), rtol=1e-5)


def test_large_stacks_in_parts(monkeypatch):
    exact, counts = measured((13, 5, 40))
    whole, _ = line_integrals(counts, 20000.0, 100.0)
    monkeypatch.setattr("sciml.ct.counts._AT_ONCE", 1000)
    np.testing.assert_array_equal(line_integrals(counts, 20000.0, 100.0)[0], whole)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: {"counts": np.where(np.arange(6)[:, None] == 4, 0, c)}, "view 4 has none"),
        (lambda c: {"counts": np.where(np.arange(40) < 3, np.nan, c)}, "8% have none"),
        (lambda c: {"counts": 0 * c}, "view 0 has none"),
        (lambda c: {"counts": c, "flats": 100.0, "darks": 20000.0}, "are flats and darks swapped"),
        (lambda c: {"counts": c, "flats": np.ones((3, 41))}, r"flats have shape \(3, 41\)"),
        (lambda c: {"counts": c, "darks": np.ones((0, 40))}, r"darks have shape \(0, 40\)"),
        (lambda c: {"counts": c[0]}, "give .views, bins."),
        (lambda c: {"counts": np.full((6, 40), np.nan), "flats": None}, "nowhere brighter"),
    ],
)
def test_refusals_name_the_data(change, words):
    _, counts = measured((6, 40))
    with pytest.raises(ValueError, match=words) as caught:
        line_integrals(**{"flats": 20000.0, "what": "scan.h5", **change(counts)})
    assert str(caught.value).startswith("scan.h5: ")
