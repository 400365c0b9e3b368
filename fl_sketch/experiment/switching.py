"""Fields that go with what a command line replaced in a config."""

from collections.abc import Collection, Mapping
import functools
from typing import Any

from fl_sketch import algorithms
from fl_sketch.algorithms import server_optimizers
from fl_sketch.experiment.config import checked
from fl_sketch.experiment.fields import method
from fl_sketch.experiment.fields.registries import CALLS, REGISTRIES, not_none

_OF_CALLS = 'kind', 'contract', 'keep_state'  # beside the options of a factory


@checked()
def switched(
  fields: Mapping[str, Any], given: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
  """Leaves out the options that another algorithm, sketch ... does not take.

  >>> fields = {'algorithm': 'fedavg', 'sketch': {'kind': 'srht', 'size': 9}}
  >>> switched(fields, ['algorithm'])[1]
  ['sketch']

  The fields `given` by the command line, nested ones with a dot, stay: one that
  does not fit is refused later, one that is 'none' is unset. Returns the fields
  without those, and without a sweep over them; and their names.

  Raises:
    ConfigError: there is no algorithm, sketch ... of that name, or a private
      config has public_metrics=none, which would publish all of them.
  """
  fields = {k: not_none(value) for k, value in fields.items()}
  _unset(fields, given)
  holders: dict[str, Any] = {'': fields, 'sweep.': fields.get('sweep') or {}}
  left_out = []
  within = lambda a, b: f'{a}.'.startswith(f'{b}.')
  # Of a field itself, a part of it, or what it is in.
  is_given = lambda x: any(within(g, x) or within(x, g) for g in given)

  def leave_out(*path):
    for start, holder in holders.items():
      name = start + '.'.join(path)
      for parent in path[:-1]:
        holder = holder.get(parent)
      held = isinstance(holder, dict) and holder.get(path[-1]) is not None
      if held and not is_given(name):
        holder[path[-1]] = None
        left_out.append(name)

  def keep_only(name, known):
    for several in [holder.get(name) for holder in holders.values()]:
      # A sweep may have whole sketches instead, which name their kinds.
      for option in {*several} - {*known} if isinstance(several, dict) else ():
        leave_out(name, option)

  for field, (named_by, parts) in REGISTRIES.items():
    if named_by in given or (field in CALLS and field in given):
      name: Any = fields
      for part in named_by.split('.'):
        name = name and name.get(part)
      if name is None:  # unset
        leave_out(field)
      else:
        own = _OF_CALLS if field in CALLS else ()
        keep_only(field, {*parts.options(name), *own})
  if 'algorithm' in given:
    takes = algorithms.options(fields['algorithm'])
    for name, argument in method.TAKEN_AS.items():
      if argument not in takes:
        leave_out(name)
    for name, supports in method.STEP_OPTIONS.items():
      if not supports(fields['algorithm']):
        leave_out(name)
  if {'algorithm', 'server_optimizer'} & {*given}:
    known = {*algorithms.options(fields.get('algorithm', 'fedavg'))}
    if (optimizer := fields.get('server_optimizer')) is not None:
      known |= {*server_optimizers.options_of(optimizer)}
    for name in {*method.OPTIMIZER_OPTIONS} - known:
      leave_out(name)
  return fields, sorted(left_out)


def _unset(fields: dict[str, Any], given: Collection[str]):
  """Sets to None what is given as `none`, as a text or a tuple."""
  holders = fields, fields.get('sweep') or {}
  noise = 'epsilon', 'noise_multiplier'
  is_private = any(h.get(k) is not None for h in holders for k in noise)
  for path in given:
    *parents, name = path.split('.')
    holder = functools.reduce(lambda x, k: x.get(k) or {}, parents, fields)
    if f'{holder.get(name)}' in ('none', "('none',)"):
      holder[name] = None
    if name == 'public_metrics' and holder.get(name) is None and is_private:
      raise ValueError(
        f"{path}=none: the value 'none' is now called 'hidden'. Set hidden, or "
        'all to publish statistics without noise.'
      )
