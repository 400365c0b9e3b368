"""Four workers: python four_workers.py PORT PROCESSES PROCESS_ID OUT."""

import pickle
import sys

from fl_sketch.distributed import multi_host

if __name__ == '__main__':
  port, count, process_id, out = sys.argv[1:]
  coordinator = f'127.0.0.1:{port}'
  multi_host.start(coordinator, int(count), int(process_id), workers=4)

  import compressor_cases as cases
  from fl_sketch import distributed
  import jax

  mesh = jax.make_mesh((4,), ('data',), (jax.sharding.AxisType.Auto,))
  drawn = jax.device_get(cases.gradients(2, 4))

  def steps(case):
    tx = cases.mean_over(case)
    state = distributed.init(tx, cases.PARAMS, mesh)
    specs = distributed.state_specs(tx, cases.PARAMS, mesh)
    update = lambda grads, state: tx.update(
      jax.tree.map(lambda g: g[0], grads), state, cases.PARAMS
    )
    fn = jax.jit(jax.shard_map(
      update, mesh=mesh, in_specs=(jax.P('data'), specs),
      out_specs=(jax.P(), specs), check_vma=False,
    ))  # fmt: skip
    found = []
    for i in range(2):
      rows = lambda worker, i=i: jax.tree.map(
        lambda g: g[i, worker][None], drawn
      )
      updates, state = fn(multi_host.batches(mesh, rows), state)
      found.append(jax.tree.map(lambda x: x.addressable_data(0), updates))
    return jax.device_get(found)

  results = {f'{case}': steps(case) for case in cases.CASES}
  with open(out, 'wb') as f:
    pickle.dump(results, f)
