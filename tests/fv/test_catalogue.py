"""Names of laws and schemes."""

import pytest

from sciml.fv.boundary import Periodic
from sciml.fv.catalogue import LAW_TYPES, SCHEMES, evaluation_laws, lookup
from sciml.fv.dg import DiscontinuousGalerkin
from sciml.fv.grid import UniformGrid

GRID = UniformGrid(12)


def test_names_of_the_command_line():
    laws = "burgers greenshields triangular triangular-skewed trapezoidal greenberg underwood"
    schemes = (
        "godunov engquist-osher lax-friedrichs rusanov muscl-minmod muscl-van-leer muscl-mc muscl-superbee"
        " hancock-mc eno2 eno3 weno3 weno5-js weno5-z ultrabee subcell dg1 dg2"
    )
    assert list(evaluation_laws()) == laws.split()
    assert list(SCHEMES) == schemes.split()


@pytest.mark.parametrize("law", LAW_TYPES)
@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_is_built_for_every_law_or_says_why_not(name, law):
    law = LAW_TYPES[law]()  # pyright: ignore[reportCallIssue]
    if law.curvature == "neither" and name in ("ultrabee", "subcell"):
        with pytest.raises(ValueError, match="neither concave nor convex"):
            SCHEMES[name].build(law, GRID, Periodic())
        return
    scheme = SCHEMES[name].build(law, GRID, Periodic())
    assert scheme.law is law and scheme.grid is GRID
    if isinstance(scheme, DiscontinuousGalerkin) and law.curvature == "neither":
        assert scheme.limiter == "moment"


@pytest.mark.parametrize(
    ("kind", "table", "wrong", "right"),
    [
        ("law", LAW_TYPES, "greenshield", "greenshields"),
        ("law", LAW_TYPES, "Burger", "burgers"),
        ("scheme", SCHEMES, "weno5", "weno5-"),
        ("scheme", SCHEMES, "goudnov", "godunov"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_right_one(kind, table, wrong, right):
    with pytest.raises(ValueError, match=f"unknown {kind} '{wrong}': did you mean '{right}"):
        lookup(kind, table, wrong)
