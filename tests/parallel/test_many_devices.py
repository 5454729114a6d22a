"""Eight virtual devices and two processes against one device: the same fit."""

import dataclasses
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import reference
from anchordot_jax import distillation, geometry
from anchordot_jax.config import CouplingConfig, DistillationConfig
from anchordot_jax.coupling import solve_coupling
from anchordot_jax.errors import InputError
from anchordot_jax.parallel.mesh import initialize, make_mesh, replicate, shard_rows
from anchordot_jax.training import spread_distillation

DEVICES = 8
N, M, R, N_ANCHORS, DIM_X, DIM_Y = 53, 37, 6, 12, 10, 8
STREAMED = CouplingConfig(tolerance=2e-6, cost_memory=0)
CONFIG = DistillationConfig(dim=16, epochs=5, chunk_size=20, warmup_steps=2)

# The checks below run in a process of their own that has eight devices.
spread = pytest.mark.skipif(
    jax.device_count() < DEVICES, reason="run by test_with_eight_devices"
)


def pools():
    return reference.unit_rows(N, R, 0), reference.unit_rows(M, R, 1)


@pytest.mark.slow
def test_with_eight_devices():
    """Every check of this file that needs eight devices passes in such a process."""
    if jax.device_count() >= DEVICES:
        return
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(DEVICES)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p",
         "no:xdist", "-k", "spread", __file__],
        env=environment, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed.group(1)) == SPREAD_CHECKS
    assert "skipped" not in done.stdout


@spread
@pytest.mark.parametrize("devices", ["all", "3", "1"])
def test_spread_potentials(devices):
    """Rows that the devices divide or not: the potentials of one device."""
    x, y = pools()
    mesh = make_mesh(devices)
    one = solve_coupling(x, y, 0.03, config=STREAMED)
    many = solve_coupling(x, y, 0.03, config=STREAMED, mesh=mesh)
    assert bool(many.converged)
    assert many.f.shape == one.f.shape
    assert len(many.f.sharding.device_set) == mesh.size
    for ours, theirs in zip(
        reference.centred(many.f, many.g), reference.centred(one.f, one.g), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3 * 0.03)


@spread
@pytest.mark.parametrize(
    "settings",
    [
        {"anderson": 5, "overrelaxation": 1.0},
        {"warm_start": "epsilon"},
        {"kernel": "pallas"},
    ],
    ids=str,
)
def test_spread_settings(settings):
    """Each acceleration, start and kernel: the potentials of one device."""
    x, y = pools()
    a = np.random.default_rng(3).uniform(0.5, 2, N)
    a[4] = 0
    given = {"a": a / a.sum(), "config": dataclasses.replace(STREAMED, **settings)}
    one = solve_coupling(x, y, 0.05, **given)
    many = solve_coupling(x, y, 0.05, **given, mesh=make_mesh("3"))
    assert bool(many.converged)
    assert abs(int(many.n_iterations) - int(one.n_iterations)) <= 10
    finite = np.isfinite(one.f)
    np.testing.assert_array_equal(np.isfinite(many.f), finite)
    ours = reference.centred(np.asarray(many.f)[finite], np.asarray(many.g))
    theirs = reference.centred(np.asarray(one.f)[finite], np.asarray(one.g))
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-3 * 0.05)


@spread
@pytest.mark.parametrize("rho", [None, 0.3])
def test_spread_marginals_and_start(rho):
    """Weights with zeros and given potentials are spread like the rows."""
    x, y = pools()
    random = np.random.default_rng(0)
    a, b = random.uniform(0.5, 2, N), random.uniform(0.5, 2, M)
    a[4] = 0
    given = {"a": a / a.sum(), "b": b / b.sum(), "config": STREAMED, "rho": rho}
    one = solve_coupling(x, y, 0.05, **given)
    init = (np.where(np.isfinite(one.f), one.f, 0), one.g)
    many = solve_coupling(x, y, 0.05, **given, init=init, mesh=make_mesh("all"))
    if rho is None:
        assert int(many.n_iterations) < int(one.n_iterations)
    assert np.isneginf(many.f[4])
    finite = np.isfinite(one.f)
    ours = reference.centred(np.asarray(many.f)[finite], np.asarray(many.g))
    theirs = reference.centred(np.asarray(one.f)[finite], np.asarray(one.g))
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-3 * 0.05)
    if rho is not None:
        assert float(many.mass) == pytest.approx(float(one.mass), rel=1e-4)
        assert many.log_mass_x.shape == (N,)
        assert len(many.log_mass_x.sharding.device_set) == DEVICES
        np.testing.assert_allclose(many.log_mass_x, one.log_mass_x, atol=1e-3)
        np.testing.assert_allclose(many.log_mass_y, one.log_mass_y, atol=1e-3)


