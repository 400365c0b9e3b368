"""Registries of factories by name, which users extend."""

import ast
from collections.abc import Callable, Collection, Mapping
import copy
import inspect
import pathlib
import sys
import types
from typing import Any, Generic, NamedTuple, TypeVar

from fl_sketch.utils import fields

E = TypeVar('E', bound=Any)
KIND = 'kind'  # in a config, the option that names the factory
_ROOT = pathlib.Path(__file__).parents[1]  # of the package
FILES: set[str] = set()  # that have registered a factory
_BY_NAME = 'KEYWORD_ONLY', 'POSITIONAL_OR_KEYWORD'
Parameters = Mapping[str, inspect.Parameter]


class Factory(NamedTuple):
  """The usual entry of a factory."""

  factory: Callable[..., Any]  # (**options) -> the part
  hyper: tuple[str, ...] = ()  # options: arrays, which one program can vary


class Registry(Generic[E]):
  """Factories of one kind by name.

  >>> shapes = Registry('shape')
  >>> @shapes.register
  ... def square(side=1.0):
  ...   return side * side
  >>> shapes.make('square', side=3.0)
  9.0

  Args:
    kind: of the parts that the factories make, for messages.
    entry: (factory, **marks) -> the entry, which has the factory.
    context: arguments that the caller supplies; they are not options.
    leading: number of first arguments that the caller supplies.
    shared: options of every part, with defaults, that the factories lack.
    reserved: further names that no option may have.
  """

  def __init__(
    self,
    kind: str,
    entry: Callable[..., E] = Factory,
    *,
    context: Collection[str] = (),
    leading: int = 0,
    shared: Mapping[str, Any] = types.MappingProxyType({}),
    reserved: Collection[str] = (),
  ):
    self.kind, self.context, self.shared = kind, tuple(context), shared
    self._entry, self._leading = entry, leading
    self._reserved = {KIND, *shared, *reserved} - {*context}
    self._entries: dict[str, E] = {}

  def register(
    self,
    factory: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    **marks: Any,
  ) -> Any:
    """Add a factory by its `__name__`, or `name`; also a decorator.

    `marks` are fields of its entry. A module may replace its own factories.
    """
    if factory is None:
      return lambda factory: self.register(factory, name=name, **marks)
    name, entry = name or factory.__name__, self._entry(factory, **marks)
    if name in self._entries:
      old, new = map(_origin, (self._entries[name].factory, factory))
      if new != old:
        raise ValueError(
          f'{self.kind} {name!r} is {old}; register {new} under another name.'
        )
    if bad := sorted(self._arguments(factory).keys() & self._reserved):
      raise ValueError(f'{name!r} has reserved names of options {bad}; rename.')
    self._entries[name] = entry
    FILES.add(source_of(factory))
    return factory

  def is_own(self, name: str) -> bool:
    """Return whether a factory is of a file outside fl_sketch."""
    path = pathlib.Path(source_of(self.entry(name).factory))
    return not path.is_relative_to(_ROOT)

  def names(self) -> tuple[str, ...]:
    """Return the names of all factories, in the order of their registration."""
    return tuple(self._entries)

  def called(self, kind: str) -> 'Registry[E]':
    """Return a registry of the same factories with another kind."""
    other = copy.copy(self)
    other.kind = kind
    return other

  def entry(self, name: str) -> E:
    """Return the entry of a factory; ValueError if there is none."""
    if not (isinstance(name, str) and name in self._entries):
      hint = fields.did_you_mean(name, self._entries)
      raise ValueError(
        f'{self.kind}={fields.shown(name)} must be one of '
        f'{fields.listed(name, self._entries)}.{hint}'
      )
    return self._entries[name]

  def arguments(self, name: str) -> Parameters:
    """Return the named arguments of a factory, context included."""
    return self._arguments(self.entry(name).factory)

  def _arguments(self, factory: Any) -> dict[str, inspect.Parameter]:
    skipped = self._leading
    if inspect.isclass(factory):  # some metaclasses hide its arguments
      factory, skipped = factory.__init__, skipped + 1
    try:  # annotations of a module may be strings
      signature = inspect.signature(factory, eval_str=True)
    except NameError:
      signature = inspect.signature(factory)
    parameters = list(signature.parameters.items())[skipped:]
    return {k: p for k, p in parameters if p.kind.name in _BY_NAME}

  def options(self, name: str) -> Parameters:
    """Return the options that a config can give to a factory."""
    arguments = self.arguments(name)
    return {k: p for k, p in arguments.items() if k not in self.context}

  def required(self, name: str) -> list[str]:
    """Return the options that have no default."""
    return _required(self.options(name))

  def types(self) -> dict[str, type]:
    """Return the options of all factories, with the types of their flags."""
    kinds = {option: type(value) for option, value in self.shared.items()}
    for name in self._entries:
      for option, p in self.options(name).items():
        kind = fields.plain_type(_hint(p))
        kinds[option] = kind if kinds.get(option, kind) is kind else object
    return kinds

  def call(self, name: str, *, context: bool = False) -> str:
    """Return the call of a factory with its options, or all its arguments."""
    parameters = self.arguments(name) if context else self.options(name)
    texts = [
      k
      if p.default is p.empty
      else f'{k}={getattr(p.default, "__name__", repr(p.default))}'
      for k, p in parameters.items()
    ]
    texts += [f'{k}={value!r}' for k, value in self.shared.items()]
    return f'{name}({", ".join(texts)})'

  def describe(self, name: str, *, context: bool = False) -> str:
    """Return the call of a factory, see `call`, and its docstring."""
    text = inspect.getdoc(_whole(self.entry(name).factory)) or ''
    return f'{self.call(name, context=context)}\n\n{text}'.rstrip()

  def check(
    self, name: str, options: Mapping[str, Any], *, context: bool = False
  ) -> None:
    """Raise ValueError, which names the option, if options do not fit."""
    part = f'{self.kind} {name!r}'
    parameters = self.arguments(name) if context else self.options(name)
    if unknown := [option for option in options if option not in parameters]:
      hint = fields.did_you_mean(unknown[0], parameters)
      raise ValueError(
        f'{part} has no options {fields.shown(unknown)}; it has '
        f'{fields.listed(unknown[0], parameters)}.{hint}'
      )
    if missing := [k for k in _required(parameters) if k not in options]:
      raise ValueError(f'{part} requires options {missing}; set them.')
    for option, value in options.items():
      # A text as the default of the context does not exclude an object.
      parameter = parameters[option]
      of_context = option in self.context
      hint = parameter.annotation if of_context else _hint(parameter)
      fields.check_option(f'{part}: {option}', value, hint)

  def make(self, name: str, /, **arguments: Any) -> Any:
    """Check the options and call the factory, with the context it takes."""
    options = {k: v for k, v in arguments.items() if k not in self.context}
    self.check(name, options)
    taken = self.arguments(name)
    arguments = {k: v for k, v in arguments.items() if k in taken}
    return self.entry(name).factory(**arguments)


