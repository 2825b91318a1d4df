// One call: its arguments with their values, who produced them, who used them, and the code.

async function call(root, params, app) {
  const run = app.run(params.run === 'b' ? 'b' : 'a');
  const index = Number(params.call);
  const found = await run.call(index);
  const { row } = found;
  if (!(await run.sites()).sites[row.site]) run.forget(); // recorded since
  const [{ facts, compiled: graphs }, data] = await Promise.all([run.about(), run.sites()]);
  const site = data.sites[row.site];
  const kernel = data.kernels[site.kernel];
  const to = (other) => ({ call: other, run: run.key === 'a' ? null : run.key });
  const steps = { previous: found.previous === null ? null : to(found.previous), next: found.next === null ? null : to(found.next) };
  const source = el('div.source', null, el('p.quiet', null, 'Loading …'));

  replace(root, el('article.call-page', null,
    el('nav.steps', { 'aria-label': 'Calls' },
      found.previous === null ? el('span.quiet', null, '← the first') : link(to(found.previous), '← previous'),
      run.key === 'a' ? link({ calls: true, at: index }, 'all calls') : link({ diff: true }, 'the diff'),
      found.next === null ? el('span.quiet', null, 'the last →') : link(to(found.next), 'next →'),
      run.key === 'b' ? el('span.chip', null, `second run: ${facts.name}`) : null),
    el('header.heading', null,
      el('h1', null, el('span.quiet', null, `call ${index}`), ' ', el('span.full-name', null, breakable(kernel.name)), copyButton(kernel.name, 'the name'), kindChip(kernel.kind)),
      el('p', null, callFacts(row, site, data, graphs))),
    row.values.error ? el('p.card.grave', null, el('span.kind', null, 'raised'), row.values.error) : null,
    flowPicture(found, row, site, kernel, data, run, to),
    el('h2', null, 'Arguments'),
    facts.has.hashes ? null : el('p.note', null, 'Values were not recorded; ', el('code', null, facts.missing.find((m) => m.what === 'hashes')?.how || '')),
    argumentTable(found, row, site, run),
    el('div.columns', null,
      el('section', null, el('h2', null, 'Computes'), await computes(run, graphs, row, site, data)),
      el('section', null, el('h2', null, 'Called from'), stack(site), el('h2', null, 'Inspect further'), commands(index, site, facts))),
    el('h2', null, 'Source'), source));

  const text = await run.source(site.kernel);
  if (!text) replace(source, el('p.quiet', null, 'No source: this kernel is not generated code.'));
  else {
    const pane = new CodePane({ label: `Source of ${kernel.name}`, point: () => {}, pick: () => {} });
    replace(source, el('div.pane-bar', null, el('span.quiet', null, plural(text.split('\n').length, 'line')), copyButton(text, 'the source')), pane.element);
    pane.setLines(codeLines(text.replace(/^\n/, ''), () => []), kernel.kind);
    pane.element.style.height = `${Math.min(pane.lines.length + 1, 34) * LINE_HEIGHT}px`;
    return { close: () => pane.close(), ...steps };
  }
  return steps;
}

function callFacts(row, site, data, graphs) {
  const graph = site.graph === null ? null : data.graphs[site.graph];
  const facts = [
    site.origin.length ? place(site.origin[0]) : null,
    graph ? `graph ${graphName(graph, site.graph, graphs)}, graph call ${row.graph_call}` : null,
    `step ${row.step}, ${row.phase}`,
    row.values.replay !== undefined ? `replay ${row.values.replay}` : null,
    site.grid ? `grid ${site.grid.join('×')}` : null,
    site.device + (row.stream ? `, stream 0x${row.stream.toString(16)}` : ''),
    row.time !== null ? duration(row.time) : null,
    row.time && site.bytes ? `${rate(site.bytes, row.time)} GB/s` : null,
    ...Object.entries(site.config).map(([k, v]) => `${k}=${v}`),
  ];
  return facts.filter(Boolean).map((fact) => el('span.fact', null, fact));
}

