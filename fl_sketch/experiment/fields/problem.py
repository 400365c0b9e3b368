"""The fields of the problem."""

from collections.abc import Mapping
import dataclasses
import os
from typing import Annotated, Any

from fl_sketch import models
from fl_sketch.data import sources, text
from fl_sketch.experiment.fields import run
from fl_sketch.models import losses, precision
from fl_sketch.utils import fields as f

_is_file = lambda path: os.path.isfile(os.path.expanduser(path))
_File = Annotated[str, f.Rule('a file that is there', _is_file)]


@dataclasses.dataclass(frozen=True)
class ProblemFields(run.RunFields):
  """The problem: data set, model and loss."""

  # digits, mnist, fashion_mnist, cifar10, cifar100, sst2, text, quadratics,
  # simulated, store; or a registered one
  dataset: str = 'digits'
  dataset_options: Mapping[str, Any] | None = None  # by name
  train_slice: f.Slice | None = None  # '0:10000': only these training samples
  # only these test samples; does not apply to what clients of a store hold out
  test_slice: f.Slice | None = None
  model: str = 'mlp'  # one of models.names()
  model_options: Mapping[str, Any] | None = None  # by name
  pretrained: _File | None = None  # safetensors file of the initial parameters
  # kind and options of the adapters that are trained; all else is frozen
  lora: Mapping[str, Any] | None = None
  loss: str = 'cross_entropy'  # one of losses.names()
  label_smoothing: f.Share = 0.0  # of cross_entropy
  standardize: bool = True  # False: pixels from 0 to 1, not standardized
  # bfloat16: parameters and sums stay float32
  compute_dtype: Annotated[str, f.choice(precision.DTYPES)] = 'float32'

  def check(self):
    """Checks data set, model and loss against each other."""
    super().check()
    self.refuse(
      (self.label_smoothing and self.loss != 'cross_entropy',
       "{label_smoothing} requires loss='cross_entropy', not {loss}."),
      (self.pretrained is not None and self.dataset == 'quadratics',
       '{pretrained} has no effect on {dataset}, which has no model; remove '
       'pretrained.'),
      (self.dataset in sources.NAMES and self.model in models.OF_TOKENS,
       '{model} takes tokens, but {dataset} has images; use another model, or '
       f'dataset in {text.NAMES}.'),
    )  # fmt: skip
    if self.dataset in text.NAMES:
      self._check_text()
    if self.model in models.OF_SEQUENCES:
      last = (self.model_options or {}).get('last', False)
      kind = 'cross_entropy' if last else 'tokens'
      self.refuse(
        (last and self.dataset in text.NAMES,
         '{model_options} gives one output a sequence, but {dataset} has '
         'labels of every token; remove last.'),
        (self.loss in losses.OF_LABELS and self.loss != kind,
         f'{{loss}} does not suit {{model}}; set loss={kind!r}.'),
      )  # fmt: skip

  def _check_text(self):
    options = self.dataset_options or {}
    numbered = {'tokenizer', 'letters'} & options.keys()
    numbered = numbered or 'vocab_size' in (self.model_options or {})
    self.refuse(
      ({'vocabulary', 'tokenizer'} <= options.keys(),
       '{dataset_options} has vocabulary and tokenizer; set one of them.'),
      (self.pretrained is not None and not numbered,
       "{pretrained} requires its words' dataset_options.tokenizer, or "
       'model_options.vocab_size for a vocabulary made of the data.'),
      (self.model in models.OF_IMAGES,
       '{model} takes images, but {dataset} has tokens; use a model of tokens.'
       ),
      (self.dataset == 'sst2' and self.model in models.OF_SEQUENCES,
       '{model} predicts tokens, but {dataset} has one label a sentence; use '
       'a bert.'),
    )  # fmt: skip
