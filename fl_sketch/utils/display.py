"""Shows objects as one line of text, and in notebooks as a table."""

from collections.abc import Callable
import dataclasses
import html
from typing import Any, TypeVar

from jax import core
import numpy as np

T = TypeVar('T')
_SCORES = 'test_accuracy', 'test_loss', 'train_loss'  # the first one is drawn
_OF_ROW = 'round', *_SCORES, 'total_uplink_bytes', 'total_downlink_bytes'


def shown(*paths: str) -> Callable[[type[T]], type[T]]:
  """Decorates a class: `repr` is a line of facts, `_repr_html_` their table.

  They are attributes, by their paths: None is left out, and a function of a
  number of coordinates is called with a million. Without paths they are the
  fields of a dataclass that differ from their defaults, as Python. Of an
  attribute `metrics`, see `reporting.as_array`, the last row is a part of them,
  and the test metric a curve.

  >>> shown('real', 'absent.name')(type('Number', (int,), {}))(3)
  Number(real=3)
  """

  def facts(self) -> dict[str, str]:
    rows, found = _rows(self), {}
    for field in () if paths else dataclasses.fields(self):
      value = getattr(self, field.name)
      if value not in (field.default, []):  # as JSON has an empty tuple
        found[field.name] = repr(value)
    for path in paths:
      name, value = path.rpartition('.')[2], self
      for part in path.split('.'):
        value = getattr(value, part, None)
      if callable(value):
        name, value = f'{name}_at_1e6', value(10**6)
      found[name] = value
    found |= {name: rows[name][-1] for name in _OF_ROW if name in rows}
    return {k: _text(v) for k, v in found.items() if v is not None}

  def line(self) -> str:
    told = ', '.join(f'{k}={v}' for k, v in facts(self).items())
    return f'{type(self).__name__}({told})'

  def table(self) -> str:
    cells = [(k, html.escape(v)) for k, v in facts(self).items()]
    body = ''.join(f'<tr><th>{k}</th><td>{v}</td></tr>' for k, v in cells)
    title = f'<caption>{type(self).__name__}</caption>'
    return f'<table>{title}{body}</table>{_curve(_rows(self))}'

  def decorate(cls: type[T]) -> type[T]:
    for name, method in {'__repr__': line, '_repr_html_': table}.items():
      setattr(cls, name, method)
    return cls

  return decorate


def _rows(shown: Any) -> dict[str, np.ndarray]:
  """The finite values of each metric."""
  rows = getattr(shown, 'metrics', None)
  if rows is None:
    return {}
  columns = {name: rows[name] for name in rows.dtype.names}
  finite = {k: x[np.isfinite(x)] for k, x in columns.items()}
  return {k: x for k, x in finite.items() if len(x)}


def _text(value: Any) -> str:
  """One line; four digits of a float."""
  if hasattr(value, 'item') and not isinstance(value, core.Tracer):
    value = value.item() if value.size == 1 else f'{value.dtype}{value.shape}'
  return f'{value:.4g}' if isinstance(value, float) else f'{value}'


def _curve(rows: dict[str, np.ndarray]) -> str:
  """A line of SVG, below its metric with the first and the last value."""
  name = next((x for x in _SCORES if len(rows.get(x, ())) > 1), None)
  if name is None:
    return ''
  y = rows[name]
  x, up = np.linspace(4, 236, len(y)), 52 / (np.ptp(y) or 1)
  places = zip(x, 56 - (y - y.min()) * up, strict=True)
  points = ' '.join(f'{a:.1f},{b:.1f}' for a, b in places)
  return (
    f'<div>{name}: {y[0]:.4g} to {y[-1]:.4g}</div><svg width="240" height="60">'
    f'<polyline points="{points}" fill="none" stroke="#0072B2" '
    'stroke-width="2"/></svg>'
  )
