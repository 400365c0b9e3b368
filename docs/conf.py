"""Sphinx configuration of the documentation site, built by `make docs`."""

import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from fl_sketch.utils import __version__  # noqa: E402
from generators import api, docstrings, links, mathml, papers, reference  # noqa: E402

project = 'fl_sketch'
author = 'The fl_sketch developers'
copyright = '2026, The fl_sketch developers'
release = version = __version__

extensions = [
  'myst_nb', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon', 'sphinx_copybutton',
]  # fmt: skip
# Remarks, which the pages of results show, and what other pages include.
exclude_patterns = ['results/*.md', 'generated/parts']
suppress_warnings = ['config.cache', 'mystnb.mime_priority']

html_theme = 'furo'
html_title = 'fl_sketch'
html_static_path = ['static']
html_css_files = ['site.css']
html_math_renderer = 'mathml'
html_show_sourcelink = False
smartquotes = False  # would change the -- of flags

myst_enable_extensions = ['colon_fence', 'dollarmath']
myst_heading_anchors = 4
nb_execution_mode = 'off'
# What a button copies: commands without prompts, no output of a notebook.
copybutton_prompt_text = r'>>> |\.\.\. |\$ '
copybutton_prompt_is_regexp = True
copybutton_selector = 'div:not(.output) > div.highlight pre'
nb_render_markdown_format = 'myst'

# `name` in a docstring is an object, a field or an argument: what is an object
# becomes a link. So a name without a target is no error, and -n is not used.
default_role = 'py:obj'
autodoc_typehints_format = 'short'
autodoc_preserve_defaults = True
add_module_names = False
napoleon_attr_annotations = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 76
toc_object_entries_show_parents = 'hide'
maximum_signature_line_length = 76
linkcheck_timeout = 30


def setup(app):
  """Generates the pages that come from code, before Sphinx looks for pages."""
  app.connect('builder-inited', _generate)
  app.connect('autodoc-process-docstring', docstrings.prepare, priority=400)
  app.connect('autodoc-skip-member', docstrings.skip)
  app.connect('missing-reference', docstrings.resolve)
  app.connect('doctree-resolved', links.add)
  mathml.setup(app)


def _generate(app):
  folder = HERE / 'generated'
  shutil.rmtree(folder, ignore_errors=True)
  for generator in (api, reference, papers):
    generator.write(folder)
  (folder / 'notebooks').mkdir()
  for notebook in (HERE.parent / 'notebooks').glob('*.ipynb'):
    shutil.copy(notebook, folder / 'notebooks')
