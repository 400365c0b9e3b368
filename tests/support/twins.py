"""Slow NumPy twins of every algorithm, written from the specification alone:

  twin(hp, theta0, cohorts, run_key, population=8, **options) -> theta

with the options of `algorithms.make`, theta of [d] in the order of
`reference.flat`. Private ones take their secret root as `noise_key` as well.
"""

import functools

from fl_sketch import algorithms
import numpy as np
import reference
import twins_base
import twins_compressed
import twins_language
import twins_lora
import twins_private
import twins_sketched


def _run(name, twin, hp, theta0, cohorts, run_key, *, population=8, **options):
  on_tables = 'safl', 'subspace_sketching'
  optimizer = 'adam' if name in on_tables else 'sgd'
  optimizer = options.pop('server_optimizer', optimizer)
  clip_norm = getattr(hp, 'clip_norm', None)
  noise = getattr(hp, 'noise_multiplier', None)
  settings = twins_base.Settings(
    client_lr=float(hp.client_lr),
    server_lr=float(hp.server_lr),
    clip_norm=np.inf if clip_norm is None else float(clip_norm),
    noise_multiplier=0.0 if noise is None else float(noise),
    population=population,
    server=reference.Server(optimizer, theta0.size),
  )
  rounds = twins_base.rounds_of(cohorts, run_key)
  return twin(settings, np.array(theta0, np.float64), rounds, **options)


TWINS = {
  name: functools.partial(_run, name, getattr(module, name))
  for module in (twins_compressed, twins_language, twins_lora, twins_sketched)
  for name in algorithms.names()
  if hasattr(module, name)
}
PRIVATE = {
  name: functools.partial(_run, name, twin)
  for name, twin in twins_private.TWINS.items()
}