@spread
@pytest.mark.parametrize(("n", "m"), [(53, 37), (1500, 800)])
def test_spread_median(n, m):
    """Whole or sampled, the median is the very one of one device."""
    x, y = reference.unit_rows(n, R, 0), reference.unit_rows(m, R, 1)
    key, mesh = jax.random.key(3), make_mesh("all")
    one = geometry.sampled_median_cost(x, y, key=key)
    many = geometry.sampled_median_cost(
        shard_rows(x, mesh),
        shard_rows(y, mesh),
        key=replicate(key, mesh),
        counts=(n, m),
        mesh=mesh,
    )
    np.testing.assert_allclose(many, one, rtol=1e-6)


@spread
@pytest.mark.parametrize(("devices", "weighted"), [("8", False), ("3", True)])
def test_spread_epochs(devices, weighted):
    """Five epochs of chunks of 20, which 8 and 3 do not divide: the same students."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(N, DIM_X)), random.normal(size=(M, DIM_Y))
    rows = [jnp.asarray(side, jnp.float32) for side in (x, y, *pools())]
    f, g = random.normal(scale=0.1, size=N), random.normal(scale=0.1, size=M)
    potentials = [jnp.asarray(side, jnp.float32) for side in (f, g, 0.1)]
    anchors = distillation.Anchors(
        *(random.normal(size=(N_ANCHORS, d)).astype(np.float32) for d in (DIM_X, DIM_Y))
    )
    chunks = distillation.plan_chunks(N, M, N_ANCHORS, CONFIG.chunk_size)
    key, mesh = jax.random.key(1), make_mesh(devices)
    start = distillation.init_training(
        DIM_X, DIM_Y, CONFIG, total_steps=5 * chunks.steps, key=key
    )
    many, whole = replicate((start, anchors), mesh)
    placed = [shard_rows(side, mesh) for side in rows]
    spread_pools = distillation.Pools(*placed, *replicate(potentials, mesh))
    one, single = start, distillation.Pools(*rows, *potentials)
    if weighted:
        w, v = (jnp.asarray(random.uniform(0, 2, n), jnp.float32) for n in (N, M))
        single = single._replace(weights_x=w, weights_y=v)
        w, v = replicate((w, v), mesh)
        spread_pools = spread_pools._replace(weights_x=w, weights_y=v)
    for _ in range(CONFIG.epochs):
        settings = {"config": CONFIG, "chunks": chunks}
        one, expected = distillation.train_epoch(
            one, single, anchors, key=key, **settings
        )
        many, found = spread_distillation.train_epoch(
            many, spread_pools, whole, key=replicate(key, mesh), mesh=mesh, **settings
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=2e-5),
        many.params,
        one.params,
    )
    assert float(expected.logit_scale) != pytest.approx(1 / 0.07, rel=1e-4)


SPREAD_CHECKS = 12


@pytest.mark.parametrize("devices", ["none", "0", "-1", "1.5", "10000"])
def test_impossible_devices(devices):
    """A number of devices that cannot be had is one sentence."""
    with pytest.raises(InputError, match=r"devices (must be all|is 10000, but JAX)"):
        make_mesh(devices)


def test_half_a_coordinator():
    """An address without the numbers is refused before anything is joined."""
    with pytest.raises(InputError, match="belong together"):
        initialize("127.0.0.1:1")


def test_nobody_to_join():
    """Outside of a cluster, the processes must be told of each other."""
    with pytest.raises(InputError, match="could not be joined"):
        initialize()


PAPER = (
    "--quiet --recipe paper --gamma 0.75 --eta 0.05 --distillation.dim 32 "
    "--distillation.epochs 6 --distillation.chunk-size 64"
)
REFINED = (
    "--quiet --refined.epochs 3 --distillation.chunk-size 64 --soft-cca.ridge 1 4 "
    "--soft-cca.balance 1 --soft-cca.power 1 --soft-cca.ridge-ratio 0.5 "
    "--soft-cca.balance-ratio 1 --soft-cca.final-power 1 --soft-cca.sharpness 3 5"
)


def write_inputs(folder: Path, options: str) -> list[str]:
    """Write two files and their pairs; return the arguments that name them."""
    random = np.random.default_rng(0)
    latent = random.normal(size=(123, 6))
    for name, width in (("x", 20), ("y", 15)):
        rows = latent @ random.normal(size=(6, width))
        np.save(folder / f"{name}.npy", rows.astype(np.float32))
    pairs = "".join(f"{i},{i}\n" for i in range(30))
    (folder / "pairs.csv").write_text(f"x,y\n{pairs}")
    named = {"x": "x.npy", "y": "y.npy", "pairs": "pairs.csv"}
    files = [f"--{option}={folder / file}" for option, file in named.items()]
    return [*files, *options.split()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_pair(arguments: list[str], out: Path) -> list[subprocess.Popen]:
    """Start both processes of a run; they meet on a free port."""
    address = f"127.0.0.1:{free_port()}"
    common = [sys.executable, "-m", "anchordot_jax", "fit", *arguments, f"--out={out}"]
    joined = [*common, f"--coordinator={address}", "--processes=2"]
    return [
        subprocess.Popen(
            [*joined, f"--process={i}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(2)
    ]


def finish(processes: list[subprocess.Popen]) -> list[str]:
    """Return what both printed once they are through; each must succeed."""
    try:
        printed = [process.communicate(timeout=400)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], printed
    return printed


def tensors(run: Path, file: str) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(run / file)


def fit_alone(folder: Path, arguments: list[str]) -> Path:
    """Return the run of one process on one device."""
    run = folder / "alone"
    command = [sys.executable, "-m", "anchordot_jax", "fit", *arguments]
    subprocess.run(
        [*command, f"--out={run}", "--devices=1"], check=True, capture_output=True
    )
    return run


@pytest.mark.slow
def test_two_processes(tmp_path):
    """Two processes on loopback, one of them lost once: the model of one process."""
    arguments = write_inputs(tmp_path, PAPER)
    alone, out = fit_alone(tmp_path, arguments), tmp_path / "together"

    processes = start_pair(arguments, out)
    deadline = time.monotonic() + 300
    while not list((out / "checkpoints").glob("[0-9]*/_CHECKPOINT_METADATA")):
        assert time.monotonic() < deadline, "no checkpoint appeared"
        assert all(process.poll() is None for process in processes), "a process ended"
        time.sleep(0.05)
    for process in processes[::-1]:
        process.kill()
        process.communicate()
    assert not (out / "model").exists()

    first, second = finish(start_pair(arguments, out))
    assert "Model:" in first
    assert "Model:" not in second
    found, expected = (tensors(run, "model/model.safetensors") for run in (out, alone))
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-5)
    found, expected = (tensors(run, "coupling.safetensors") for run in (out, alone))
    for name in ("f", "g"):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_two_processes_of_the_default_recipe(tmp_path):
    """They share the first's choice, start and plan: the model of one process."""
    arguments = write_inputs(tmp_path, REFINED)
    alone, out = fit_alone(tmp_path, arguments), tmp_path / "together"
    finish(start_pair(arguments, out))
    for file in ("start.safetensors", "model/model.safetensors"):
        found, expected = (tensors(run, file) for run in (out, alone))
        assert found.keys() == expected.keys()
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-4)
