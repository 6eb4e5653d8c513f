"""JAX's collectives over the library that `LD_PRELOAD` names: one process, one thread a GPU. Prints one line a check; a wrong
value ends the process."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

RANKS = jax.device_count()


def inputs(count, dtype):
    own = (np.arange(count)[None, :] + 7 * np.arange(RANKS)[:, None]) % 5
    return own.astype(dtype)


def check(name, found, expected):
    assert (np.asarray(found).astype(np.float64) == np.asarray(expected).astype(np.float64)).all(), name


def collectives(dtype, count):
    own = inputs(count, dtype)
    exact = own.astype(np.float64)
    along = partial(jax.pmap, axis_name="ranks")
    check("psum", along(lambda x: jax.lax.psum(x, "ranks"))(own), np.broadcast_to(exact.sum(0), exact.shape))
    check("pmax", along(lambda x: jax.lax.pmax(x, "ranks"))(own), np.broadcast_to(exact.max(0), exact.shape))
    check("all_gather", along(lambda x: jax.lax.all_gather(x, "ranks"))(own), np.broadcast_to(exact, (RANKS, *exact.shape)))
    ring = [(rank, (rank + 1) % RANKS) for rank in range(RANKS)]
    check("ppermute", along(lambda x: jax.lax.ppermute(x, "ranks", ring))(own), np.roll(exact, 1, 0))
    tiles = inputs(count * RANKS, dtype).reshape(RANKS, RANKS, count)
    scattered = along(lambda x: jax.lax.psum_scatter(x, "ranks"))(tiles)
    check("psum_scatter", scattered, tiles.astype(np.float64).sum(0))
    exchanged = along(lambda x: jax.lax.all_to_all(x, "ranks", 0, 0))(tiles)
    check("all_to_all", exchanged, tiles.swapaxes(0, 1))


def main():
    assert RANKS > 1 and jax.devices()[0].platform == "gpu", jax.devices()
    for dtype in (np.float32, np.int32, jnp.bfloat16, np.float16):
        for count in (1, 1000, 1 << 18):
            collectives(dtype, count)
        print(f"ok collectives of {np.dtype(dtype).name}", flush=True)
    step = jax.pmap(lambda x: jax.lax.psum(x * 0.5, "ranks"), axis_name="ranks")
    value = jnp.ones((RANKS, 4096), jnp.float32)
    for _ in range(500):
        value = step(value) * (2.0 / RANKS)
    check("500 steps", value, np.ones((RANKS, 4096)))
    print("ok 500 steps", flush=True)


main()
