"""Travel times, queues and wave speeds against closed forms."""

import numpy as np
import pytest

from sciml.fv.travel import (
    experienced_travel_time,
    instantaneous_travel_time,
    jam_wave_speed,
    queue_length,
    vehicle_totals,
)


def test_travel_times_at_constant_speed():
    speed = np.full((100, 10), 60.0)
    np.testing.assert_allclose(instantaneous_travel_time(speed, 0.1), 1 / 60)
    found = experienced_travel_time(speed, 1 / 360, 0.1)
    np.testing.assert_allclose(found[:93], 1 / 60)
    assert np.isnan(found[94:]).all()  # not out by the end of the record


def test_experienced_travel_time_when_the_road_speeds_up():
    """v(t) = 20 + 40 t km/h everywhere: the way 20 t + 20 t² gives the time by a quadratic equation."""
    times = np.arange(600) / 360
    speed = np.tile((20 + 40 * times)[:, None], (1, 50))
    found = experienced_travel_time(speed, 1 / 360, 0.1)
    enter = times[:100]
    leave = (-20 + np.sqrt(400 + 80 * (20 * enter + 20 * enter**2 + 5))) / 40
    np.testing.assert_allclose(found[:100], leave - enter, rtol=2e-5)
    assert (found[:100] < instantaneous_travel_time(speed, 0.1)[:100]).all()


def test_standing_traffic_stays_finite():
    assert np.isfinite(instantaneous_travel_time(np.zeros((5, 4)), 0.1)).all()


@pytest.mark.parametrize("wave", [-14.0, -20.0, -27.0])
@pytest.mark.parametrize("forward", [0.0, 10.0])
def test_jam_wave_speed_of_a_travelling_pattern(wave, forward):
    """A pattern that travels at a known speed, with noise, and one as strong that travels downstream."""
    rng = np.random.default_rng(0)
    t, x = np.meshgrid(np.arange(1000) / 360, np.arange(60) * 0.065, indexing="ij")

    def pattern(speed, seed):
        generator = np.random.default_rng(seed)
        waves = generator.uniform(5, 25, 20)
        return sum(
            np.cos(2 * np.pi * f * (t - x / speed) + p)
            for f, p in zip(waves, generator.uniform(0, 6, 20), strict=True)
        )

    density = 50 + pattern(wave, 1) + forward / 10 * pattern(70.0, 2) + rng.standard_normal(t.shape)
    speed, error = jam_wave_speed(density, 1 / 360, 0.065)
    assert abs(speed - wave) < 0.025 * abs(wave) and error < 0.5


def test_no_wave_no_speed():
    t, x = np.meshgrid(np.arange(500) / 360, np.arange(40) * 0.065, indexing="ij")
    speed, _ = jam_wave_speed(np.full(t.shape, 30.0), 1 / 360, 0.065)
    assert np.isnan(speed)


def test_queue_and_totals():
    density = np.array([[10.0, 60.0, 70.0], [10.0, 10.0, 60.0]])
    np.testing.assert_allclose(queue_length(density, 50, 0.2), [0.4, 0.2])
    speed = np.full_like(density, 30.0)
    valid = np.array([[True, True, False], [True, True, True]])
    spent, driven = vehicle_totals(density, speed, valid, 0.5, 0.2)
    assert spent == pytest.approx(150 * 0.1) and driven == pytest.approx(30 * spent)
