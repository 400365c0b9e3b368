"""Run a grid of gradient-leakage attacks.

  fl-sketch attack tanh_attack [--workdir=DIR]

Writes attacks.jsonl, table.md, figures, and Leakage-Operators.json (of images
Leakage-DATASET.json) with the error of every example. Started again with the
same workdir it resumes with the settings that are not finished.
"""

import dataclasses
import pathlib

from fl_sketch.runs import devices

from . import begin, configs, define_folders, neighbour

_ATTACKS = neighbour('papers.song.attacks')
results = neighbour('papers.common.results')
study = neighbour('papers.common.study')
workspace = neighbour('papers.common.workspace')

_CONFIG = configs.define_flag(parts=False)
_FLAGS = define_folders(unset='runs/attack_CONFIG')


def main(argv):
  """Run the attacks of a config and print their table."""
  begin(argv)
  folder = _FLAGS.workdir or configs.workdir('attack_')
  devices.start(cpu_devices=devices.cores())
  c = _ATTACKS.settings.AttackConfig.from_mapping(_CONFIG.value.to_dict())
  rows = _ATTACKS.campaign.run(c, folder, _FLAGS.data_dir)
  _write(c, rows, pathlib.Path(folder))
  print(_ATTACKS.report.table(rows))
  print('Table and pictures are in', folder)


def _write(config, rows, folder):
  layer = config.dataset == 'gaussian'
  name = f'Leakage-{"Operators" if layer else config.dataset}'
  title = 'Gradient leakage from tables of every operator'
  what = f'This project, {config.model} on {config.dataset}'
  if layer:
    m, d = config.inputs, config.inputs * config.outputs
    what = f'This project, one tanh layer: {m} unknowns, {d} parameters'

  def report(ws):
    ws.configs['attack'] = dataclasses.asdict(config)
    return _ATTACKS.report.result(config, rows)

  leakage = study.Study(name, title, what, report, 0)
  command = f'fl-sketch attack {"tanh" if layer else config.dataset}_attack'
  space = workspace.Workspace(folder)
  results.run(leakage, space, f'{command} --workdir=DIR')
