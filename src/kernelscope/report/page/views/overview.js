// What ran, and first of all what is wrong with it.

const LEVELS = { grave: 'wrong', odd: 'odd', note: 'note' };

async function overview(root, params, app) {
  const run = app.run('a');
  const { facts, compiled: graphs } = await run.about();
  const places = { findings: el('section'), kernels: el('section') };
  replace(root,
    el('div.overview', null,
      heading(facts, run),
      places.findings,
      missing(facts),
      el('div.columns', null, places.kernels, el('div', null, graphList(graphs, facts), about(facts)))));
  replace(places.findings, el('h2', null, 'Findings'), el('p.quiet', null, 'Looking …'));
  replace(places.kernels, el('h2', null, 'Kernels'), el('p.quiet', null, 'Counting …'));
  const [found, diff] = await Promise.all([
    run.findings(), app.diff ? app.diff.about().catch((error) => ({ error: error.message })) : null,
  ]);
  replace(places.findings, findings(found, facts, diff, app));
  const [data, counts, times] = await Promise.all([run.sites(), run.counts(), facts.has.times ? run.times() : {}]);
  replace(places.kernels, kernels(data, counts, times, facts));
}

function heading(facts, run) {
  const { calls, kernels, graphs } = facts.totals;
  const command = facts.command?.map((word, at) => shellWord(at ? word : baseName(word))).join(' ');
  return el('header.heading', null,
    el('h1', null, facts.name, el(`span.chip.${facts.state.kind}`, null, STATE_WORDS[facts.state.kind])),
    el('p', null, `${plural(calls, 'call')} of ${plural(kernels, 'kernel')} in ${plural(graphs, 'graph')}`,
      facts.world_size > 1 ? `, rank ${facts.rank} of ${facts.world_size}` : '',
      el('span.quiet', null, ` · ${moment(facts.started)} on ${facts.host}`)),
    command ? el('p.command', null, el('code', null, command), copyButton(command, 'the command')) : null,
    run.cut ? el('p.note', null, `This file has ${plural(run.data.rows.index.length, 'call')} of ${count(calls)}; `
      + '`kernelscope view` shows all of them.') : null,
    facts.parts.length ? el('p.note', null, `Other processes of this run (--part): ${facts.parts.join(', ')}`) : null);
}

const STATE_WORDS = {
  closed: 'complete', recording: 'recording now', crashed: 'crashed', stopped: 'recording stopped early',
};

function findings(found, facts, diff, app) {
  const cards = [];
  if (facts.state.kind !== 'closed' && facts.state.kind !== 'recording') {
    const call = facts.state.call;
    cards.push(card('grave', facts.state.kind, facts.state.text, call && {
      text: `${facts.state.executing ? 'was executing' : 'the last'}: call ${call.index}, ${call.kernel_name}`,
      to: { call: call.index },
    }));
  }
  if (diff?.error) cards.push(card('odd', 'diff', diff.error));
  if (diff?.divergence) {
    const d = diff.divergence;
    cards.push(card('grave', d.verdict, `The runs first differ at call ${d.index}, ${d.kernel_name}: ${d.reason}.`,
      { text: 'See the diff', to: { diff: true } }));
  } else if (diff && !diff.error) {
    cards.push(card('fine', 'same', `No divergence: ${count(diff.compared.pairs)} calls of both runs agree.`,
      { text: 'See both', to: { diff: true } }));
  }
  for (const each of found.found) {
    const at = each.call !== null && each.call !== undefined ? { text: `call ${each.call}`, to: { call: each.call } } : null;
    const where = each.origin?.length ? ` (${place(each.origin[0])})` : '';
    const more = each.detail && each.detail !== each.message ? each.detail : '';
    cards.push(card(each.level, each.kind, each.message + where, at, more));
  }
  const left = Object.entries(found.left_out).map(([kind, n]) => `${count(n)} more of ${kind}`);
  const looked = found.looked_at && found.looked_at < found.of
    ? `The hashes of ${count(found.looked_at)} of ${count(found.of)} calls were compared; kernelscope show --limit 0 compares all.`
    : '';
  return [
    el('h2', null, 'Findings', cards.length ? el('span.count', null, count(cards.length)) : null),
    cards.length ? el('ul.findings', null, cards)
      : el('p.fine', null, '✓ No findings', found.looked_at ? ` in the values of ${plural(found.looked_at, 'call')}.` : '. Values were not recorded.'),
    left.length || looked ? el('p.quiet', null, [...left, looked].filter(Boolean).join('. ')) : null,
  ];
}

function card(level, kind, message, at, more) {
  const [first, ...rest] = message.split('\n');
  return el(`li.card.${level}`, null,
    el('span.kind', { title: LEVELS[level] || '' }, kind),
    el('div', null,
      el('p', null, first),
      rest.length || more ? el('details', null, el('summary', null, 'more'), el('pre', null, more || rest.join('\n'))) : null),
    at ? link(at.to, at.text) : null);
}