// Producers on the left, this call in the middle, consumers on the right.
function flowPicture(found, row, site, kernel, data, run, to) {
  const named = (index) => {
    const other = data.sites[run.known(index)?.site];
    return other ? data.kernels[other.kernel].name : '';
  };
  const argName = (i) => site.args[i]?.name ?? i;
  const grouped = (pairs) => {
    const groups = new Map();
    for (const [index, argument, byValue] of pairs) {
      if (!groups.has(index)) groups.set(index, { names: [], byValue });
      if (!groups.get(index).names.includes(argument)) groups.get(index).names.push(argument);
    }
    return [...groups];
  };
  const box = ([index, { names, byValue }]) => el('li', null, el('a', { href: address(to(index)), 'aria-label': `call ${index} ${named(index)}` }, el('b', null, `call ${index}`), ' ', middle(named(index))),
    el('span.quiet', null, names.join(', '), byValue ? ' (same values)' : ''));
  const producers = grouped(Object.entries(found.producers).map(([i, [writer, , byValue]]) => [writer, argName(i), byValue]));
  const consumers = grouped(found.consumers.map(([position, reader, , byValue]) => [reader, argName(position), byValue]));
  const inputs = site.args.flatMap((arg, i) => (arg.dtype && roleOf(arg, i, row) !== 'out' && !found.producers[i] ? [arg.name] : []));
  const few = (list) => [list.slice(0, 12).map(box), list.length > 12 ? el('li.quiet', null, `and ${list.length - 12} more`) : null];
  return el('div.flow', { role: 'group', 'aria-label': 'Where its inputs come from, and which calls read its outputs' },
    el('section', null, el('h3', null, 'Produced by'), el('ul', null, few(producers),
      inputs.length ? el('li.outside', null, el('span', null, found.searched[0] ? `no call since ${found.searched[0]}` : 'no recorded call'), el('span.quiet', null, inputs.join(', '))) : null)),
    el('div.arrow', { 'aria-hidden': 'true' }, '→'),
    el('section.self', null, el('h3', null, `call ${row.index}`), el('p', null, middle(kernel.name))),
    el('div.arrow', { 'aria-hidden': 'true' }, '→'),
    el('section', null, el('h3', null, 'Used by'), el('ul', null, few(consumers),
      consumers.length ? null : el('li.outside', null, `no call up to ${found.searched[1]}`))));
}

function argumentTable(found, row, site, run) {
  const scalars = [...(row.values.scalars || [])];
  return el('div.wide', null, el('table.arguments', null,
    el('thead', null, el('tr', null, ['Argument', 'Role', 'Type', 'Before', 'After'].map((name) => el('th', { scope: 'col' }, name)))),
    el('tbody', null, site.args.map((arg, i) => argumentRow(arg, i, row, found, run, scalars)))));
}

function argumentRow(arg, i, row, found, run, scalars) {
  const role = roleOf(arg, i, row);
  const name = el('td.name', null, arg.name, arg.wrapper && arg.wrapper !== arg.name ? el('span.quiet', null, ` = ${arg.wrapper}`) : null);
  if (!arg.dtype) {
    return el('tr', null, name, el('td.quiet', null, 'number'), el('td', { colspan: 3 }, el('code', null, arg.varies ? scalars.shift() ?? '' : arg.value)));
  }
  const before = row.values.pre?.[i];
  const after = row.values.post?.[i] ?? (role === 'in' ? before : undefined);
  const isUninitialised = (row.values.uninitialised || []).includes(i);
  const changed = before !== undefined && after !== undefined && run.print(before)?.[0] !== run.print(after)?.[0];
  const moments = [
    isUninitialised ? el('span.quiet', null, 'uninitialised') : value(before, `${i} before`, arg, found, run),
    before !== undefined && before === after ? el('span.quiet', null, 'unchanged') : [changed ? el('span.chip', null, 'changed') : null, value(after, `${i} after`, arg, found, run)],
  ];
  return el('tr', null, name,
    el('td', { 'data-label': 'role' }, el(`span.role.${role}`, null, ROLE_MARKS[role], ' ', ROLE_WORDS[role]), arg.returned ? ' (returned)' : ''),
    el('td', { 'data-label': 'type' }, el('code', null, shape(arg)), el('div.quiet', null, `stride [${arg.stride.join(', ')}]`), arg.unread ? el('div.quiet', null, arg.unread) : null),
    moments.map((each, at) => el('td', { 'data-label': at ? 'after' : 'before' }, each)));
}

