"""Host helpers that every other package may use.

`chacha20` draws from a secret key, `checks` validates numbers and `fields` the
fields of configs, `registry` finds factories by name and `plugins` loads those
of users, `renamed` reads old names, `digests` identifies arrays and source
files, `extras` names optional packages that are missing, `files` writes files
atomically, `lazy` loads modules on first use, `markdown` makes tables,
`progress` shows bars, `search` bisects monotone predicates, and `seeding`
derives NumPy generators from seeds.
None of them imports a sketch, a round or a config.
"""

from typing import TYPE_CHECKING

from fl_sketch.utils import lazy

if TYPE_CHECKING:
  from fl_sketch.utils import (
    chacha20,
    checks,
    digests,
    extras,
    fields,
    files,
    lazy,
    markdown,
    plugins,
    progress,
    registry,
    renamed,
    search,
    seeding,
  )

__version__ = '0.1.0'  # in the lowest layer, so that files can record it
__all__ = [
  'chacha20', 'checks', 'digests', 'extras', 'fields', 'files', 'lazy',
  'markdown', 'plugins', 'progress', 'registry', 'renamed', 'search',
  'seeding',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
