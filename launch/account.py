"""Print the privacy guarantee of a config without training.

  fl-sketch account CONFIG [--workdir=DIR] [--audit=canaries|one_run]

Prints the privacy statement of a run (ignoring its sweep) and epsilon over the
rounds; writes privacy.json into a workdir. --audit=canaries attacks the
mechanism by many rounds of the config's algorithm on a small model.
--audit=one_run trains the config once with --canaries=1000 canary clients in
its population.
"""

import pathlib

from fl_sketch import runs
from fl_sketch.accounting import types
from fl_sketch.runs import audit, config, devices, one_run_audit
from fl_sketch.utils import files
import numpy as np

from . import begin, configs, define, define_folders

configs.define_flag()
define_folders()


_FLAGS = define(
  audit=(str, 'Attack the mechanism by canaries in many small runs, or in one.',
    ['canaries', 'one_run']),
  canaries=(1000, 'Number of canary clients of --audit=one_run.', None),
  samples=(5000, 'Audit runs with the canary, and as many without it.', None),
)  # fmt: skip


def main(argv):
  """Print the account of a config, and its audit with --audit."""
  begin(argv)
  devices.start()
  folder = None if _FLAGS.workdir is None else pathlib.Path(_FLAGS.workdir)
  c = config.Config.from_mapping(configs.fields() | {'sweep': None})
  guarantee = runs.account(c, _FLAGS.data_dir)
  even = np.linspace(1, c.rounds, min(c.rounds, 21)).round()
  counts = np.unique(even).astype(int).tolist()
  epsilons = dict(zip(counts, guarantee.epsilons(counts), strict=True))
  print(guarantee.statement.sentence())
  noise = f'noise_multiplier {guarantee.stated_multiplier:.6g}'
  print(f'{noise}\n\nrounds  epsilon at delta {guarantee.statement.delta:g}')
  print(*(f'{r:6d}  {e:.4f}' for r, e in epsilons.items()), sep='\n')
  if folder is not None:
    folder.mkdir(parents=True, exist_ok=True)
    report = {'epsilons': types.plain(epsilons)} | guarantee.statement.as_dict()
    files.write(folder / 'privacy.json', report)
  if _FLAGS.audit is None:
    return
  if _FLAGS.audit == 'canaries':
    options = {'samples': _FLAGS.samples, 'data': _FLAGS.data_dir}
    result = audit.audit_config(c, **options)
  else:
    options = {'canaries': _FLAGS.canaries, 'data': _FLAGS.data_dir}
    game = one_run_audit.prepare(c, **options)
    print(game.text(), flush=True)
    result = one_run_audit.play(game, progress=True)
  print(result.text())
