// Two runs side by side, the first divergence in view.

const STATES = ['same', 'other', 'only-a', 'only-b'];
const STATE_MARKS = ['=', '≠', '◧', '◨'];
const STATE_TITLES = ['same values', 'different values', 'only in the first run', 'only in the second run'];

async function diff(root, params, app) {
  if (!app.diff) {
    const { facts } = await app.run('a').about();
    const how = `kernelscope report ${shellWord(facts.name)} --diff OTHER`;
    replace(root, el('div.empty', null, el('h1', null, 'One run'), el('p', null, 'This page has one run. To compare it with another: '), el('p', null, el('code', null, how), copyButton(how, 'the command'))));
    return null;
  }
  const told = await app.diff.about();
  const [a, b] = [app.run('a'), app.run('b')];
  const [sitesA, sitesB, aboutA, aboutB] = await Promise.all([a.sites(), b.sites(), a.about(), b.about()]);
  const names = [aboutA.facts.name, aboutB.facts.name];
  const table = new DiffTable(told, [a, b], [sitesA, sitesB], app);
  const along = strip(told, (place) => table.list.reveal(place, true));
  const forget = onNewColours(along.repaint);
  replace(root, el('div.diff', null,
    verdict(told, names),
    split('diff', 'columns', [
      el('section.aligned-calls', null, el('h2', null, 'Calls'),
        along,
        el('div.table-head.aligned', { 'aria-hidden': 'true' }, ['#', names[0], '', '#', names[1]].map((name) => el(name === '#' ? 'span.n' : 'span', null, name))),
        table.list.element),
      el('div.details', null, differences(told), spread(told), tensors(told, names))], [6, 5])));
  const forgetWidth = followWidth(table.list);
  table.start();
  return { close: () => { table.close(); forget(); forgetWidth(); }, list: table.list };
}

function verdict(told, names) {
  const d = told.divergence;
  const { compared } = told;
  const counts = el('p.quiet', null, `${names[0]} and ${names[1]}: ${plural(compared.pairs, 'pair')} of calls, ${count(compared.differing)} with different values; `,
    `${count(compared.only_a)} only in the first, ${count(compared.only_b)} only in the second.`);
  const left = told.left_out ? [`${plural(told.left_out, 'more row')} are not in this file; kernelscope view shows all of them.`] : [];
  const notes = [...told.notes, ...left].map((note) => el('p.note', null, note));
  if (!d) return el('header.heading', null, el('h1.fine', null, '✓ No divergence'), counts, notes);
  return el('header.heading', null,
    el('h1', null, el('span.chip.crashed', null, d.verdict), ' first divergence at ',
      d.index_a !== null ? link({ call: d.index_a }, `call ${d.index_a}`) : link({ call: d.index_b, run: 'b' }, `call ${d.index_b} of the second run`)),
    el('p', null, el('code', null, d.kernel_name), d.other_kernel_name ? [' / ', el('code', null, d.other_kernel_name)] : null,
      d.origin ? ` at ${place([d.origin.file, d.origin.line])}` : '', ` · ${d.graph ? `graph ${d.graph}, ` : ''}step ${d.step}, ${d.phase}${d.thread ? `, ${d.thread}` : ''}`),
    el('p', null, el('b', null, 'Why: '), d.reason, '.', d.source ? ` It came from: ${d.source.text}.` : '', copyButton(told.text, 'the verdict')),
    counts, notes);
}

function differences(told) {
  const found = told.divergence?.differences || [];
  if (!found.length) return null;
  return el('section', null, el('h2', null, 'What differs'), el('table.figures', null,
    el('thead', null, el('tr', null, ['Argument', 'When', 'What', 'First run', 'Second run'].map((n) => el('th', { scope: 'col' }, n)))),
    el('tbody', null, found.slice(0, 30).map((each) => el('tr', null,
      el('td.name', null, each.argument), el('td.quiet', { 'data-label': 'when' }, each.moment), el('td.quiet', { 'data-label': 'what' }, each.what),
      [each.a, each.b].map((v, at) => el('td', { 'data-label': at ? 'second run' : 'first run' }, el('code.hash', null, each.what === 'values' ? `#${plain(v)}` : JSON.stringify(plain(v))))))))));
}

// The way of the divergence from call to call, and how much of what follows it reached.
function spread(told) {
  const s = told.divergence?.spread;
  if (!s || told.divergence.index_a === null) return null;
  const share = s.later ? s.differing / s.later : 0;
  const chain = s.chain.slice(0, 14);
  return el('section', null, el('h2', null, 'How it spread'),
    el('p', null, s.later ? `${count(s.differing)} of ${plural(s.later, 'later call')} differ` : 'It is the last call', s.last !== null ? `, the last is call ${s.last}.` : '.'),
    s.later ? bar(share) : null,
    chain.length ? el('ol.chain', null,
      el('li.start', null, link({ call: chain[0].parent }, `call ${chain[0].parent}`), ' ', el('code', null, middle(told.divergence.kernel_name))),
      chain.map((each) => el('li', null, el('span.through', null, each.argument), link({ call: each.index }, `call ${each.index}`), ' ', el('code', null, middle(each.kernel_name)))),
      s.chain.length > chain.length ? el('li.quiet', null, `and ${s.chain.length - chain.length} more`) : null) : null);
}

