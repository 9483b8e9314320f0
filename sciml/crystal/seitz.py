"""Seitz operators {R|t} in exact integers: parsing, printing, products, closure.

An operator acts on *columns* of fractional coordinates, x' = R x + t. `rotations` is an integer array (G, 3,
3); `translations` is an integer array (G, 3) in units of 1/24, taken modulo 24 (every translation of the 530
tabulated settings, and of their primitive cells, is a multiple of 1/24). Nothing here is a float, so
comparison is exact.
"""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np

DENOMINATOR = 24

_TERM = re.compile(r"([+-]?)(\d+(?:\.\d+)?(?:/\d+)?)?\*?([xyz])?")
_AXES = "xyz"


def parse_operation(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Read one CIF operation such as ``1/2-x, y+1/4, -z`` as (rotation, translation in 24ths).

    Raises `ValueError` when a term is not understood or the translation is no multiple of 1/24.
    """
    rows = text.strip().strip("'\"").lower().replace(" ", "").split(",")
    if len(rows) != 3:
        raise ValueError(
            f"symmetry operation {text!r}: expected three comma-separated terms, such as 'x,y,z'"
        )
    rotation = np.zeros((3, 3), int)
    translation = np.zeros(3, int)
    for i, row in enumerate(rows):
        position = 0
        while position < len(row):
            match = _TERM.match(row, position)
            if match is None or match.end() == position or (match[2] is None and match[3] is None):
                raise ValueError(f"symmetry operation {text!r}: cannot read {row[position:]!r}")
            sign = -1 if match[1] == "-" else 1
            if match[3] is None:
                twentyfourths = sign * _fraction(match[2]) * DENOMINATOR
                if twentyfourths.denominator != 1:
                    raise ValueError(
                        f"symmetry operation {text!r}: translation {match[2]} is not a multiple of 1/24; "
                        "describe the structure in its primitive or conventional cell"
                    )
                translation[i] += int(twentyfourths)
            else:
                factor = _fraction(match[2]) if match[2] else Fraction(1)
                if factor.denominator != 1:
                    raise ValueError(
                        f"symmetry operation {text!r}: fractional rotation coefficient {match[2]}"
                    )
                rotation[i, _AXES.index(match[3])] += sign * int(factor)
            position = match.end()
    if abs(round(float(np.linalg.det(rotation)))) != 1:
        raise ValueError(
            f"symmetry operation {text!r}: the rotation part has determinant other than +1 or -1"
        )
    return rotation, translation % DENOMINATOR


def _fraction(text: str) -> Fraction:
    value = Fraction(text) if "/" not in text else Fraction(text.split("/")[0]) / Fraction(text.split("/")[1])
    # decimal thirds and sixths (0.3333, 0.66667, 0.1667) are meant exactly
    return (
        value
        if "." not in text
        else Fraction(round(value * DENOMINATOR), DENOMINATOR)
        if (abs(value * DENOMINATOR - round(value * DENOMINATOR)) < Fraction(1, 50))
        else value
    )


def format_operation(rotation: np.ndarray, translation: np.ndarray) -> str:
    """Write an operator in CIF form, the inverse of `parse_operation`."""
    rows = []
    for coefficients, shift in zip(rotation, translation, strict=True):
        text = ""
        for coefficient, axis in zip(coefficients, _AXES, strict=True):
            if coefficient:
                size = "" if abs(coefficient) == 1 else str(abs(int(coefficient)))
                text += ("-" if coefficient < 0 else "+") + size + axis
        if shift:
            text += "+" + str(Fraction(int(shift), DENOMINATOR))
        rows.append(text.removeprefix("+") or "0")
    return ",".join(rows)


def in_canonical_order(rotations: np.ndarray, translations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop repeated operators and sort them, the identity first."""
    rows = np.concatenate([rotations.reshape(-1, 9), translations % DENOMINATOR], axis=1).astype(np.int64)
    rows = np.unique(rows, axis=0)
    is_identity = (rows == np.r_[np.eye(3, dtype=int).ravel(), 0, 0, 0]).all(1)
    rows = np.concatenate([rows[is_identity], rows[~is_identity]])
    return rows[:, :9].reshape(-1, 3, 3), rows[:, 9:]


def is_closed(rotations: np.ndarray, translations: np.ndarray) -> bool:
    """Whether the operators form a group modulo integer translations."""
    known = {
        row.tobytes() for row in np.concatenate([rotations.reshape(-1, 9), translations], 1).astype(np.int64)
    }
    products = np.einsum("aij,bjk->abik", rotations, rotations)
    shifts = (np.einsum("aij,bj->abi", rotations, translations) + translations[:, None]) % DENOMINATOR
    rows = np.concatenate([products.reshape(-1, 9), shifts.reshape(-1, 3)], axis=1).astype(np.int64)
    return all(row.tobytes() in known for row in rows)


def generate(
    rotations: np.ndarray, translations: np.ndarray, limit: int = 4 * 192
) -> tuple[np.ndarray, np.ndarray]:
    """Close a set of generators under multiplication.

    Raises `ValueError` when more than `limit` operators arise: the generators are not of a space group.
    """
    rotations = np.concatenate([np.eye(3, dtype=int)[None], rotations])
    translations = np.concatenate([np.zeros((1, 3), int), translations])
    rotations, translations = in_canonical_order(rotations, translations)
    while True:
        size = len(rotations)
        products = np.einsum("aij,bjk->abik", rotations, rotations).reshape(-1, 3, 3)
        shifts = np.einsum("aij,bj->abi", rotations, translations) + translations[:, None]
        if abs(products).max() > 100:
            raise ValueError(
                "the symmetry operations do not generate a finite group; check their rotation parts"
            )
        rotations, translations = in_canonical_order(products, shifts.reshape(-1, 3))
        if len(rotations) == size:
            return rotations, translations
        if len(rotations) > limit:
            raise ValueError(f"the symmetry operations generate more than {limit} operators; check the list")
