"""One of two processes: two_processes.py PORT PROCESS_ID OUT NAME ..."""

import pickle
import sys

from fl_sketch.runs import devices

if __name__ == '__main__':
  port, process_id, out, *names = sys.argv[1:]
  devices.start(
    cpu_devices=1,
    coordinator=f'127.0.0.1:{port}',
    num_processes=2,
    process_id=int(process_id),
  )

  import cases
  from fl_sketch import rounds
  from fl_sketch.rounds import comms, mesh as mesh_lib
  import jax

  def play(make):
    mesh = mesh_lib.cohort_mesh()
    round_fn = cases.jit(rounds.run_round(make, mesh))
    state = cases.start(make, mesh)
    rest = cases.KEY, *cases.secret(make)
    hp, rest = mesh_lib.place(mesh, (cases.HP, rest))
    for r in range(5):
      cohort = mesh_lib.place(
        mesh, cases.cohorts_of(make)(r), jax.P(comms.SHARD)
      )
      state, _ = round_fn(hp, state, cohort, *rest)
    return jax.device_get(state.params)

  results = {name: play(cases.FIRST[name].make) for name in names}
  with open(out, 'wb') as f:
    pickle.dump(results, f)
