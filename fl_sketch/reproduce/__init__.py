"""The experiments of the papers, each with its claims and a verdict.

`song`, `das`, `haddadpour` and `chen` have the studies of each paper, which
`catalog` lists by name. A study is a function of a `lab.Lab`, which plays and
caches runs, and returns a `study.Report`; `results` writes what it leaves in
its folder, and `page` puts all studies on one HTML page.
"""

from fl_sketch.utils import lazy

__all__ = [
  'catalog', 'chen', 'das', 'haddadpour', 'lab', 'page', 'results', 'song',
  'study',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
