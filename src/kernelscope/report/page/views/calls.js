// All calls: a table of any length, with search and filters.

const ROW_HEIGHT = 28, NARROW_ROW_HEIGHT = 50; // as the style has them

// Rows of two lines where the window is narrow; gives a function that ends that.
function followWidth(list) {
  const changed = () => list.setRowHeight(NARROW.matches ? NARROW_ROW_HEIGHT : ROW_HEIGHT);
  changed();
  NARROW.addEventListener('change', changed);
  return () => NARROW.removeEventListener('change', changed);
}

async function calls(root, params, app) {
  const run = app.run('a');
  const [{ facts, compiled }, data] = await Promise.all([run.about(), run.sites()]);
  const search = el('input', { type: 'search', id: 'search', placeholder: 'kernel, line, argument, dtype …   (press /)', 'aria-label': 'Search calls', value: params.q || '', spellcheck: 'false' });
  const values = (of) => [...new Set(Object.values(data.sites).map(of))].filter((v) => v !== null && v !== undefined).sort();
  const kind = choice('Kind', 'kind', values((site) => data.kernels[site.kernel].kind).map((k) => [k, k]), params.kind);
  const phase = choice('Phase', 'phase', ['forward', 'backward', 'optimizer', 'other'].map((p) => [p, p]), params.phase);
  const graph = choice('Graph', 'graph', Object.entries(data.graphs).map(([id, g]) => [id, graphName(g, id, compiled)]), params.graph);
  const step = el('input', { type: 'number', min: 0, placeholder: 'step', 'aria-label': 'Step', value: params.step || '' });
  const told = el('span.count', { 'aria-live': 'polite' });
  const kernel = params.kernel !== undefined ? data.kernels[params.kernel] : null;
  const only = kernel ? el('span.chip.only', null, middle(kernel.name), link({ calls: true }, ' ✕')) : null;

  const none = el('p.empty.none', { hidden: true }, 'No call matches. ', link({ calls: true }, 'Show all calls'));
  let pages = null;
  let aim = null; // where to begin, once it is known how many there are
  const list = new VirtualList({
    rowHeight: ROW_HEIGHT, label: 'Calls',
    draw: (element, at) => callRow(element, at, pages.get(at), run, data, facts),
    pick: (at) => { const row = pages.get(at); if (row) app.go({ call: row.index }); },
  });
  const forgetWidth = followWidth(list);

  function wanted() {
    const words = tokens(search.value);
    const asked = {};
    if (words.length || kind.value || graph.value || params.kernel !== undefined) {
      asked.sites = Object.entries(data.sites).filter(([, site]) =>
        (!kind.value || data.kernels[site.kernel].kind === kind.value)
        && (!graph.value || String(site.graph) === graph.value)
        && (params.kernel === undefined || String(site.kernel) === params.kernel)
        && words.every((word) => siteText(site, data).includes(word))).map(([id]) => Number(id));
    }
    if (phase.value) asked.phase = phase.value;
    if (step.value !== '') asked.step = Number(step.value);
    return asked;
  }

  function start() {
    pages?.close();
    const asked = wanted();
    pages = new Pages((first, howMany) => run.rows(asked, first, howMany), (answer, first) => {
      replace(told, answer.total === facts.totals.calls ? plural(answer.total, 'call') : `${count(answer.total)} of ${plural(facts.totals.calls, 'call')}`);
      if (answer.total !== list.count) list.setCount(answer.total);
      else list.refreshFrom(first, pages.size);
      none.hidden = answer.total > 0 || !facts.totals.calls;
      list.element.hidden = !answer.total;
      if (aim !== null) { list.select(aim); list.reveal(aim, true); aim = null; }
    });
    list.setCount(0);
    list.moveTo(0);
    pages.ask(0);
  }

  const changed = debounced(150, () => {
    history.replaceState(null, '', address({ calls: true, q: search.value, kind: kind.value, phase: phase.value, graph: graph.value, step: step.value, kernel: params.kernel }));
    start();
  });
  for (const input of [search, kind, phase, graph, step]) input.addEventListener('input', changed);
  search.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown' || event.key === 'Enter') { event.preventDefault(); list.element.focus(); list.select(0); }
  });

  replace(root, el('div.calls', null,
    el('div.toolbar', { role: 'search' }, search, kind, phase, graph, step, only, told),
    facts.totals.calls ? el('div.table-head', { 'aria-hidden': 'true' }, ['#', 'Kind', 'Kernel', 'Line', 'Step', 'Phase', 'Time', 'Arguments'].map((name, at) => el(CELLS[at].endsWith('.n') ? 'span.n' : 'span', null, name)))
      : el('p.empty', null, 'No call was recorded. ', facts.missing[0]?.why || ''),
    none, list.element));
  if (params.at) aim = await run.place(wanted(), Number(params.at));
  start();
  return {
    close: () => { pages.close(); list.close(); forgetWidth(); },
    grown: async (total) => {
      Object.assign(data, await run.sites());
      facts.totals.calls = total;
      const last = Math.floor(list.count / pages.size);
      pages.pages.delete(last);
      pages.ask(last);
    },
    search,
    list,
  };
}

