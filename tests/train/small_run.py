"""A small training run: `python small_run.py FOLDER` starts it, or goes on where it was killed."""

import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sciml.train import Fitted, Optimiser, Run, Shuffled, Stage, Training, TrainState, fit, save_model

X = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
Y = np.sin(3 * X)
STEPS = Optimiser((Stage(200, 1e-2, warmup=20), Stage(200, 1e-3, "linear")))
TRAINING = Training(STEPS, log_every=10, validate_every=50, checkpoint_every=40, patience=50)


def loss(model, batch, key):
    x, y = batch
    noisy = x + 1e-2 * jax.random.normal(key, x.shape)
    error = jax.vmap(model)(noisy) - y
    return jnp.mean(error**2), {"largest": jnp.max(jnp.abs(error))}


def validate(model):
    return {"loss": jnp.mean((jax.vmap(model)(X) - Y) ** 2)}


def start(training=TRAINING, seed=0):
    model = eqx.nn.MLP(1, 1, 16, 2, key=jax.random.key(seed))
    return TrainState.create(model, training.optimiser.build(), key=jax.random.key(1), average=True)


def train(folder, training=TRAINING, pause=0.0, **options) -> Fitted:
    shuffled = Shuffled((X, Y), 16, seed=3)

    def batches(step):
        time.sleep(pause)
        return shuffled(step)

    with Run.create(folder, "", resume=True) as run:
        return fit(start(training), loss, batches, training, run=run, validate=validate, **options)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print("ready", flush=True)
    fitted = train(folder, pause=0.005)
    save_model(folder / "last.eqx", fitted.state, {})
    save_model(folder / "best.eqx", fitted.model, {})
