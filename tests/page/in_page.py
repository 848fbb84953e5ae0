"""What tests run inside pages, as JavaScript."""

from __future__ import annotations

from typing import Final

_PLACE: Final = "document.querySelector('script[type=module]').src.replace('app.js', '')"
_MODULE: Final = f"{_PLACE} + 'colours.js'"

HAS_NODES: Final = "() => rayched.state.columns.length >= 12 && rayched.state.status !== null"
"""The page has the cluster of this folder."""

CELLS: Final = f"""async () => {{
  const {{ heat }} = await import({_MODULE});
  const {{ map }} = rayched.view;
  return map.columns.names.map((name, row) => [name, map.pixel(row).slice(0, 3), heat(map.columns.value(row, 'cpu'))]);
}}"""
"""Of each node: its name, what colour its cell has, and which it should have."""

ATTACKS: Final = """async () => {
  // Not in the debugger's own call, which may do more than the page.
  await new Promise(done => setTimeout(done, 0));
  const found = [];
  const add = (element) => document.body.append(element);
  const acts = [
    () => { document.body.innerHTML = '<img src=x onerror=rayched.hit=1>'; },
    () => { eval('rayched.hit = 1'); },
    () => { const s = document.createElement('script'); s.text = 'rayched.hit = 1'; add(s); },
    () => { const p = document.createElement('p'); p.setAttribute('onclick', 'rayched.hit = 1'); add(p); p.click(); },
  ];
  for (const act of acts) {
    try { act(); found.push('done'); } catch (error) { found.push(error.name); }
  }
  return [found, rayched.hit ?? null];
}"""
"""Tries to run text, as a mistake of the page's own would; what each try ended with, and whether one ran."""

FOREIGN: Final = """async url => {
  const opened = (make, good, bad) => new Promise((yes, no) => { const s = make(); s[good] = yes; s[bad] = no; });
  const element = (tag, place) => {
    const found = document.createElement(tag);
    found.src = url + place;
    document.body.append(found);
    return found;
  };
  const tries = {
    fetch: () => fetch(url + '/ui/api/queue').then(r => r.text()),
    simple: () => fetch(url + '/ui/api/plan', {method: 'POST', body: '{}'}).then(r => r.text()),
    opaque: () => fetch(url + '/ui/', {mode: 'no-cors'}).then(r => r.type),
    stream: () => opened(() => new EventSource(url + '/ui/stream?topics=usage'), 'onmessage', 'onerror'),
    socket: () => opened(() => new WebSocket(url.replace('http', 'ws') + '/ui/stream'), 'onopen', 'onerror'),
    script: () => opened(() => element('script', '/ui/api/queue'), 'onload', 'onerror'),
    frame: () => new Promise((yes, no) => {
      const frame = element('iframe', '/ui/');
      frame.onload = () => { try { yes(frame.contentWindow.document.title); } catch (error) { no(error); } };
    }),
  };
  const found = {};
  for (const [name, act] of Object.entries(tries)) {
    try { await act(); found[name] = 'read'; } catch (error) { found[name] = 'refused'; }
  }
  return found;
}"""
"""Tries, from another origin, to read what the page has."""

LOW_CONTRASTS: Final = f"""async () => {{
  const {{ luminance }} = await import({_MODULE});
  const light = name => {{
    const p = document.createElement('p');
    p.style.color = `var(--${{name}})`;
    document.body.append(p);
    const found = getComputedStyle(p).color.match(/\\d+/g).map(Number);
    p.remove();
    return luminance(found);
  }};
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const pairs = [['ink', 'paper'], ['quiet', 'paper'], ['link', 'paper'], ['bad', 'paper'], ['on-used', 'used']];
  return pairs.map(([a, b]) => [a, b, ratio(light(a), light(b))]).filter(([, , found]) => found < 4.5);
}}"""
"""Pairs of colours of words and paper that differ too little to be read."""

HIDE: Final = """hidden => {
  Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""

UNNAMED: Final = """() => [...document.querySelectorAll('button, input, textarea, a, canvas')]
  .filter(element => !(element.innerText || element.getAttribute('aria-label')))
  .map(element => element.outerHTML)"""
"""What a screen reader has no word for."""

TALL_TABLE: Final = f"""async () => {{
  const {{ VirtualTable }} = await import({_PLACE} + 'table.js');
  const table = new VirtualTable(['row'], 'tall');
  document.getElementById('view').append(table.element);
  table.show(Array.from({{ length: 5000 }}, (_, row) => [row]));
  const found = [];
  for (const top of [0, 65000, 10, 129000]) {{
    table.element.scrollTop = top;
    await new Promise(done => setTimeout(done, 200));
    const box = table.element.getBoundingClientRect();
    const rows = [...table.body.rows].filter(row => {{
      const place = row.getBoundingClientRect();
      return place.top < box.bottom && place.bottom > box.top + 26;
    }});
    found.push([table.element.scrollTop, table.table.rows.length, rows.map(row => Number(row.innerText))]);
  }}
  return found;
}}"""
"""Of some places that a table of 5,000 rows is scrolled to: where that is, how many rows the page has, which are in sight."""

MANY_NODES: Final = f"""async (count) => {{
  const {{ NodeColumns }} = await import({_PLACE} + 'columns.js');
  const {{ HeatMap }} = await import({_PLACE} + 'heatmap.js');
  const {{ heat }} = await import({_PLACE} + 'colours.js');
  const rows = Array.from({{ length: count }}, (_, row) => row);
  const columns = new NodeColumns();
  columns.take({{
    full: true, revision: 1, names: rows.map(row => `node-${{row}}`), zones: ['a', 'b', 'c', 'd'], zone: rows.map(row => row % 4),
    cpu: rows.map(row => (row * 37) % 1001), memory: rows.map(() => 0), pods: rows.map(() => 0), state: rows.map(() => 0),
    extended: {{}},
  }});
  const map = new HeatMap(document.createElement('canvas'), columns);
  map.drawAll(1240);
  const draw = map.canvas.getContext('2d').getImageData(0, 0, map.canvas.width, map.canvas.height);
  let wrong = 0;
  for (const row of rows) {{
    const {{ x, y, size }} = map.layout.cell(row);
    const at = (Math.floor(y + size / 2) * draw.width + Math.floor(x + size / 2)) * 4;
    if (heat(columns.cpu[row]).some((value, place) => Math.abs(value - draw.data[at + place]) > 1)) wrong++;
    if (map.layout.rowAt(x + size / 2, y + size / 2) !== row) wrong++;
  }}
  return wrong;
}}"""
"""How many of so many cells have another colour than their node's use, or another node below the pointer."""
