"""The experiments of the papers, each with its claims and a verdict.

`song`, `das`, `haddadpour` and `chen` have the studies of each paper,
`own_studies` those of this project; `catalog` lists all by name. A study is a
function of a `lab.Lab`, which plays and caches runs, and returns a
`study.Report`, whose claims `verdicts` judges. `results` writes what it leaves
in its folder, and `pages` makes Markdown of it.
"""

from fl_sketch.utils import lazy

__all__ = [
  'catalog', 'chen', 'das', 'haddadpour', 'lab', 'own_studies', 'pages',
  'results', 'song', 'study', 'verdicts',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
