"""Methods of `loaded.Run`: text of language models, and for transformers."""

from collections.abc import Sequence
import os
from typing import Any

from fl_sketch.models import pretrained
from fl_sketch.utils import checks, extras
import jax
import numpy as np


def tokenizer(run: Any) -> Any:
  """The vocabulary of texts, a `tokenizers.Tokenizer`; None without texts."""
  if (content := _content(run)) is None:
    return None
  with extras.needed('text'):
    import tokenizers
  return tokenizers.Tokenizer.from_str(content)


def generate(
  run: Any,
  prompt: str | Sequence[int],
  tokens: int = 100,
  *,
  temperature: float = 1.0,
  key: jax.Array | None = None,
  window: int | None = None,
) -> Any:
  """Draw tokens after a prompt, from softmax(logits / temperature).

  The prompt is a text, or ids of `tokenizer`; the result is of the same type.
  '[SEP]' ends a text. `tokens` are how many to draw; a temperature of 0 takes
  the most likely token. The default key is `jax.random.key(0)`. The model sees
  the last `window` tokens, by default the length of a training sample. Raises
  ValueError if the run has no vocabulary for a text, or the model does not
  predict tokens.
  """
  checks.at_least('temperature', temperature, 0)
  window = _length(run) if window is None else checks.count('window', window)
  coder, ids = tokenizer(run), prompt
  if isinstance(prompt, str):
    if coder is None:
      raise ValueError(
        f'{run.folder} has no vocabulary for {prompt=}; pass ids of tokens, or '
        'import the data again.'
      )
    ids = coder.encode(prompt, add_special_tokens=False).ids
  ids, end = [*map(int, ids)], coder and coder.token_to_id('[SEP]')
  key = jax.random.key(0) if key is None else key
  for i in range(checks.count('tokens', tokens)):
    seen = ids[-window:]
    x = np.array([seen + [0] * (window - len(seen))], np.int32)
    logits = run.apply(x)[0]
    size = logits.shape[-1] if logits.ndim == 2 else 0  # 0: one prediction
    if not (seen and 0 <= min(ids) <= max(ids) < size):
      raise ValueError(
        f'prompt={ids[:9]} must have ids below {size}, one at least, and the '
        'model must predict after every token.'
      )
    logits = logits[len(seen) - 1]
    if temperature:
      noise = jax.random.gumbel(jax.random.fold_in(key, i), logits.shape)
      logits = logits / temperature + np.asarray(noise)
    ids.append(int(logits.argmax()))
    if ids[-1] == end:
      break
  return coder.decode(ids) if isinstance(prompt, str) else ids


def export(run: Any, folder: str | os.PathLike) -> None:
  """Write a folder for transformers, adapters merged: `pretrained.export`."""
  params, model = run.merged(), run.experiment.model
  pretrained.export(folder, model, params, _length(run), _content(run))


def _content(run) -> str | None:
  path = run.folder / 'tokenizer.json'
  return path.read_text() if path.is_file() else run.experiment.tokenizer


def _length(run) -> int:
  return next(iter(run.experiment.data.values())).shape[-1]
