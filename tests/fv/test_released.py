# pyright: reportCallIssue=false, reportArgumentType=false
"""Files of trained fluxes: exact round trip, the right law in any units, and one clear error otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.cli import main
from sciml.fv.boundary import Periodic
from sciml.fv.catalogue import LEARNED, evaluation_laws, scheme_entry
from sciml.fv.evaluate import Protocol, evaluate_law
from sciml.fv.fundamental_diagram import Greenshields, Triangular
from sciml.fv.grid import UniformGrid
from sciml.fv.law import Burgers
from sciml.fv.neural_flux import NeuralFlux
from sciml.fv.problem import LAW_CONFIGS
from sciml.fv.released import FOLDER, TrainedFlux, flux_for, load_flux, released, save_flux, transferred

CARD = {"law": {"kind": "greenshields", "free_flow_speed": 1.0, "jam_density": 1.0}, "name": "test"}


@pytest.mark.parametrize("shape", [(2, 1), (4, 5)], ids=str)
def test_a_file_gives_back_the_flux(tmp_path, shape):
    flux = NeuralFlux(*shape, activation="tanh", flux_clamp=True, law=Greenshields(), key=jax.random.key(1))
    path = save_flux(tmp_path / "flux.npz", flux, CARD)
    loaded = load_flux(path)
    lines = jnp.asarray(np.random.default_rng(0).random((shape[1], 20)), jnp.float32)
    np.testing.assert_array_equal(
        loaded.flux.along(Greenshields(), lines, None), flux.along(Greenshields(), lines, None)
    )
    assert loaded.card["name"] == "test" and loaded.flux.flux_clamp
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("speed, jam", [(90.0, 140.0), (0.3, 2.0)])
def test_units_of_the_law_change_only_the_units_of_the_flux(speed, jam):
    flux = NeuralFlux(law=Greenshields(), key=jax.random.key(1))
    trained, law = TrainedFlux(flux, Greenshields(), CARD), Greenshields(speed, jam)
    found = transferred(trained, law)
    assert found is not None
    line = jnp.linspace(0.05, 0.9, 9)
    expected = speed * jam * flux.along(Greenshields(), line, None)
    np.testing.assert_allclose(
        found.along(law, jam * line, None), expected, rtol=1e-4, atol=1e-5 * speed * jam
    )


@pytest.mark.parametrize("law", [Triangular(1.0, 1.0, 1.0), Burgers(-1.0, 1.0), Burgers()], ids=repr)
def test_another_shape_of_flux_is_refused(law):
    flux = NeuralFlux(law=Greenshields(), key=jax.random.key(1))
    assert transferred(TrainedFlux(flux, Greenshields(), CARD), law) is None


def test_a_file_is_a_scheme_name(tmp_path):
    flux = NeuralFlux(law=Greenshields(), key=jax.random.key(1))
    path = str(save_flux(tmp_path / "mine.npz", flux, CARD))
    law, grid = Greenshields(2.0, 3.0), UniformGrid(10)
    assert scheme_entry(path).build(law, grid, Periodic()).fully_discrete
    jax.jit(lambda u: scheme_entry(path).build(law, grid, Periodic()).max_speed(0.0, u))(jnp.zeros(10))
    with pytest.raises(ValueError, match="no weights for Triangular"):
        scheme_entry(path).build(Triangular(), UniformGrid(10), Periodic())


def test_a_comparison_without_weights_is_refused_before_it_starts(tmp_path, capsys):
    arguments = ["--laws", "greenshields,trapezoidal", "--schemes", "nfv-4x5", "--out", str(tmp_path / "run")]
    # float64 would be switched on for the whole process, and with it for all tests that follow
    assert main(["fv", "evaluate", *arguments, "--precision", "float32"]) == 2
    assert "no weights for Trapezoidal" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_bad_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.npz"):
        load_flux(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"text\.npz.*not a file of a trained flux"):
        load_flux(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match=r"other\.npz"):
        load_flux(tmp_path / "other.npz")


SHARES = {"nfv-2x1": 0.7, "unfv-2x1": 0.9, "nfv-4x5": 0.3}  # of Godunov's mean square error, any law


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.npz")), ids=lambda path: path.stem)
def test_released_fluxes_beat_godunov_and_keep_the_mass(path):
    """Eight fresh states in float32: a share of Godunov's mean square error, and the total to round-off."""
    name, _, law = path.stem.partition(".")
    flux = flux_for(name, evaluation_laws()[law])
    assert f"{flux.stencil}x{flux.levels}" == name.partition("-")[2]
    protocol = Protocol((law,), (name,), seed=5, states=8, steps=600, precision="float32")
    found = evaluate_law(law, protocol, clock=False)
    assert found[name].mse.mean() < SHARES[name] * found["godunov"].mse.mean()
    assert found[name].mass_defect.max() < 1e-6 and not found[name].failed.any()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.npz")), ids=lambda path: path.stem)
def test_released_files_say_how_they_were_made(path):
    trained = load_flux(path)
    scheme, _, law = path.stem.partition(".")
    assert scheme in LEARNED and law in evaluation_laws()
    assert trained.card["name"] == scheme
    assert transferred(trained, evaluation_laws()[law]) is not None
    assert trained.card["objective"] == ("weak-form" if scheme.startswith("unfv") else "supervised")
    assert trained.card["config"] and trained.card["training"]["updates"] > 0
    assert path.stat().st_size < 100_000


def test_names_of_learned_schemes_are_known():
    assert all(scheme_entry(name).weights == name for name in LEARNED)
    assert set(LAW_CONFIGS) >= {trained.card["law"]["kind"] for trained in released("nfv-2x1")}
    with pytest.raises(ValueError, match="nfv-2x1"):
        scheme_entry("nfv-2x2")
