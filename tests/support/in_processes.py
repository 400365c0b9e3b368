"""in_processes.py PORT PROCESSES PROCESS_ID OUT [NAME ...]: a run's cases.

The algorithms of these names, a client's shard in each process, or without
names all compressors among four workers.
"""

import pickle
import sys

from fl_sketch.distributed import multi_host
import jax


def params(name):
  """Parameters after five rounds."""
  import cases
  from fl_sketch import rounds
  from fl_sketch.rounds import comms, mesh as mesh_lib

  make, mesh = cases.FIRST[name].make, mesh_lib.cohort_mesh()
  round_fn = cases.jit(rounds.run_round(make, mesh))
  state = cases.start(make, mesh)
  rest = cases.KEY, *cases.secret(make)
  hp, rest = mesh_lib.place(mesh, (cases.HP, rest))
  for r in range(5):
    cohort = mesh_lib.place(mesh, cases.cohorts_of(make)(r), jax.P(comms.SHARD))
    state, _ = round_fn(hp, state, cohort, *rest)
  return state.params


def updates(case):
  """The means of two steps."""
  import compressor_cases as cases
  from fl_sketch import distributed

  mesh = jax.make_mesh((4,), ('data',), (jax.sharding.AxisType.Auto,))
  tx, drawn = cases.mean_over(case), jax.device_get(cases.gradients(2, 4))
  state = distributed.init(tx, cases.PARAMS, mesh)
  specs = distributed.state_specs(tx, cases.PARAMS, mesh)
  one = lambda tree: jax.tree.map(lambda g: g[0], tree)
  fn = jax.jit(jax.shard_map(
    lambda grads, state: tx.update(one(grads), state, cases.PARAMS),
    mesh=mesh, in_specs=(jax.P('data'), specs), out_specs=(jax.P(), specs),
    check_vma=False,
  ))  # fmt: skip
  found = []
  for i in range(2):
    rows = lambda worker, i=i: jax.tree.map(lambda g: g[i, worker][None], drawn)
    means, state = fn(multi_host.batches(mesh, rows), state)
    found.append(jax.tree.map(lambda x: x.addressable_data(0), means))
  return found


if __name__ == '__main__':
  port, count, process_id, out, *names = sys.argv[1:]
  process = f'127.0.0.1:{port}', int(count), int(process_id)
  multi_host.start(*process, workers=2 if names else 4)
  if not names:
    import compressor_cases

    results = {f'{case}': updates(case) for case in compressor_cases.CASES}
  else:
    results = {name: params(name) for name in names}
  with open(out, 'wb') as f:
    pickle.dump(jax.device_get(results), f)
