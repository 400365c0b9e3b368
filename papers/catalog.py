"""Every study by its name, in the order of the papers.

The catalogue is complete: a new study replaces one that tells less.
"""

from collections.abc import Callable
import pathlib

from fl_sketch.utils import fields

from .chen.studies import (
  choices,
  dimensions,
  panels,
  rivals,
  spectra,
  tables,
  widths,
)
from .common import results, study
from .common.workspace import Workspace
from .compressors import (
  delayed,
  downlink,
  federations,
  growth,
  precision,
  workers,
)
from .das.studies import images, quadratics, remark, table
from .haddadpour.studies import (
  figures as haddadpour,
  privacy,
  sampled,
  tables as floats,
)
from .language import report as language
from .private import studies as private_studies
from .song.studies import (
  data as song_data,
  extensions as song_extensions,
  figures as song,
  leaks,
  tables as song_tables,
  totals as song_totals,
)

_Row = tuple[str, str, str, Callable[[Workspace], study.Report], float]


def _of(paper: str, *rows: _Row) -> list[study.Study]:
  """The studies of a paper: name, title, place in it, run, minutes."""
  return [
    study.Study(name, title, f'{paper}, {place}', run, minutes)
    for name, title, place, run, minutes in rows
  ]


_SONG = _of(
  'Song, Wang, Yu, Zhang, arXiv:2210.08371',
  ('S0-Abs1', 'Bytes to a loss on images, with a sketch and without',
   'abstract', song_data.communication, 19),
  ('S0-X1', 'Table 1: constants of the operators, printed, exact, measured',
   'Table 1', song_tables.table_1, 2),
  ('S0-Bounds', 'Convergence against the bounds, K = 1 and K > 1',
   'sections 5, E, F and G', song.rates, 3),
  ('S0-NoExtra', 'Total communication with a sketch and without',
   'sections 5 and 8', song_totals.communication, 3),
  ('S0-Ext', 'Momentum, minibatches and local SGD with a sketch and without',
   'section 8', song_extensions.extensions, 2),
  ('S0-DPcost', 'What the noise of Algorithm 2 costs',
   'Algorithm 2, section 6', song.privacy, 5),
  ('S0-NoHarder', 'Gradient leakage from tables of every operator',
   'introduction, section 7', leaks.operators, 3),
  ('S0-Images', 'Images from gradients, tables and tables with noise',
   'section 7', leaks.images, 10),
)  # fmt: skip
_DAS = _of(
  'Das, Hashemi, Sanghavi, Dhillon, arXiv:2106.07094',
  ('S1-Rem1', 'Clipping against normalising over starts, clients and rounds',
   'Remark 1', remark.remark_1, 12),
  ('S1-Fig1', 'Clipping against normalising on quadratics: loss',
   'Figure 1', quadratics.figure_1, 20),
  ('S1-Far', 'Clipping against normalising from a near and a far start',
   'Figure 1 and Remark 1', quadratics.starts, 20),
  ('S1-Fig2', 'Clipping against normalising on quadratics: signal over noise',
   'Figure 2', quadratics.figure_2, 3),
  ('S1-Fig3', 'Clipping against normalising on quadratics: trajectories',
   'Figure 3', quadratics.figure_3, 1),
  ('S1-Sec6', 'Clipping against normalising on images: setting, noise and grid',
   'section 6 and appendix G', images.section_6, 6),
  ('S1-Tab1a', 'Clipping against normalising on Fashion-MNIST: the whole grid',
   'Table 1 (a)', table.table_1a, 240),
  ('S1-Tab1', 'Clipping against normalising on images: test accuracy',
   'Table 1', images.table_1, 20),
)  # fmt: skip
_FEDSKETCH = _of(
  'Haddadpour, Karimi, Li, Li, arXiv:2008.04975',
  ('S2-Fig1', 'FedSKETCH on MNIST, IID clients', 'Figure 1',
   haddadpour.figure_1, 75),
  ('S2-Fig2', 'FedSKETCHGATE on MNIST, clients of one or two classes',
   'Figure 2', haddadpour.figure_2, 110),
)  # fmt: skip
_HADDADPOUR = _of(
  'Haddadpour et al., arXiv:2008.04975',
  ('S2-Tab1', 'Floats for an accuracy, clients that are alike',
   'Table 1', floats.table_1, 0.1),
  ('S2-Tab2', 'Floats for an accuracy, clients that are not alike',
   'Table 2', floats.table_2, 0.1),
  ('S2-Privacy', 'What tables of FedSKETCH hide of images, and lose of updates',
   'Theorem 1, Corollary 1', privacy.privacy, 10),
  ('S2-Sampled', 'FedSKETCHGATE with sampled clients beside Theorem 3',
   'section 5.2', sampled.sampled, 3),
)  # fmt: skip
_CHEN = _of(
  'Chen, Li, Banerjee, arXiv:2411.06770',
  ('S4-LogD', 'Rounds of SAFL against the dimension at one size of tables',
   'abstract, Theorem 3.2', dimensions.headline, 100),
  ('S4-LogD-Rate', 'Rounds of SAFL against the dimension at one rate for all',
   'abstract, Theorem 3.2', dimensions.one_rate, 5),
  ('S4-Rivals-LogD', 'Rounds of methods with error feedback against the '
   'dimension', 'introduction, Table 1', rivals.growth, 7),
  ('S4-Choices', 'Servers, operators, local steps and printed rates of SAFL',
   'section 3.1, Remarks 3.1 and 3.3, appendix D', choices.choices, 8),
  ('S4-Widths', 'The Hessian of networks of several widths, under SAFL',
   'Definition 3.1, Figures 4 and 5', widths.spectra, 25),
  ('S4-Fig3', 'An encoder on SST-2: methods at equal bytes, and sizes of '
   'tables', 'Figure 3', panels.figure_3, 125),
  ('S4-Encoder', 'An encoder on SST-2: tables down to 20 numbers',
   'Figure 6', panels.encoder_sizes, 30),
  ('S4-ResNet', 'ResNet on CIFAR-10: methods at equal bytes, tables down to 20 '
   'numbers', 'Figures 1 and 6', panels.resnet, 130),
  ('S4-ViT', 'Fine-tuning a transformer on CIFAR-10: methods at equal bytes',
   'Figure 2', panels.transformer, 150),
  ('S4-Fig4', 'The largest eigenvalues of the Hessian follow a power law',
   'Figure 4', spectra.power_law, 6),
  ('S4-Fig5', "The Hessian's spectrum over training: nearly all of it is near "
   'zero', 'Figure 5', spectra.densities, 6),
  ('S4-Tab1', 'Table 1: bits, rates and convergence of six methods',
   'Table 1', tables.table_1, 0.1),
)  # fmt: skip
_PROJECT = _of(
  'This project',
  ('Federated-Clothes', 'Methods without residuals on clients, by bytes',
   'Fashion-MNIST, 500 clients', federations.clothes, 200),
  ('Federated-Digits', 'Methods without residuals on clients, by bytes',
   'MNIST, 100 clients', federations.digits, 250),
  ('Federated-Downlink', 'A rival with a compressed way back; FetchSGD again',
   'Fashion-MNIST and MNIST', downlink.downlink, 60),
  ('Workers-Characters', 'Methods of few workers, by bytes',
   'decoder of tiny Shakespeare, four workers', workers.characters, 350),
  ('Growth', 'The gap to dense training over sizes, workers, steps and bits',
   'decoders of tiny Shakespeare', growth.growth, 200),
  ('Delayed-Steps', 'Outer steps of two workers that are applied late',
   'decoder of tiny Shakespeare', delayed.delayed, 40),
  ('Language-Scratch', 'Compressors on a decoder of characters, from scratch',
   'a decoder of plays, by speaker', language.scratch, 180),
  ('Language-LoRA', 'Compressors of factors: a decoder adapted to other plays',
   'a decoder of plays, by speaker', language.adapting, 90),
  ('Language-Recurrent', 'A GRU by speakers reaches the loss of one trainer',
   'a GRU of plays, by speaker', language.recurrent, 90),
  ('Digits-Precision', 'Tables in fewer bits', 'SAFL on the digits',
   precision.precisions, 4),
  ('Private-Bits', 'Tables of one bit under differential privacy',
   'SAFL on the digits', private_studies.few_bits, 25),
  ('Correlated-Noise', 'Noise that is correlated over rounds',
   'linear models', private_studies.correlated_noise, 70),
)  # fmt: skip
_ALL = [*_SONG, *_DAS, *_FEDSKETCH, *_HADDADPOUR, *_CHEN, *_PROJECT]
STUDIES: dict[str, study.Study] = {s.name: s for s in _ALL}


def stored_results() -> list[tuple[results.Result, pathlib.Path]]:
  """The results in docs/results: of the studies, then of other programs."""
  others = sorted({path.stem for path in results.STORED.glob('*.json')})
  names = dict.fromkeys([*STUDIES, *others])
  return results.collect([results.STORED], names)


def find(name: str) -> study.Study:
  """Return the study of this name; ValueError has the nearest name."""
  if name not in STUDIES:
    hint = fields.did_you_mean(name, STUDIES)
    raise ValueError(f'There is no study {name!r}; --list shows all.{hint}')
  return STUDIES[name]
