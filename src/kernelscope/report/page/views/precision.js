// The precision of kernels: error against float64, range, and which could have a narrower format.

const VERDICTS = {
  amplifies: 'rounding is amplified, as by cancellation',
  overflows: 'values do not fit the dtype',
  wrong: 'more error than rounding explains',
  'not-measured': 'not measured',
};

async function precision(root, params, app) {
  if (!app.precision) {
    const how = ['kernelscope precision --json train.py > precision.json', 'kernelscope report --precision precision.json'];
    replace(root, el('div.empty', null, el('h1', null, 'Not measured'), el('p', null, 'This page has no precision map. To make one: '),
      how.map((line) => el('p', null, el('code', null, line), copyButton(line, 'the command')))));
    return null;
  }
  const told = await app.precision.about();
  const { kernels } = await app.run('a').sites();
  const ids = new Map(Object.entries(kernels).map(([id, kernel]) => [kernel.name, id]));
  replace(root, el('div.overview.precision', null,
    el('header.heading', null, el('h1', null, 'Precision'),
      el('p.quiet', null, 'Error of each kernel against float64 on its own inputs, the range of its values, and the formats in which its outputs may be. ',
        'Measured in a run of its own; names link to the calls of this run.'),
      told.problem ? el('p.note', null, `Inconclusive: ${told.problem}`) : null,
      told.notes.map((note) => el('p.note', null, note))),
    told.functions.map((each) => precisionOf(each, ids))));
  return null;
}

function precisionOf(of, ids) {
  const heads = [['Kernel'], ['Dtype'], ['Error, ulp', 'n'], ['Worst, ulp', 'n'], ['Relative', 'n'], ['Magnitudes', 'n'], ['Flushed or overflown'], ['Could be']];
  return el('section', null, el('h2', null, of.name, el('span.count', null, plural(of.kernels.length, 'kernel'))),
    of.outputs.length ? el('p.quiet', null, `Outputs within ${small(of.tolerance)}: ${listed(of.outputs, 8)}`) : null,
    of.problem ? el('p.note', null, `Inconclusive: ${of.problem}`) : null,
    of.notes.map((note) => el('p.note', null, note)),
    of.kernels.length ? el('table.figures', null,
      el('thead', null, el('tr', null, heads.map(([name, kind]) => el(`th${kind ? `.${kind}` : ''}`, { scope: 'col' }, name)))),
      el('tbody', null, of.kernels.map((kernel) => precisionRow(kernel, ids)))) : null,
    of.what_ifs.map(promise));
}

function precisionRow(kernel, ids) {
  const figure = (label, shown) => el('td.n', { 'data-label': label }, shown);
  const { error } = kernel;
  const id = ids.get(kernel.name);
  const name = id === undefined ? middle(kernel.name) : nameLink({ calls: true, kernel: id }, kernel.name);
  const range = kernel.largest === null ? '' : `${kernel.smallest === null ? '0' : small(kernel.smallest)} … ${small(kernel.largest)}`;
  return el('tr', { 'data-verdict': kernel.verdict },
    el('td.name', null, name, el('div.under', null, kindChip(kernel.kind), el('span.quiet', null, `#${kernel.index} ${kernel.phase} ${kernel.origin ? place(kernel.origin) : ''}`)),
      kernel.verdict in VERDICTS ? el('div.under', null, el(`span.chip${kernel.verdict === 'overflows' || kernel.verdict === 'wrong' ? '.crashed' : ''}`, null, kernel.verdict), el('span.quiet', null, verdictText(kernel))) : null),
    el('td', { 'data-label': 'dtype' }, kernel.dtypes.join(', ')),
    figure('ulp', error ? small(error.median_ulp) : '?'),
    figure('worst', error ? small(error.max_ulp) : '?'),
    figure('relative', error ? small(error.relative) : '?'),
    figure('magnitudes', range),
    el('td.share-list', { 'data-label': 'lost' }, lostIn(kernel.lost)),
    el('td.share-list', { 'data-label': 'could be' }, kernel.tries.map(tried)));
}

function verdictText(kernel) {
  if (kernel.verdict === 'not-measured') return kernel.reason;
  if (kernel.verdict === 'overflows') return `${VERDICTS.overflows}: ${plural(kernel.infinite, 'value')} infinite or NaN`;
  return VERDICTS[kernel.verdict] + (kernel.explained === null ? '' : `; one rounding of each step leads to ${small(kernel.explained)}`);
}

// Of each format the share of values that overflow or become zero; what is less than normal has lost digits.
function lostIn(lost) {
  const parts = Object.entries(lost).map(([format, share]) => [format, (share.overflow || 0) + (share.flushed || 0), share]).filter(([, sum]) => sum > 0);
  if (!parts.length) return el('span.quiet', null, 'none');
  return parts.map(([format, sum, share]) => el('div', { title: `${format}: overflow ${percent(share.overflow)}, flushed to zero ${percent(share.flushed)}, below the smallest normal number ${percent(share.underflow)}` }, `${format} ${sum < 0.01 ? '< 1%' : percent(sum)}`));
}

function tried(each) {
  const effect = each.effect === null ? 'not finite' : small(each.effect);
  return el('div', { title: `Error of the outputs with this kernel alone rounded: ${effect}` },
    el(`b.${each.can ? 'fine' : 'quiet'}`, null, each.can ? `✓ ${each.format}` : `✗ ${each.format}`), el('span.quiet', null, ` alone ${effect}`));
}

function promise(each) {
  const where = each.program === 'as it is' ? '' : ` (${each.program})`;
  const chosen = each.candidates.filter((one) => one.is_chosen);
  const refused = each.candidates.filter((one) => !one.is_chosen).sort((a, b) => (b.effect ?? Infinity) - (a.effect ?? Infinity));
  const title = el('h3', null, each.format, where);
  if (each.reason) return el('section', null, title, el('p', null, `Not tried: ${each.reason}`));
  const error = each.error === null ? 'not finite' : small(each.error);
  if (!each.is_kept) return el('section', null, title, el('p', null, `No promise: the run to verify it had error ${error}.`));
  const stay = each.program === 'as it is' ? 'Should stay as they are' : 'Should be float32';
  return el('section', null, title,
    el('p', null, el('b', null, `${chosen.length ? count(chosen.length) : 'None'} of ${plural(each.candidates.length, 'kernel')} can be ${each.format}`),
      `, verified in a run with these rounded: error ${error}, tolerance ${small(each.tolerance)}; with all of them ${each.error_of_all === null ? 'not finite' : small(each.error_of_all)}. ${plural(each.runs, 'run')}.`),
    refused.length ? el('p', null, `${stay}: `, listed(refused.map((one) => `${one.label} (alone ${one.effect === null ? 'not finite' : small(one.effect)})`), 12)) : null);
}

function listed(names, most) {
  return names.slice(0, most).join(', ') + (names.length > most ? ` and ${count(names.length - most)} more` : '');
}

// Two digits; very small and very large ones with an exponent.
function small(value) {
  if (value === null || value === undefined) return '?';
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e4)) return value.toExponential(1);
  return String(Number(value.toPrecision(2)));
}
