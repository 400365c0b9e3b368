"""Writes all studies as one HTML page, its pictures inside."""

import base64
from collections.abc import Mapping, Sequence
import html
import json
import pathlib

from fl_sketch.reproduce import results, study as study_lib
from fl_sketch.utils import files

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; }
h2 { border-top: 1px solid var(--line); padding-top: 1.5rem; }
table { border-collapse: collapse; font-size: .85rem; margin: .8rem 0; }
caption { text-align: left; font-style: italic; padding-bottom: .3rem; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem;
  text-align: left; vertical-align: top; }
.wide { overflow-x: auto; }
img { max-width: 100%; background: white; border-radius: 4px; }
figure { margin: 1rem 0; } figcaption { font-size: .85rem; }
code, pre { font-size: .85rem; background: var(--soft); border-radius: 4px; }
pre { padding: .6rem; overflow-x: auto; max-height: 30rem; }
.holds { color: #1a7f37; } .fails { color: #cf222e; } .open { color: #9a6700; }
.verdict { font-weight: 600; white-space: nowrap; }
"""
_CLASSES = {
  study_lib.HOLDS: 'holds',
  study_lib.FAILS: 'fails',
  study_lib.UNTESTABLE: 'open',
}


def write(
  path: pathlib.Path,
  entries: Sequence[tuple[results.Result, pathlib.Path]],
  missing: Mapping[str, str] | None = None,
):
  """Writes the page of results.

  Args:
    path: of the page.
    entries: results, each with the folder of its pictures, in the order of
      the page, as `results.collect` has them.
    missing: study -> why it has no result, for those that were tried.
  """
  body = [
    '<h1>fl_sketch: figures and tables of the papers</h1>',
    f'<p>{html.escape(_summary([result for result, _ in entries]))}</p>',
    _contents([result for result, _ in entries], missing or {}),
    *(_section(result, folder) for result, folder in entries),
  ]
  page = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    f'<title>fl_sketch: reproductions</title><style>{_STYLE}</style></head>\n'
    f'<body>{"".join(body)}</body></html>\n'
  )
  path.parent.mkdir(parents=True, exist_ok=True)
  files.replace(path, page)


def _summary(every) -> str:
  devices = sorted({result['device'] for result in every})
  verdicts = [c['verdict'] for result in every for c in result['claims']]
  return (
    f'{len(every)} studies on {", ".join(devices) or "nothing yet"}: '
    f'{study_lib.summary(verdicts)}. A claim is an '
    'inequality between measured numbers; ± is the standard error over seeds. '
    'What does not hold says what was tried.'
  )


def _contents(every, missing) -> str:
  rows = []
  for result in every:
    kinds = {c['verdict'] for c in result['claims']} - {study_lib.UNTESTABLE}
    kind = 'open' if not kinds else 'fails' if len(kinds) > 1 else ''
    kind = kind or _CLASSES[kinds.pop()]
    rows.append(
      f'<td><a href="#{_anchor(result)}">{html.escape(result["name"])}</a></td>'
      + _cells('td', (result['title'], result['scale']))
      + f'<td class="{kind}">{html.escape(result["verdict"])}</td>'
    )
  verdict = f'<td class="open">{study_lib.UNTESTABLE}</td>'
  for name, why in missing.items():
    rows.append(_cells('td', (name, f'not run: {why}', '')) + verdict)
  return _rows('', (), rows)


def _section(result, folder) -> str:
  parts = [
    f'<h2 id="{_anchor(result)}">{html.escape(result["name"])}: '
    f'{html.escape(result["title"])}</h2>',
    f'<p>{html.escape(result["source"])}. '
    f'{html.escape(results.origin(result))}. '
    f'<b>{html.escape(result["verdict"])}.</b></p>',
    f'<pre>{html.escape(result["command"])}</pre>',
    _claims(result['claims']),
    *(
      f'<p><i>{html.escape(claim)}</i>: {html.escape(remark)}</p>'
      for claim, remark in results.remarks(result)
    ),
    *(_picture(picture, folder) for picture in result['pictures']),
    *(_table(**table) for table in result['tables']),
    *(f'<p>{html.escape(note)}</p>' for note in result['notes']),
    _details('Versions', result['versions']),
    _details('Configs', result['configs']),
    _details('Numbers of every seed', result['seeds']),
  ]
  return '\n'.join(parts)


def _anchor(result) -> str:
  return html.escape(f'{result["name"]}-{result["scale"]}')


def _claims(claims) -> str:
  rows = []
  for claim in claims:
    *cells, verdict = results.claim_cells(claim)
    kind = f'<td class="verdict {_CLASSES[verdict]}">{verdict}</td>'
    rows.append(_cells('td', cells) + kind)
  return _rows('', results.CLAIM_HEAD, rows)


def _table(caption, head, rows) -> str:
  return _rows(caption, head, [_cells('td', row) for row in rows])


def _cells(tag, texts) -> str:
  return ''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in texts)


def _rows(caption, head, rows) -> str:
  caption = f'<caption>{html.escape(caption)}</caption>' if caption else ''
  lines = [_cells('th', head), *rows] if head else rows
  body = ''.join(f'<tr>{line}</tr>' for line in lines)
  return f'<div class="wide"><table>{caption}{body}</table></div>'


def _picture(picture, folder) -> str:
  data = base64.b64encode((folder / picture['file']).read_bytes()).decode()
  caption = html.escape(picture['caption'])
  return (
    f'<figure><img src="data:image/png;base64,{data}" alt="{caption}">'
    f'<figcaption>{caption}</figcaption></figure>'
  )


def _details(title, tree) -> str:
  text = html.escape(json.dumps(tree, indent=1))
  return f'<details><summary>{title}</summary><pre>{text}</pre></details>'
