"""Rows of the papers, S0 to S4; what covers each: marks, studies, `OTHERS`.

S0 Song et al. (arXiv:2210.08371), S1 Das et al. (2106.07094), S2 Haddadpour et
al. (2008.04975), S4 Chen et al. (2411.06770). A mark is written
`@pytest.mark.covers('ROW', 'ROW[PARAMETER, PARAMETER]')`.
"""

import ast
import pathlib

from papers import catalog

TESTS = pathlib.Path(__file__).parents[1]
ROWS = (
  """
S0-Eq1; S0-Asm3.1; S0-Alg1; S0-Alg1-mem; S0-Alg1-dec; S0-Alg1-lin; S0-Alg2 =
Alg3; S0-Alg2b; S0-ext; S0-w0; S0-D1; S0-D2; S0-D3; S0-D4; S0-D5; S0-D6; S0-D7;
S0-D8; S0-Def4.1/D9; S0-RemD10; S0-Thm4.2; S0-Tab1; S0-LemD11; S0-LemD12;
S0-LemD13; S0-LemD14; S0-LemD15; S0-LemD16, RemD17; S0-LemD18..22; S0-LemD23,24;
S0-LemD25,26; S0-LemD27; S0-LemD28; S0-B1..B8; S0-E1; S0-E2; S0-E3; S0-RemE4;
S0-DefF1, LemF2; S0-LemF3; S0-LemF4; S0-LemF5; S0-LemF6; S0-Thm5.3=F7;
S0-Cor5.4=F8; S0-KMR19; S0-Thm5.1=F9; S0-Cor5.2=F10; S0-LinRate; S0-G1, G2;
S0-H1; S0-H2; S0-H3; S0-H4; S0-H5, RemH10; S0-H6, H7; S0-H8; S0-6.1=H9;
S0-6.2=H11; S0-7.1; S0-7.2; S0-Def7.1/I7; S0-Def7.2/I4; S0-I2,I3; S0-I5;
S0-Def7.3/I6; S0-K1; S0-I8, I9; S0-Tab2; S0-J1..J3; S0-7.4=J4+J5; S0-7.5=L1;
S0-K2; S0-K3; S0-7.6=M3; S0-7.7=M4, M1, M2; S0-7.8; S0-def; S1-Eq1; S1-Def1;
S1-Def2; S1-Def3,4; S1-Def5; S1-Eq4; S1-Eq12; S1-Thm1; S1-Alg1; S1-Alg2;
S1-Alg3; S1-Thm2=Thm5; S1-Thm3; S1-Eq8; S1-Asm1; S1-Prop1; S1-Eq11;
S1-Thm4=Thm6; S1-Rem1, 5.1, Eq15-17; S1-Clow; S1-Lem1; S1-Lem2; S1-Lem3;
S1-Lem4; S1-Fact1-3; S1-Fig1; S1-Fig2; S1-Fig3; S1-Sec6; S1-Tab1; S1-AppG;
S2-Eq1; S2-Alg1; S2-Def1; S2-Alg2; S2-Prop1; S2-Rem2; S2-Def2, Asm1, Thm1;
S2-Def3; S2-Lem1; S2-Alg3; S2-Lem2; S2-Lem3; S2-Alg4; S2-Cor1, Rem4; S2-Alg5;
S2-Alg6; S2-Rem5,6; S2-Asm2-5; S2-Thm2 = Thm5-8; S2-Eq16, Rem7/Eq23; S2-Thm5;
S2-Cor4,5; S2-Thm6, Cor6; S2-Thm7; S2-Lem4-6; S2-Thm3 = Thm9; S2-Cor2,3;
S2-Tab1, Tab2; S2-6.4; S2-Base; S2-Fig1; S2-Fig2; S4-Alg1; S4-Alg2; S4-Rem3.1;
S4-Prop1-3; S4-Asm1,2; S4-Asm3; S4-Asm4, Def3.1; S4-Thm3.2; S4-Rem3.3; S4-Cor1;
S4-Cor2; S4-Lem3.3=B1; S4-Lem3.4=B2=C2; S4-Lem3.5; S4-Lem3.6; S4-Rem3.4;
S4-ThmB3, LemB4; S4-Lem4.1; S4-Lem4.2=C1; S4-Lem4.3, M1..M8; S4-Thm4.4; S4-Tab1;
S4-Base; S4-Fig1; S4-Fig2; S4-Fig3; S4-Fig4; S4-Fig5; S4-Fig6; S4-AppD; S4-Layer
""".strip()
  .replace('\n', ' ')
  .split('; ')
)
OTHERS = {  # commands, and modules with doctests
  'fl_sketch/accounting/gaussian.py': ['S0-H1'],
  'papers/haddadpour/statements/tables.py': ['S2-Tab1, Tab2'],
  'papers/song/statements/lemmas.py': ['S0-Eq1'],
  'python -m launch account --config=configs/fashion_dp.py': ['S1-Sec6'],
  'python -m launch attack --config=tanh_attack': ['S0-7.1', 'S0-7.2'],
  'python -m launch sweep --config=das_quadratics': ['S1-Fig1'],
  'python -m launch train --config=configs/fashion_dp.py': [
    'S1-Sec6', 'S1-AppG',
  ],
  'python -m launch train --config=configs/mnist_fedsketch.py': ['S2-Fig1'],
  'python -m launch train --config=configs/mnist_safl.py': ['S4-AppD'],
}  # fmt: skip


def marks() -> list[tuple[str, str]]:
  """Every row of a mark, and the test as FILE::NAME[PARAMETERS]."""
  pairs = []
  for path in sorted(TESTS.rglob('test_*.py')):
    for node in ast.parse(path.read_text(encoding='utf-8')).body:
      for mark in getattr(node, 'decorator_list', ()):
        if ast.unparse(mark).startswith('pytest.mark.covers('):
          for argument in map(ast.literal_eval, mark.args):
            row, bracket, parameters = argument.partition('[')
            name = f'{path.name}::{node.name}{bracket}{parameters}'
            pairs.append((row, name))
  return pairs


def coverage() -> dict[str, list[str]]:
  """Row -> all that covers it; rows that a mark alone names come last."""
  command = 'python -m launch reproduce'
  studies = [(s, f'{command} {s}') for s in catalog.STUDIES if s in ROWS]
  others = [(row, name) for name, rows in OTHERS.items() for row in rows]
  names = {row: [] for row in ROWS}
  for row, name in [*marks(), *others, *studies]:
    names.setdefault(row, []).append(name)
  return names
