"""Fields that go with what a command line replaced in a config."""

from collections.abc import Collection, Mapping
from typing import Any

from fl_sketch import algorithms, codecs, models, sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.data import registry as datasets
from fl_sketch.experiment.config import checked, not_none
from fl_sketch.experiment.config_checks import OPTIMIZER_OPTIONS
from fl_sketch.local import optimizers

# Field -> the field with its options, and their registry.
_NAMED = {
  'dataset': ('dataset_options', datasets.REGISTRY),
  'model': ('model_options', models.REGISTRY),
  'algorithm': ('options', algorithms.REGISTRY),
}
_KINDS = {
  'sketch': sketches.REGISTRY,
  'codec': codecs.REGISTRY,
  'local_optimizer': optimizers.REGISTRY,
}
# Shared field -> the argument of an algorithm that takes it.
_TAKEN_AS = {
  'sketch': 'sketch', 'codec': 'codec', 'robust': 'robust', 'groups': 'robust',
  'server_optimizer': 'server_optimizer', 'final_server_lr': 'schedule',
}  # fmt: skip


@checked()
def switched(
  fields: Mapping[str, Any], given: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
  """Leaves out the options that another algorithm, sketch ... does not take.

  >>> fields = {'algorithm': 'fedavg', 'sketch': {'kind': 'srht', 'size': 9}}
  >>> switched(fields, ['algorithm'])[1]
  ['sketch']

  Args:
    fields: of a config, after the command line.
    given: the fields that the command line sets, nested ones with a dot. They
      are never left out: one that does not fit is refused later.

  Returns:
    The fields without those; and their names.

  Raises:
    ConfigError: there is no algorithm, sketch ... of that name.
  """
  fields = {k: _set(value) for k, value in fields.items()}
  left_out = []

  def leave_out(*path):
    name = '.'.join(path)
    holder = fields if len(path) == 1 else fields[path[0]]
    kept = any(g == name or g.startswith(f'{name}.') for g in given)
    if holder.get(path[-1]) is not None and not kept:
      holder[path[-1]] = None
      left_out.append(name)

  def keep_only(name, known):
    fields[name] = dict(fields.get(name) or {})
    for option in set(fields[name]) - {*known}:
      leave_out(name, option)

  for name, (options, registry) in _NAMED.items():
    if name in given:
      keep_only(options, registry.options(fields[name]))
  for name, registry in _KINDS.items():
    if f'{name}.kind' in given:
      known = registry.options(fields[name]['kind'])
      keep_only(name, {*known, 'kind', 'contract', 'keep'})
  if 'algorithm' in given:
    takes = algorithms.options(fields['algorithm'])
    for name, argument in _TAKEN_AS.items():
      if argument not in takes:
        leave_out(name)
    if not algorithms.takes_optimizer(fields['algorithm']):
      leave_out('local_optimizer')
  if {'algorithm', 'server_optimizer'} & {*given}:
    known = {*algorithms.options(fields.get('algorithm', 'fedavg'))}
    if (optimizer := fields.get('server_optimizer')) is not None:
      known |= {*server_optimizers.options_of(optimizer)}
    for name in {*OPTIMIZER_OPTIONS} - known:
      leave_out(name)
  return fields, sorted(left_out)


def _set(value):
  return not_none(value) if isinstance(value, Mapping) else value
