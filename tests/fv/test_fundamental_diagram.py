# pyright: reportCallIssue=false, reportArgumentType=false
"""Fundamental diagrams: shape, units, demand and supply, refused parameters."""

import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.catalogue import LAW_TYPES
from sciml.fv.fundamental_diagram import (
    AbstractFundamentalDiagram,
    Greenberg,
    Greenshields,
    NewellDaganzo,
    Trapezoidal,
    Triangular,
    Underwood,
)
from sciml.fv.law import as_dtype

pytestmark = pytest.mark.usefixtures("x64")
DIAGRAMS = [name for name, kind in LAW_TYPES.items() if issubclass(kind, AbstractFundamentalDiagram)]
HIGHWAY = {  # veh/km, km/h, veh/h
    "greenshields": lambda: Greenshields(110.0, 140.0),
    "triangular": lambda: Triangular(110.0, 18.0, 140.0),
    "trapezoidal": lambda: Trapezoidal(15.0, 1650.0, 30.0, 1900.0, 140.0),
    "newell-daganzo": lambda: NewellDaganzo(110.0, 1900.0, 18.0, 140.0),
    "greenberg": lambda: Greenberg(35.0, 140.0),
    "underwood": lambda: Underwood(110.0, 70.0, 140.0),
}


@pytest.fixture(params=[*DIAGRAMS, *(f"{name} highway" for name in DIAGRAMS)])
def diagram(request):
    name, _, highway = request.param.partition(" ")
    return as_dtype(HIGHWAY[name]() if highway else LAW_TYPES[name](), jnp.float64)


def test_flow_is_zero_on_an_empty_road_and_at_the_jam(diagram):
    assert float(diagram.flux(jnp.zeros(()))) == 0
    if not isinstance(diagram, Underwood):
        assert abs(float(diagram.flux(diagram.jam_density))) < 1e-9 * float(diagram.capacity)


def test_capacity_is_the_largest_flow(diagram):
    k = jnp.linspace(0, diagram.jam_density, 5001)
    flow = np.asarray(diagram.flux(k))
    assert flow.max() <= float(diagram.capacity) * (1 + 1e-12)
    assert flow.max() >= float(diagram.capacity) * (1 - 1e-3)


def test_demand_rises_supply_falls_and_their_minimum_is_the_flow(diagram):
    k = jnp.linspace(0, diagram.jam_density, 501)
    demand, supply, scale = (
        np.asarray(diagram.demand(k)),
        np.asarray(diagram.supply(k)),
        float(diagram.capacity),
    )
    assert (np.diff(demand) >= -1e-12 * scale).all() and (np.diff(supply) <= 1e-12 * scale).all()
    np.testing.assert_allclose(np.minimum(demand, supply), diagram.flux(k), atol=1e-12 * scale)


def test_vehicles_slow_down_with_density(diagram):
    k = jnp.linspace(0, diagram.jam_density, 501)
    speed = np.asarray(diagram.speed(k))
    assert np.isfinite(speed).all() and (np.diff(speed) <= 1e-9 * speed[0]).all()
    np.testing.assert_allclose(speed[0], diagram.free_flow_speed)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Greenshields(-1.0), r"Greenshields.free_flow_speed is -1"),
        (lambda: Greenshields(jam_density=0.0), "give a positive number"),
        (lambda: Triangular(1.0, -1.0), "congestion_speed"),
        (lambda: Trapezoidal(0.8, 0.2, 0.2, 0.3), "need first_density < second_density"),
        (lambda: Trapezoidal(0.2, 0.05, 0.8, 0.3), "need middle slope < first slope"),
        (lambda: NewellDaganzo(1.0, 0.6, 1.0, 1.0), "above the apex of the triangle"),
        (lambda: Greenberg(floor=-1.0), "floor"),
        (lambda: Underwood(1.0, 0.3, 1.0), "need jam_density < 2 critical_density"),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