def parse_call(text: str, field: str = '') -> dict[str, Any]:
  """Parse NAME or NAME(OPTION=VALUE, ...); ValueError, of the field, of others.

  >>> parse_call('count_sketch(rows=5, cols=60)')
  {'kind': 'count_sketch', 'rows': 5, 'cols': 60}
  """
  try:
    node = ast.parse(text.strip(), mode='eval').body
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    names = [k.arg for k in call.keywords]
    options = {f'{k.arg}': ast.literal_eval(k.value) for k in call.keywords}
    are_options = {None, KIND}.isdisjoint(names) and len(options) == len(names)
    if isinstance(call.func, ast.Name) and not call.args and are_options:
      return {KIND: call.func.id} | options
  except (SyntaxError, ValueError):
    pass
  named = f'{field}={fields.shown(text)}' if field else fields.shown(text)
  raise ValueError(f'{named} must be NAME or NAME(OPTION=VALUE, ...).')


def _required(parameters: Parameters) -> list[str]:
  return [k for k, p in parameters.items() if p.default is p.empty]


def _hint(p: inspect.Parameter) -> Any:
  """Return an annotation, or the type of the default if it says more."""
  hint = Any if isinstance(p.annotation, str) else p.annotation
  if p.annotation is not p.empty and fields.plain_type(hint) is not object:
    return hint
  if p.default is p.empty or p.default is None:
    return Any
  kind = type(p.default)
  return tuple | list if kind is tuple else kind  # config.json has lists


def source_of(factory: Any) -> str:
  """Return the file that defines a factory, or the name of its module."""
  name = _whole(factory).__module__
  return getattr(sys.modules.get(name), '__file__', None) or name


def _origin(factory: Any) -> str:
  return f'{_whole(factory).__qualname__} of {source_of(factory)}'


def _whole(factory: Any) -> Any:
  """Return the function of a partial, or the factory as it is."""
  return getattr(factory, 'func', factory)
