# pyright: reportCallIssue=false, reportArgumentType=false
"""Training of neural fluxes: what the batches hold, that it learns, and that it resumes bit for bit."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.cli import main
from sciml.cli.neural import train_flux
from sciml.fv.catalogue import SCHEMES, evaluation_laws
from sciml.fv.law import as_dtype
from sciml.fv.neural_training import (
    NetworkConfig,
    NeuralTraining,
    RolloutStage,
    WeakFormConfig,
    initial_averages,
    make_batches,
    make_loss,
    make_validation,
    random_states,
    roll_out,
    states_interval,
)
from sciml.fv.problem import LAW_CONFIGS
from sciml.fv.released import load_flux

STAGE = RolloutStage(rollout=6, cells=12, updates=4, batch=3)
QUICK = NeuralTraining(
    stages=(STAGE, dataclasses.replace(STAGE, rollout=8)), states=8, validation_states=0, log_every=2
)


@pytest.mark.parametrize("name", sorted(evaluation_laws()))
def test_random_states_stay_stable_and_averages_are_those_of_the_jumps(name):
    law = evaluation_laws()[name]
    places, values = random_states(law, STAGE, states=50, cells=14, seed=3, limit=0.95)
    assert np.abs(np.asarray(law.wave_speed(jnp.asarray(values)))).max() * STAGE.dt_dx <= 0.951
    averages = initial_averages(places, values, 14)
    np.testing.assert_allclose(averages.sum(1), (values * np.diff(places)).sum(1), rtol=1e-12)
    fine = np.where((np.arange(14 * 1000) + 0.5) / 1000 < places[:, 1:2], values[:, :1], values[:, 1:])
    np.testing.assert_allclose(averages, fine.reshape(50, 14, 1000).mean(2), atol=2e-3)


def test_fast_states_are_left_out():
    lower, upper = states_interval(evaluation_laws()["greenberg"], 0.1, 0.95)
    assert np.isclose(lower, np.exp(-1 - 0.95 / 0.2), rtol=0.05) and upper == 1.0
    with pytest.raises(ValueError, match="dt_dx"):
        states_interval(evaluation_laws()["triangular"], 5.0, 0.95)


def test_batches_are_functions_of_the_update_and_know_no_solution_without_labels():
    law = QUICK.law.build()
    first, again = make_batches(QUICK, law), make_batches(QUICK, law)
    for update in (0, 3, 4, 7):
        a, b = first(update), again(update)
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
        assert a[0].shape == (3, a[2].shape[0] + 1, 14)
    assert first(0)[2].shape == (6,) and first(4)[2].shape == (8,)
    assert not np.array_equal(first(0)[0], first(1)[0])
    weak = make_batches(dataclasses.replace(QUICK, objective="weak-form"), law)
    assert weak(0)[0].shape == (3, 12)


@pytest.mark.parametrize("objective", ["supervised", "weak-form"])
@pytest.mark.parametrize("shape", [(2, 1), (4, 3)], ids=str)
def test_a_training_lowers_its_loss(objective, shape):
    config = dataclasses.replace(
        QUICK,
        objective=objective,
        network=NetworkConfig(stencil=shape[0], levels=shape[1], width=8, depth=2),
        weak_form=WeakFormConfig(width=4.0, entropy_width=4.0, duration=2.0, constants=3),
        stages=(RolloutStage(rollout=6, cells=14, updates=60, learning_rate=5e-3, batch=8),),
        log_every=60,
    )
    law = as_dtype(config.law.build(), jnp.float32)
    flux, summary = train_flux(config)
    loss, batch = make_loss(config, law), make_batches(config, law)(0)
    key = jax.random.key(0)
    fresh = config.network.build(law, jax.random.split(jax.random.key(config.seed))[0])
    assert float(loss(flux, batch, key)[0]) < 0.5 * float(loss(fresh, batch, key)[0])
    assert summary["parameters"] == flux.parameters and np.isfinite(summary["seconds"])


def test_parts_of_the_weak_form_can_be_switched_off():
    law = as_dtype(QUICK.law.build(), jnp.float32)
    flux = QUICK.network.build(law, jax.random.key(0))
    for options, names in (
        ({"width": 4.0, "entropy_width": 4.0}, {"weak", "entropy", "bounds"}),
        ({"width": 4.0, "entropy": 0.0, "entropy_width": 4.0}, {"weak"}),
        ({"tests": "polynomials", "count": 5, "degree": 6, "entropy": 0.0, "entropy_width": 4.0}, {"weak"}),
    ):
        config = dataclasses.replace(QUICK, objective="weak-form", weak_form=WeakFormConfig(**options))
        value, parts = make_loss(config, law)(flux, make_batches(config, law)(0), jax.random.key(0))
        assert set(parts) == names and np.isclose(value, sum(parts.values()))


def test_validation_is_the_error_of_the_scheme():
    """With the network replaced by Godunov's flux the validation gives Godunov's own error."""
    config = dataclasses.replace(QUICK, validation_states=2, validation_steps=20)
    law = as_dtype(config.law.build(), jnp.float32)
    validate = make_validation(config, law)
    assert validate is not None
    flux = config.network.build(law, jax.random.key(0))
    godunov = SCHEMES["godunov"].flux
    assert godunov is not None
    assert float(validate(godunov())["mse"]) < float(validate(flux)["mse"])
    truth = jnp.full((6, 20), 0.3)
    np.testing.assert_allclose(roll_out(godunov(), law, truth, 0.5, 3), truth[:, 3:-3], atol=1e-6)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"stages": ()}, "stages is empty"),
        ({"law": LAW_CONFIGS["buckley-leverett"]()}, "weak-form"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(QUICK, **options)


def test_the_command_writes_weights_a_card_and_resumes_bit_for_bit(tmp_path, capsys):
    config = tmp_path / "small.toml"
    config.write_text(
        'name = "small"\nlog_every = 2\nvalidate_every = 2\nvalidation_states = 1\n'
        "validation_steps = 5\nstates = 8\n"
        "[[stages]]\nrollout = 4\ncells = 12\nupdates = 40\nbatch = 2\n"
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["fv", "train", str(config), "--out", str(whole)]) == 0
    assert "weights" in capsys.readouterr().out
    for name in ("weights.npz", "report.html", "metrics.json", "figures/flux.png", "figures/training.png"):
        assert (whole / name).stat().st_size > 0
    card = load_flux(whole / "weights.npz").card
    assert card["name"] == "small" and card["training"]["updates"] == 40

    import importlib
    from unittest.mock import patch

    fit = importlib.import_module("sciml.train.fit")

    class Stop(Exception):
        pass

    real = fit.progress_bar

    def stopping(total):
        from contextlib import contextmanager

        @contextmanager
        def bar():
            with real(total) as inner:

                def tick(step, record):
                    inner(step, record)
                    if step == 26:
                        raise Stop

                yield tick

        return bar()

    with patch.object(fit, "progress_bar", stopping), pytest.raises(Stop):
        main(["--debug", "fv", "train", str(config), "--out", str(parts)])
    assert main(["fv", "train", str(config), "--out", str(parts), "--resume"]) == 0
    a, b = (load_flux(folder / "weights.npz").flux for folder in (whole, parts))
    assert all(np.array_equal(x, y) for x, y in zip(a.weights, b.weights, strict=True))
    lines = [json.loads(line)["step"] for line in (parts / "metrics.jsonl").read_text().splitlines()]
    assert lines == sorted(set(lines))