function choice(label, name, options, chosen) {
  const made = el('select', { 'aria-label': label, name }, el('option', { value: '' }, `any ${label.toLowerCase()}`),
    options.map(([value, text]) => option(value, text, NARROW.matches ? 12 : 34)));
  made.value = chosen ?? '';
  if (made.selectedIndex < 0) made.value = '';
  return made;
}

// One choice. It is read as far as it fits; its text is the whole name.
function option(value, text, letters = NARROW.matches ? 25 : 38) {
  return el('option', { value, label: clipped(visible(text), letters) }, text);
}

// As the pipeline calls it, if it shows it.
function graphName(graph, id, compiled) {
  return compiled[graph.compiled]?.name || `${graph.name || id} ${graph.direction}`;
}

function siteText(site, data) {
  if (site.text === undefined) {
    const kernel = data.kernels[site.kernel];
    const args = site.args.map((arg) => `${arg.name} ${arg.wrapper} ${arg.dtype || ''}${arg.shape ? `[${arg.shape.join(',')}]` : ''}`);
    const text = [kernel.name, kernel.kind, kernel.producer, site.device, ...site.origin.map((f) => `${f[0]}:${f[1]} ${f[2]}`), ...args].join('\n');
    Object.defineProperty(site, 'text', { value: text.toLowerCase(), enumerable: false });
  }
  return site.text;
}

function callRow(element, at, row, run, data, facts) {
  element.className = 'row call';
  if (!row || !data.sites[row.site]) return replace(element, el('span.index.n.quiet', null, count(at)), el('span.kind.quiet', null, '…'));
  const site = data.sites[row.site];
  const kernel = data.kernels[site.kernel];
  element.classList.toggle('failed', Boolean(row.values.error));
  const [index, kind, name, line, step, phase, time, args] = cells(element);
  write(index, row.index);
  replace(kind, kindChip(kernel.kind));
  fillMiddle(name, kernel.name, row.values.parent !== undefined ? '└ ' : '');
  write(line, place(site.origin[0]));
  step.dataset.label = 'step';
  write(step, row.step);
  write(phase, row.phase);
  write(time, facts.has.times ? duration(row.time) : '');
  replace(args, row.values.error ? `raised ${row.values.error}` : site.args.map((arg, i) => argument(arg, i, row, run)));
  return undefined;
}

// Made once for each row element: a row is filled many times while the table scrolls.
function cells(element) {
  if (element.childElementCount !== CELLS.length) {
    replace(element, CELLS.map((name) => (name === NAME_CELL ? el(name, null, el('span.head'), el('span.tail')) : el(name))));
  }
  return element.children;
}

function write(cell, text) {
  cell.textContent = visible(text);
}

const NAME_CELL = 'span.name.middle';
const CELLS = ['span.index.n', 'span.kind', NAME_CELL, 'span.at.quiet', 'span.step.n', 'span.phase.quiet', 'span.time.n', 'span.args'];

function roleOf(arg, i, row) {
  return arg.role === 'inout' && (row.values.uninitialised || []).includes(i) ? 'out' : arg.role;
}

function argument(arg, i, row, run) {
  if (!arg.dtype) return null;
  const role = roleOf(arg, i, row);
  const slot = role === 'in' ? row.values.pre?.[i] : row.values.post?.[i] ?? row.values.pre?.[i];
  const print = slot === undefined ? null : run.print(slot);
  const stats = statsOf(print);
  return el(`span.arg.${role}`, null, ROLE_MARKS[role], arg.name, el('i', null, ` ${arg.dtype}[${arg.shape.join(',')}]`),
    print?.[0] ? el('b', null, shortHash(print[0])) : null,
    stats && stats.nan ? el('em', null, ` ${stats.nan} NaN`) : null);
}