function tensors(told, names) {
  const d = told.divergence;
  if (!d) return null;
  if (d.index_a === null || d.index_b === null) {
    return el('section', null, el('h2', null, 'Tensors'), el('p.quiet', null, 'Only one of the runs has this call, so there are no tensors to compare.'));
  }
  if (!told.tensors.length && d.differences.length && !d.differences.some((each) => each.what === 'values')) {
    return el('section', null, el('h2', null, 'Tensors'), el('p.quiet', null, 'No values differ here, so there is nothing to draw.'));
  }
  if (!told.tensors.length) {
    return el('section', null, el('h2', null, 'Tensors'), el('p.note', null, 'No heat maps and errors: both runs must have saved the tensors of this call. ', el('code', null, 'kernelscope run --values save …')));
  }
  return el('section', null, el('h2', null, 'Tensors'), told.tensors.map((each) => tensor(each, d, names)));
}

function tensor(each, d, names) {
  if (each.error) return el('p.note', null, `${each.argument} ${each.moment}: ${each.error}`);
  const errors = d.errors.find((e) => e.argument === each.argument && e.moment === each.moment);
  return el('article.tensor', null,
    el('h3', null, `${each.argument} ${each.moment}`),
    errors ? el('p', null, `${count(errors.differing)} of ${plural(errors.elements, 'element')} differ, by at most ${number(errors.max_abs)} absolute, ${number(errors.max_rel)} relative`,
      errors.max_ulp !== null ? `, ${count(plain(errors.max_ulp)?.$int ?? plain(errors.max_ulp))} ulp` : '', '.') : null,
    each.apart ? el('div.heats', null, [[names[0], each.a], [names[1], each.b], ['difference', each.apart]].map(([name, heat]) =>
      el('div', null, el('h4', null, name), heatMap(heat, `Heat map: ${name}`)))) : null,
    el('table.worst', null, el('caption', null, 'Largest differences'),
      el('thead', null, el('tr', null, ['At', names[0], names[1], 'Apart'].map((n, at) => el(at ? 'th.n' : 'th', { scope: 'col' }, n)))),
      el('tbody', null, each.worst.map((w) => el('tr', null, el('td', null, el('code', null, `[${w.at.join(', ')}]`)), [String(w.a), String(w.b), number(w.apart)].map((text) => el('td.n', null, text)))))),
    errors?.histogram.length ? el('p.quiet', null, 'ulp apart: ', errors.histogram.map((h) => `${h.ulp}: ${count(h.elements)}`).join(' · ')) : null);
}

// The whole table in one line: where the runs agree, differ, or have other calls.
function strip(told, jump) {
  const canvas = el('canvas.strip', { width: Math.max(1, told.where.length), height: 1, role: 'img', 'aria-label': 'Where along the runs they differ; click to go there' });
  const paint = () => {
    const context = canvas.getContext('2d');
    const colours = ['state-same', 'state-other', 'state-only-a', 'state-only-b'].map(colour);
    told.where.forEach((state, at) => { context.fillStyle = colours[state]; context.fillRect(at, 0, 1, 1); });
  };
  requestAnimationFrame(paint);
  canvas.repaint = paint;
  canvas.addEventListener('click', (event) => jump(Math.floor((event.offsetX / canvas.clientWidth) * told.total)));
  return canvas;
}

class DiffTable {
  constructor(told, runs, sites, app) {
    Object.assign(this, { told, runs, sites, app });
    this.pages = new Pages((first, howMany) => this.fetch(first, howMany), (answer, first) => this.list.refreshFrom(first, this.pages.size));
    this.list = new VirtualList({ rowHeight: ROW_HEIGHT, label: 'Aligned calls', draw: (element, at) => this.draw(element, at), pick: (at) => this.pick(at) });
  }

  close() { this.pages.close(); this.list.close(); }

  start() {
    this.list.setCount(this.told.total);
    const { first } = this.told;
    if (first === null) return;
    requestAnimationFrame(() => { this.list.select(first); this.list.reveal(first, true); });
  }

  async fetch(first, howMany) {
    const page = await this.app.diff.rows(first, howMany);
    const named = await Promise.all([0, 1].map((which) => this.names(which, page[which ? 'b' : 'a'])));
    return { rows: page.state.map((state, at) => ({ state, a: page.a[at], b: page.b[at], names: [named[0].get(page.a[at]), named[1].get(page.b[at])] })) };
  }

  // The kernels of these calls. They stand one after the other, so that one question is enough.
  async names(which, indices) {
    const run = this.runs[which];
    const wanted = indices.filter((index) => index >= 0);
    const found = new Map();
    if (!wanted.length) return found;
    const first = await run.place({}, wanted[0]);
    const { rows } = await run.rows({}, first, wanted[wanted.length - 1] - wanted[0] + 1);
    for (const row of rows) {
      const site = this.sites[which].sites[row.site];
      found.set(row.index, { kernel: this.sites[which].kernels[site.kernel], line: place(site.origin[0]) });
    }
    return found;
  }

  draw(element, at) {
    element.className = 'row aligned';
    const row = this.pages.get(at);
    if (!row) return replace(element, el('span.quiet', null, '…'));
    element.classList.add(STATES[row.state]);
    element.classList.toggle('first', at === this.told.first);
    const side = (which, index, named) => [el(`span.n.index-${which}`, null, index < 0 ? '' : index),
      el(`span.name.name-${which}`, null, named ? [middle(named.kernel.name), el('i', null, named.line)] : index < 0 ? '' : '(not in this file)')];
    replace(element, side('a', row.a, row.names[0]), el('span.mark', { title: STATE_TITLES[row.state] }, STATE_MARKS[row.state]), side('b', row.b, row.names[1]));
    return undefined;
  }

  pick(at) {
    const row = this.pages.get(at);
    if (row) this.app.go(row.a >= 0 ? { call: row.a } : { call: row.b, run: 'b' });
  }
}