function value(slot, key, arg, found, run) {
  const print = slot === undefined ? null : run.print(slot);
  const file = found.saved[key];
  const picture = file ? found.pictures[file] : null;
  const stats = statsOf(print) || picture?.stats;
  if (!print && !file) return el('span.quiet', null, '—');
  return [
    print?.[0] ? el('code.hash', null, `#${print[0]}`, copyButton(print[0], 'the hash')) : null,
    stats ? el('div.stats', null, stats.numel === 1 ? singleValue(stats, picture) : statsText({ ...picture?.stats, ...stats })) : null,
    stats?.numel === 1 ? null : picture?.histogram ? el('div.pictures', null, histogram(picture), heatMap(picture.heat, `Heat map of ${arg.name}`)) : range(stats),
    picture?.error ? el('span.quiet', null, picture.error) : null,
    picture?.first && picture.first.length > 1 ? el('div.elements', { title: 'the first elements' }, picture.first.map(number).join('  ')) : null,
    file && !picture ? el('span.quiet', null, `no picture: this file holds only a limited number of them (${found.left_out} left out)`) : null,
  ];
}

function statsText(stats) {
  const counts = [['nan', 'NaN'], ['pos_inf', '+inf'], ['neg_inf', '−inf'], ['zeros', 'zeros']]
    .filter(([name]) => stats[name]).map(([name, word]) => el(name === 'zeros' ? 'span' : 'em', null, ` ${word} ${count(stats[name])}`));
  if (stats.mean === null || stats.mean === undefined) return [stats.numel ? 'nothing finite' : 'empty', counts];
  const known = [['min', stats.min], ['median', stats.median], ['mean', stats.mean], ['max', stats.max], ['std', stats.std]].filter(([, n]) => n !== undefined && n !== null);
  return [el('span.numbers', null, known.map(([word, n], at) => [at ? ' · ' : '', el('span', null, `${word} ${number(n)}`)])), counts];
}

// A tensor with one element: the number itself, instead of pictures and sums of it.
function singleValue(stats, picture) {
  const [wild] = [['nan', 'nan'], ['pos_inf', 'inf'], ['neg_inf', '−inf']].filter(([name]) => stats[name]);
  const exact = picture?.first?.[0] ?? stats.mean;
  return ['value ', wild ? el('em', null, wild[1]) : el('b', null, number(exact))];
}

async function computes(run, graphs, row, site, data) {
  const at = site.graph === null ? null : data.graphs[site.graph]?.compiled ?? null;
  const graph = at === null ? null : await run.graph(at);
  const place_ = graph ? graph.launches.findIndex((launch) => launch.sites.includes(row.site)) : -1;
  if (place_ >= 0) {
    const launch = graph.launches[place_];
    const to = { pipeline: true, graph: at, launch: place_ };
    return [
      el('p', null, link(run.key === 'a' ? to : { diff: true }, `${graphs[at].name}: see it in the pipeline`)),
      launch.nodes.length ? el('table.nodes', null, el('tbody', null, launch.nodes.map((node) => el('tr', null,
        el('td', null, el('code', null, node.name)), el('td.quiet', null, node.target), el('td.quiet', null, node.pre_grad.length ? `← ${node.pre_grad.join(', ')}` : '')))))
        : el('p.quiet', null, 'The nodes are only known for runs recorded with --stages.'),
    ];
  }
  return el('p.quiet', null, 'Not part of a compiled graph whose stages were recorded.');
}

function stack(site) {
  if (!site.origin.length) return el('p.quiet', null, 'Not known.');
  return el('ol.stack', null, site.origin.map(([file, line, name]) => el('li', null,
    el('code', { title: file }, `${baseName(file)}:${line}`), name ? el('span.quiet', null, ` in ${name}`) : null, copyButton(`${file}:${line}`, 'the line'))));
}

function commands(index, site, facts) {
  const known = [`kernelscope show ${shellWord(facts.name)} --call ${index}`];
  if (site.wrapper[0]) known.push(`${site.wrapper[0]}:${site.wrapper[1]}`);
  return el('ul.plain', null, known.map((text) => el('li', null, el('code', null, text), copyButton(text, 'this'))));
}
