"""Formulas as MathML, which browsers show without a script or the network."""

from docutils import nodes
from docutils.utils import math
from docutils.utils.math import latex2mathml
from sphinx.util import logging


def setup(app):
  """Registers the renderer 'mathml' of html_math_renderer."""
  displayed = lambda self, node: _append(self, node, as_block=True)
  app.add_html_math_renderer('mathml', (_append, None), (displayed, None))


def _append(self, node, as_block=False):
  """Appends a formula to a page; warns of LaTeX that docutils does not know."""
  try:
    formula = latex2mathml.tex2mathml(node.astext(), as_block=as_block)
  except math.MathError as e:
    logging.getLogger(__name__).warning('%s', e, location=node)
    formula = self.encode(node.astext())
  self.body.append(formula)
  raise nodes.SkipNode
