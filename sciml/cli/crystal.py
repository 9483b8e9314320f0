"""`sciml crystal symmetry` and `sciml crystal prepare`; the crystal part of the demo."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sciml.crystal.detection import Detection, detect_with_time_limit
from sciml.crystal.io import find_sources, parse
from sciml.crystal.space_group import HALL_NUMBERS
from sciml.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sciml.crystal.testing import SettingCheck


def _search_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--symprec", type=_positive, default=0.01, help="tolerance in Å (default 0.01)")
    parser.add_argument(
        "--loose-symprec",
        type=_positive,
        default=0.1,
        help="second tolerance in Å, to report when the group depends on it (default 0.1)",
    )
    parser.add_argument("--backend", choices=("spglib", "moyopy"), default="spglib")
    parser.add_argument(
        "--time-limit", type=_positive, default=20.0, help="seconds per structure (default 20)"
    )
    parser.add_argument("--structure-column", help="column of a table that holds the structures")
    parser.add_argument("--id-column", help="column of a table that holds the identifiers")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < np.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return value


# --- symmetry -----------------------------------------------------------------------------------------------


def symmetry(argv: list[str]) -> int:
    """Prints group, setting, stars, absences and invariance residual of structures; or checks all
    settings.
    """
    parser = argparse.ArgumentParser(
        prog="sciml crystal symmetry",
        description="Space group, stars and invariance residual of structures (CIF, POSCAR, XYZ, JSON, CSV).",
    )
    parser.add_argument("structures", nargs="*", metavar="STRUCTURE")
    _search_options(parser)
    parser.add_argument("--stars", type=int, default=12, help="number of stars to list (default 12)")
    parser.add_argument("--cutoff", type=_positive, default=0.6, help="of the basis, 1/Å (default 0.6)")
    parser.add_argument("--self-check", action="store_true", help="check all 530 settings instead")
    parser.add_argument("--figures", type=Path, help="write figures into this folder")
    options = parser.parse_args(argv)
    if options.self_check:
        return _self_check(options.figures)
    if not options.structures:
        parser.error("name at least one structure, or --self-check")

    failed = 0
    sources = find_sources(
        options.structures, structure_column=options.structure_column, id_column=options.id_column
    )
    for source in sources:
        try:
            found = detect_with_time_limit(
                parse(source),
                options.time_limit,
                symprec=options.symprec,
                loose_symprec=options.loose_symprec,
                backend=options.backend,
            )
        except (ValueError, OSError, RuntimeError) as error:
            print(f"error: {error}", file=sys.stderr)
            failed += 1
            continue
        print("\n".join(describe(found, stars=options.stars, cutoff=options.cutoff)) + "\n")
        if options.figures is not None:
            from sciml.cli.crystal_figures import stars_of_group

            name = "stars-" + "".join(c if c.isalnum() else "-" for c in Path(found.name).stem)
            _write_figure(options.figures / f"{name}.png", stars_of_group(found.space_group, found.lattice))
    return 2 if failed else 0


def describe(found: Detection, *, stars: int = 12, cutoff: float = 0.6) -> list[str]:
    """Lines about one detected structure."""
    from sciml.crystal.lattice import metric_of, miller_ball, reciprocal_metric
    from sciml.crystal.star import classify, stars_within

    setting, group = found.setting, found.space_group
    properties = [
        "centrosymmetric" if group.is_centrosymmetric else "not centrosymmetric",
        "polar" if group.is_polar else "not polar",
    ]
    choice = f", choice {setting.choice}" if setting.choice else ""
    lines = [
        found.name,
        f"  formula          {found.formula}",
        f"  space group      {setting.symbol} ({found.number}), {setting.crystal_system}, point group "
        f"{setting.point_group}, {', '.join(properties)}",
        f"  setting          Hall number {found.hall_number}{choice}: {setting.hall_symbol}",
        f"  atoms            {len(found.atom_of)} given, {len(found.species)} in the primitive cell, "
        f"{len(np.unique(found.orbit))} orbits",
        f"  symprec          {found.symprec:g} Å; atoms moved by up to {found.displacement:.2g} Å",
    ]
    if found.warning:
        lines.append(f"  warning          {found.warning.removeprefix(found.name + ': ')}")
    reciprocal = reciprocal_metric(metric_of(found.lattice))
    table = stars_within(group, found.lattice, cutoff)
    absent = classify(group, miller_ball(reciprocal, cutoff)).absent
    lines += [
        f"  stars            {table.functions} functions from {table.modes} of {len(absent)} vectors k "
        f"of the primitive cell up to {cutoff:g} 1/Å; {absent.sum()} systematically absent",
    ]
    if stars > 0:
        lines.append("      h   k   l  |k| (1/Å)   d (Å)  members  epsilon  centric   (conventional cell)")
    to_conventional = np.linalg.inv(setting.primitive_basis).T
    frequency = table.frequency(reciprocal)
    for row in range(min(stars, len(table))):
        size = int(table.multiplicity[row] * (2 - table.centric[row]))
        members = np.rint(table.miller[row, : table.members[row]] @ to_conventional.T).astype(int)
        indices = " ".join(f"{index:3d}" for index in _representative(members))
        spacing = f"{1 / frequency[row]:7.4f}" if frequency[row] else "      -"
        lines.append(
            f"    {indices} {frequency[row]:10.4f} {spacing} {size:8d} {table.epsilon[row]:8d}"
            f"  {'yes' if table.centric[row] else 'no'}"
        )
    single, double = residuals(found, cutoff=cutoff)
    lines.append(f"  residual         {single:.1e} in float32, {double:.1e} in float64: |f(Rx + t) - f(x)|")
    return lines


def _representative(members: np.ndarray) -> np.ndarray:
    """The member, or its negative, with the most non-negative indices, the largest first."""
    both = np.concatenate([members, -members])
    return both[np.lexsort((both[:, 2], both[:, 1], both[:, 0], (both >= 0).sum(1)))[-1]]


def residuals(found: Detection, *, cutoff: float = 0.6) -> tuple[float, float]:
    """Largest |f(Rx + t) - f(x)| of the basis of a structure over its operators, at atoms of up to eight
    orbits; float32 and float64.
    """
    from sciml.crystal.star import stars_within
    from sciml.crystal.testing import basis_residual, orbit_of

    group = found.space_group
    atoms = np.resize(found.fractional[np.unique(found.orbit)], (8, 3))
    images = np.resize(orbit_of(group, atoms), (48, 8, 3))  # one shape for all structures
    table = stars_within(group, found.lattice, cutoff)
    single, double = (basis_residual(table, found.lattice, images, double=wide) for wide in (False, True))
    return single, double


def _self_check(figures: Path | None) -> int:
    """Prints the table over all settings; the exit status is 1 when a setting fails."""
    from rich.console import Console
    from rich.progress import track

    from sciml.crystal.space_group import SpaceGroup
    from sciml.crystal.testing import FLOAT32_TOLERANCE, FLOAT64_TOLERANCE, self_check

    console = Console(stderr=True)
    checks = list(track(self_check(), "checking", total=len(HALL_NUMBERS), console=console, transient=True))
    bad = [check for check in checks if not check.passed]
    by_system: dict[str, list[SettingCheck]] = {}
    for check in checks:
        system = SpaceGroup.from_hall_number(check.hall_number).crystal_system
        by_system.setdefault(system, []).append(check)
    print(
        "crystal system  settings  stars  trace formula  float32 residual  float64 residual  gemmi mismatches"
    )
    for system, members in [*by_system.items(), ("all", checks)]:
        compared = all(c.mismatches is not None for c in members)
        mismatches = (
            sum(c.mismatches or 0 for c in members) if compared else "not compared: gemmi is not installed"
        )
        print(
            f"{system:14s}  {len(members):8d}  {sum(c.stars for c in members):5d}  "
            f"{sum(c.expected_stars for c in members):13d}  {max(c.residual32 for c in members):16.1e}  "
            f"{max(c.residual64 for c in members):16.1e}  {mismatches}"
        )
    print(
        f"limits: {FLOAT32_TOLERANCE:g} (float32), {FLOAT64_TOLERANCE:g} (float64); equal counts, no mismatch"
    )
    for check in bad:
        print(f"FAILED: {check}")
    if figures is not None:
        from sciml.cli.crystal_figures import invariant_functions, residual_by_group

        _write_figure(figures / "residual-by-group.png", residual_by_group(checks))
        _write_figure(figures / "ten-groups.png", invariant_functions())
    print("passed" if not bad else f"{len(bad)} settings failed")
    return 1 if bad else 0


def _write_figure(path: Path, figure: Figure) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150)
    print(f"written {path}")


# --- prepare ------------------------------------------------------------------------------------------------


def prepare(argv: list[str]) -> int:
    """Detects the symmetry of many structures and keeps them in one file."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from sciml.cli.runtime import cores
    from sciml.crystal.prepare import Settings
    from sciml.crystal.prepare import prepare as prepare_set

    parser = argparse.ArgumentParser(
        prog="sciml crystal prepare",
        description="Detect the symmetry of structures in tables, folders and files; keep them in one file. "
        "An interrupted call goes on where it stopped; unusable structures are listed in rejected.csv.",
    )
    parser.add_argument("paths", nargs="+", metavar="TABLE|FOLDER|FILE")
    parser.add_argument("--out", type=Path, required=True, help="the prepared set, a .npz file")
    parser.add_argument("--overwrite", action="store_true", help="start anew")
    parser.add_argument(
        "--processes", type=int, default=cores(), help="worker processes (default one per core)"
    )
    _search_options(parser)
    options = parser.parse_args(argv)
    if options.out.suffix != ".npz":
        parser.error(f"--out {options.out}: the name must end in .npz")

    console = Console(stderr=True)
    columns = (TextColumn("structures"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("structures")
        prepared = prepare_set(
            options.paths,
            options.out,
            settings=Settings(options.symprec, options.loose_symprec, options.backend),
            processes=options.processes,
            time_limit=options.time_limit,
            structure_column=options.structure_column,
            id_column=options.id_column,
            overwrite=options.overwrite,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    groups = {one.number for one in prepared.found}
    orbits = [len(np.unique(one.orbit)) for one in prepared.found]
    print(f"{len(prepared)} structures in {len(groups)} space groups written to {options.out}")
    if prepared.found:
        given = np.mean([len(one.atom_of) for one in prepared.found])
        primitive = np.mean([len(one.species) for one in prepared.found])
        print(
            f"atoms per structure: {given:.1f} given, {primitive:.1f} primitive, {np.mean(orbits):.1f} orbits"
        )
    if prepared.warnings:
        print(
            f"{len(prepared.warnings)} structures change their group between symprec {options.symprec:g} and "
            f"{options.loose_symprec:g} Å, for example"
        )
        print("\n".join(f"  {warning}" for warning in prepared.warnings[:3]))
    if prepared.rejected:
        print(
            f"{len(prepared.rejected)} rejected, listed in {options.out.parent / 'rejected.csv'}, for example"
        )
        print("\n".join(f"  {name}: {reason}" for name, reason in prepared.rejected[:3]))
    if not prepared.found:
        print("error: no structure could be used", file=sys.stderr)
        return 2
    return 0


# --- demo ---------------------------------------------------------------------------------------------------


def demo_part() -> tuple[dict[str, Figure], list[dict[str, Any]]]:
    """Figures by name, and table rows, of the crystal part of `sciml demo`; a few seconds, no data needed.

    The rows compare a basis with the symmetry built in with a plain Fourier basis of the same cut-off on
    random functions: functions needed, and how far values at equivalent points are apart.
    """
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    from sciml.cli.crystal_figures import invariant_functions
    from sciml.crystal.fourier import FourierBasis, SymmetricFourierSeries
    from sciml.crystal.lattice import lattice_of, random_metric
    from sciml.crystal.space_group import SpaceGroup
    from sciml.crystal.testing import orbit_of

    @eqx.filter_jit
    def evaluate(series: SymmetricFourierSeries, points: jax.Array) -> jax.Array:
        return jax.lax.map(jax.vmap(series), points)

    rng = np.random.default_rng(0)
    rows = []
    for number in (14, 62, 166, 194, 227):
        group = SpaceGroup.from_number(number)
        lattice = lattice_of(random_metric(group, rng))
        images = orbit_of(group, rng.uniform(size=(4, 3)))
        images = jnp.asarray(np.resize(images, (192, 4, 3)).astype(np.float32))  # one shape, one compilation
        row: dict[str, Any] = {"space group": f"{group.symbol} ({number})", "operators": group.order}
        for label, used in (("built in", group), ("plain", SpaceGroup.from_number(1))):
            basis = FourierBasis(used, lattice, cutoff=0.4, pad_stars=64, pad_members=24)
            series = SymmetricFourierSeries(basis, key=jax.random.key(number))
            values = np.asarray(evaluate(series, images))
            row[f"functions, {label}"] = int(basis.exists.sum())
            row[f"difference of equivalent points, {label}"] = float(np.abs(values - values[0]).max())
        rows.append(row)
    return {"invariant-functions": invariant_functions(stars=16, points=32)}, rows
