"""Slow NumPy twins of every algorithm, by name.

Written from the specification alone, a loop over clients in float64, so that a
difference from the library reveals an error in one of the two. Each is

  twin(hp, theta0, cohorts, run_key, population=8, **options) -> theta

with the options of `algorithms.make`, theta of [d] in the order of
`reference.flat`. Private ones take their secret root as `noise_key` as well.
"""

import functools

import numpy as np
import twins_base
import twins_compressed
import twins_private
import twins_sketched


def _run(twin, hp, theta0, cohorts, run_key, *, population=8, **options):
  clip_norm = getattr(hp, 'clip_norm', None)
  noise = getattr(hp, 'noise_multiplier', None)
  settings = twins_base.Settings(
    client_lr=float(hp.client_lr),
    server_lr=float(hp.server_lr),
    clip_norm=np.inf if clip_norm is None else float(clip_norm),
    noise_multiplier=0.0 if noise is None else float(noise),
    population=population,
  )
  rounds = twins_base.rounds_of(cohorts, run_key)
  return twin(settings, np.array(theta0, np.float64), rounds, **options)


TWINS = {
  twin.__name__: functools.partial(_run, twin)
  for twin in (
    twins_compressed.cd_adam,
    twins_compressed.cocktail_sgd,
    twins_sketched.decentralised,
    twins_sketched.diffsketch,
    twins_compressed.ef21,
    twins_compressed.fedavg,
    twins_compressed.fedcom,
    twins_compressed.fedcomgate,
    twins_compressed.fedsgd,
    twins_sketched.fedsketch_heaprix,
    twins_sketched.fedsketch_privix,
    twins_sketched.fedsketchgate,
    twins_sketched.fetchsgd,
    twins_sketched.iterative_sketching,
    twins_compressed.marina,
    twins_compressed.onebit_adam,
    twins_sketched.safl,
    twins_compressed.scaffold,
    twins_compressed.signsgd,
    twins_sketched.sketched_sgd,
  )
}
PRIVATE = {
  name: functools.partial(_run, getattr(twins_private, name))
  for name in (
    'dp_fedavg',
    'dp_normfedavg',
    'fedsketch_heaprix',
    'fedsketch_privix',
    'fedsketchgate',
    'fetchsgd',
    'iterative_sketching',
    'private_iterative_sketching',
    'safl',
    'sketched_sgd',
  )
}
