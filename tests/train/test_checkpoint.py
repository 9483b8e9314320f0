import json
import logging

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.train import Checkpoints, load_model, make_mesh, read_header, replicate, save_model


def mlp(config):
    return eqx.nn.MLP(2, 1, config["width"], 1, key=jax.random.key(config.get("seed", 0)))


def test_the_newest_state_comes_back_bit_by_bit(tmp_path):
    tree = {"model": mlp({"width": 4}), "step": jnp.asarray(3), "text": "static"}
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        assert checkpoints.latest() is None
        for step in (10, 20, 30):
            checkpoints.save(
                step, jax.tree.map(lambda leaf, s=step: leaf * s if eqx.is_array(leaf) else leaf, tree)
            )
        checkpoints.save(30, tree)  # a step that is there stays as it is
        checkpoints.wait()
        assert checkpoints.latest() == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_20", "step_30"]
    with Checkpoints(tmp_path) as checkpoints:
        for step, found in ((30, checkpoints.restore(tree)), (20, checkpoints.restore(tree, 20))):
            expected = jax.tree.map(lambda leaf, s=step: leaf * s if eqx.is_array(leaf) else leaf, tree)
            assert bool(eqx.tree_equal(found, expected))


def test_the_root_logger_stays_as_it_was(tmp_path):
    before = list(logging.root.handlers)
    logging.root.handlers[:] = []  # orbax adds one only where there is none
    try:
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.save(1, {"x": jnp.ones(3)})
        assert not logging.root.handlers
    finally:
        logging.root.handlers[:] = before


def test_arrays_may_change_as_soon_as_save_returns(tmp_path):
    add = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros(1_000_000)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"x": x})
        for _ in range(20):
            x = add(x)
        checkpoints.wait()
        assert not np.any(np.asarray(checkpoints.restore({"x": x})["x"]))


def test_half_written_states_are_not_offered(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"x": jnp.ones(3)})
    (tmp_path / "step_2.orbax-checkpoint-tmp-0").mkdir()
    (tmp_path / "step_3.orbax-checkpoint-tmp").mkdir()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest() == 1


@pytest.mark.parametrize(
    "like, words",
    [
        ({"x": jnp.ones(4)}, ["['x']", "float32[3]", "float32[4]"]),
        ({"x": jnp.ones(3, jnp.int32)}, ["['x']", "float32[3]", "int32[3]"]),
        ({"y": jnp.ones(3)}, ["['x']", "in the file and not in the model"]),
        ({"x": jnp.ones(3), "y": jnp.ones(3)}, ["['y']", "in the model and not in the file"]),
    ],
)
def test_a_state_that_does_not_fit_is_named(tmp_path, like, words):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"x": jnp.ones(3)})
        checkpoints.wait()
        with pytest.raises(ValueError) as error:
            checkpoints.restore(like)
    assert all(word in str(error.value) for word in words)


def test_no_checkpoint_at_all(tmp_path):
    with (
        Checkpoints(tmp_path) as checkpoints,
        pytest.raises(FileNotFoundError, match="no complete checkpoint"),
    ):
        checkpoints.restore({"x": jnp.ones(3)})


def test_saved_on_four_devices_restored_on_one(tmp_path):
    x = jnp.arange(8.0)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, replicate({"x": x}, make_mesh()))
        checkpoints.wait()
        found = checkpoints.restore({"x": jnp.zeros(8)})["x"]
        assert len(found.devices()) == 1
        np.testing.assert_array_equal(found, x)
        spread = checkpoints.restore(replicate({"x": jnp.zeros(8)}, make_mesh()))["x"]
        assert len(spread.devices()) == 4


def test_released_model_comes_back_and_says_what_it_is(tmp_path):
    config = {"width": 4, "law": "burgers"}
    path = save_model(tmp_path / "model.eqx", mlp(config), config)
    assert [file.name for file in tmp_path.iterdir()] == ["model.eqx"]
    assert read_header(path)["config"] == config
    assert bool(eqx.tree_equal(load_model(path, lambda c: mlp({**c, "seed": 5})), mlp(config)))
    x = jnp.ones(2)
    np.testing.assert_array_equal(load_model(path, mlp)(x), mlp(config)(x))


def test_precision_of_a_released_model(tmp_path):
    path = save_model(tmp_path / "model.eqx", mlp({"width": 4}), {"width": 4})
    with jax.enable_x64(True):
        with pytest.raises(
            ValueError, match=r"weight is float32\[4, 2\] in the file and float64\[4, 2\] in the model"
        ):
            load_model(path, mlp)
        wide = load_model(path, mlp, dtype=jnp.float64)
        assert {leaf.dtype.name for leaf in jax.tree.leaves(eqx.filter(wide, eqx.is_array))} == {"float64"}
    narrow = eqx.filter(mlp({"width": 4}), eqx.is_array)
    for a, b in zip(jax.tree.leaves(narrow), jax.tree.leaves(eqx.filter(wide, eqx.is_array)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bad_model_files_are_named(tmp_path):
    path = save_model(tmp_path / "model.eqx", mlp({"width": 4}), {"width": 4})
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"model\.eqx: .*\[4, 2\] in the file and .*\[5, 2\] in the model"):
        load_model(path, lambda config: mlp({"width": 5}))
    with pytest.raises(ValueError, match="config"):
        load_model(path, lambda config: mlp({"width": config["size"]}))
    path.write_bytes(content[:-40])
    with pytest.raises(ValueError, match=r"model\.eqx: cut short at \.layers"):
        load_model(path, mlp)
    for other in (b"", b"\x80\x04pickle", json.dumps({"format": "another"}).encode(), b"[1]\n"):
        path.write_bytes(other)
        with pytest.raises(ValueError, match=r"model\.eqx: not a model file"):
            load_model(path, mlp)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "none.eqx", mlp)
