"""Links from the names of functions and packages in guides to the API."""

import re

from docutils import nodes
import fl_sketch
from sphinx.util import nodes as sphinx_nodes

from generators import docstrings

_NAME = re.compile(r'(\w+(?:\.\w+)*)(?:\(.*\))?')


def add(app, doctree, docname: str):
  """Handler of doctree-resolved: the first `name` on a page becomes a link.

  A name begins with fl_sketch or with a package of it, as `rounds.init`.
  """
  if not docname.startswith(('guides/', 'concepts/')):
    return
  seen = set()
  for node in [*doctree.findall(nodes.literal)]:
    found = _NAME.fullmatch(node.astext())
    if not found or isinstance(node.parent, (nodes.reference, nodes.title)):
      continue
    first, *rest = found[1].split('.')
    if first in fl_sketch.__all__ and rest:
      rest = [first, *rest]
    elif first != 'fl_sketch' or not rest:
      continue
    objects = app.env.domains.python_domain.objects
    name = docstrings.full_name('fl_sketch', '.'.join(rest))
    if name in objects and name not in seen:
      seen.add(name)
      entry = objects[name]
      link = sphinx_nodes.make_refnode(
        app.builder, docname, entry.docname, entry.node_id, node.deepcopy()
      )
      node.replace_self(link)
