"""Formulas as MathML, which browsers show without a script or the network."""

import html
import re
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils import math
from docutils.utils.math import latex2mathml
from sphinx.util import logging

_NAMESPACE = 'http://www.w3.org/1998/Math/MathML'


def setup(app):
  """Registers the renderer 'mathml' of html_math_renderer."""
  ElementTree.register_namespace('', _NAMESPACE)
  displayed = lambda self, node: _append(self, node, as_block=True)
  app.add_html_math_renderer('mathml', (_append, None), (displayed, None))


def _append(self, node, as_block=False):
  """Appends a formula to a page; warns of LaTeX that docutils does not know."""
  try:
    formula = latex2mathml.tex2mathml(node.astext(), as_block=as_block)
    self.body.append(_mended(formula))
  except math.MathError as e:
    logging.getLogger(__name__).warning('%s', e, location=node)
  raise nodes.SkipNode


def _mended(formula: str) -> str:
  """Puts indices of accented letters beside them, not below; bars stay short.

  docutils has x with a hat and an index as one munderover, and lets the second
  bar of a norm stretch with its exponent.
  """
  named = re.compile(r'&(?!lt|gt|amp)\w+;')  # of HTML, which XML does not know
  root = ElementTree.fromstring(
    named.sub(lambda m: html.unescape(m[0]), formula)
  )
  for node in root.iter():
    if node.tag.endswith('munderover') and node[0].tag.endswith('}mi'):
      base, index, accent = node
      node.tag = f'{{{_NAMESPACE}}}msub'
      over = ElementTree.Element(f'{{{_NAMESPACE}}}mover', accent='true')
      over.extend([base, accent])
      node[:] = [over, index]
    elif node.tag.endswith('}mo') and node.text in ('‖', '|'):
      node.set('stretchy', 'false')
  return ElementTree.tostring(root, encoding='unicode')