function missing(facts) {
  if (!facts.missing.length) return null;
  return el('section.missing', null, el('h2', null, 'Not in this run'),
    el('ul', null, facts.missing.map((each) => el('li', null,
      el('span', null, each.why), el('span.how', null, el('code', null, each.how), copyButton(each.how, 'the command'))))));
}

function kernels(data, counts, times, facts) {
  const byKernel = new Map();
  for (const [id, [calls, time]] of Object.entries(counts)) {
    const site = data.sites[id];
    if (!site) continue; // recorded since; the next look has it
    const sum = byKernel.get(site.kernel) || { calls: 0, time: 0, bytes: 0, origin: site.origin[0] };
    sum.calls += calls;
    sum.time += time || 0;
    sum.bytes += (site.bytes || 0) * calls;
    byKernel.set(site.kernel, sum);
  }
  const timed = facts.has.times;
  const rows = [...byKernel].sort(([, a], [, b]) => (timed ? b.time - a.time : b.calls - a.calls));
  const whole = rows.reduce((all, [, sum]) => all + (timed ? sum.time : sum.calls), 0) || 1;
  const shown = rows.slice(0, 20);
  return [
    el('h2', null, timed ? 'Time by kernel' : 'Calls by kernel'),
    rows.length ? el('table.kernels.figures', null,
      el('thead', null, el('tr', null, el('th', { scope: 'col' }, 'Kernel'), ['Calls', ...(timed ? ['Total', 'Median', 'Mean', 'Max', 'GB/s'] : [])].map((name) => el('th.n', { scope: 'col' }, name)), el('th', { scope: 'col' }, 'Share'))),
      el('tbody', null, shown.map(([id, sum]) => kernelRow(data.kernels[id], id, sum, timed, times[id], whole)))) : el('p.quiet', null, 'No kernel ran.'),
    rows.length > shown.length ? el('p.quiet', null, `and ${plural(rows.length - shown.length, 'more kernel')}: `, link({ calls: true }, 'all calls')) : null,
  ];
}

function kernelRow(kernel, id, sum, timed, [median, longest, slowest] = [], whole) {
  const share = (timed ? sum.time : sum.calls) / whole;
  const figure = (label, ...shown) => el('td.n', { 'data-label': label }, ...shown);
  return el('tr', null,
    el('td.name', null, nameLink({ calls: true, kernel: id }, kernel.name), el('div.under', null, kindChip(kernel.kind), el('span.quiet', null, place(sum.origin)))),
    figure('calls', count(sum.calls)),
    timed ? [
      figure('total', duration(sum.time)), figure('median', duration(median)), figure('mean', duration(sum.time / sum.calls)),
      figure('max', longest === undefined ? '' : el('a', { href: address({ call: slowest }), title: `The slowest call: ${slowest}` }, duration(longest))),
      figure('GB/s', rate(sum.bytes, sum.time)),
    ] : null,
    el('td.share', null, bar(share), el('span', null, percent(share))));
}

function kindChip(kind) {
  const known = ['triton', 'cpp', 'extern', 'op', 'gcu'].includes(kind) ? kind : 'other';
  return el(`span.kind-chip.kind-${known}`, null, kind);
}

function graphList(graphs) {
  if (!graphs.length) return null;
  return el('section', null, el('h2', null, 'Graphs'), el('ul.plain', null, graphs.map((graph, at) => el('li', null,
    link({ pipeline: true, graph: at }, graph.name),
    el('span.quiet', null, ` ${graph.staged ? graph.made : 'without stages'}`,
      graph.time ? ` in ${duration(graph.time)}` : '', graph.function.length ? ` · ${place(graph.function[0].split(':'))}` : '')))));
}

// A long name may break after its words.
function breakable(name) {
  return name.split(/(?<=[._])/).flatMap((part) => [part, el('wbr')]);
}

function about(facts) {
  const table = (pairs) => el('dl.pairs', null, pairs.map(([k, v]) => [el('dt', null, breakable(k)), el('dd', null, v)]));
  const settings = Object.entries(facts.settings);
  const compiler = Object.entries(facts.compiler_settings).flatMap(([module, of]) =>
    Object.entries(of).map(([k, v]) => [`${module}.${k}`, v]));
  return el('section', null,
    el('h2', null, 'Versions'), table(Object.entries(facts.versions)),
    facts.devices.length ? [el('h2', null, 'Devices'), el('ul.plain', null, facts.devices.map((d) => el('li', null, d)))] : null,
    settings.length ? [el('h2', null, 'Recorded with'), table(settings)] : null,
    compiler.length ? [el('h2', null, 'Compiler settings'), table(compiler)] : null);
}
