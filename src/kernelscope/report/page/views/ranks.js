// The ranks of the run: which one differs first, where, and who agrees with whom in each step.

const SIDES = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

async function ranks(root, params, app) {
  const { facts } = await app.run('a').about();
  if (!app.ranks) {
    const how = 'kernelscope run --values hash --ops all -m torch.distributed.run --nproc-per-node 2 train.py';
    replace(root, el('div.empty', null, el('h1', null, 'One rank'), el('p', null, 'This page has no other rank to compare with. To record several: '), el('p', null, el('code', null, how), copyButton(how, 'the command'))));
    return null;
  }
  replace(root, el('div.overview', null, el('p.quiet', null, 'Comparing the ranks …')));
  const told = await app.ranks.about();
  if (told.error) {
    replace(root, el('div.empty', null, el('h1', null, 'The ranks were not compared'), el('p', null, told.error)));
    return null;
  }
  replace(root, el('div.overview.ranks', null, rankVerdict(told, facts), stepTable(told), rankList(told, facts)));
  return null;
}

function rankVerdict(told, facts) {
  const checked = el('p.quiet', null,
    `${told.ranks.length} of ${plural(told.world_size, 'rank')}, ${plural(told.ranks.reduce((sum, rank) => sum + rank.calls, 0), 'call')}. `,
    `Checked: ${plural(told.checked.same_inputs, 'call')} with the same inputs as a call of another rank, `,
    `${plural(told.checked.collectives, 'collective')}, ${plural(told.checked.rechecked, 'call')} that ran again.`,
    copyButton(told.text, 'the answer'));
  const notes = told.notes.map((note) => el('p.note', null, note));
  const d = told.first;
  if (!d) {
    const title = told.status === 2 ? el('h1', null, 'Nothing could be compared') : el('h1.fine', null, '✓ The ranks agree');
    return el('header.heading', null, title, checked, notes);
  }
  const who = d.suspects.length === 1 ? `rank ${d.rank}` : `one of ranks ${[...d.suspects].sort((a, b) => a - b).join(', ')}`;
  return el('header.heading', null,
    el('h1', null, el('span.chip.crashed', null, d.kind), ` ${who} differs first, in step ${d.step}`),
    el('p', null, el('code', null, d.kernel_name), d.argument ? `, argument ${d.argument}` : '',
      d.origin ? ` at ${place([d.origin.file, d.origin.line])}` : '',
      ` · ${d.graph ? `graph ${d.graph}, ` : ''}${d.phase}, after ${plural(d.collectives_before, 'collective')}`),
    el('p', null, el('b', null, 'Why: '), d.reason, '.'),
    el('p', null, 'See it: ', callOfRank(d.rank, d.index, told, facts)),
    d.other_index === null ? null : el('p', null, `Compared with rank ${d.other_rank}: `, callOfRank(d.other_rank, d.other_index, told, facts)),
    checked, notes);
}

// A link where this page has that rank's calls, and the command elsewhere.
function callOfRank(rank, index, told, facts) {
  if (facts.rank === rank) return link({ call: index }, `call ${index}`);
  const how = `kernelscope show ${shellWord(told.run)} --rank ${rank} --call ${index}`;
  return [el('code', null, how), copyButton(how, 'the command')];
}

function stepTable(told) {
  const { table } = told;
  if (!table.steps.length) return null;
  const sides = Math.max(0, ...table.sides.flat());
  const left = [
    table.steps.length < table.of ? `${count(table.steps.length)} of ${plural(table.of, 'step')} are shown` : '',
    table.ranks.length < table.ranks_of ? `${count(table.ranks.length)} of ${plural(table.ranks_of, 'rank')} are shown, those that differ among them` : '',
  ].filter(Boolean);
  return el('section', null, el('h2', null, 'Ranks by steps'),
    el('p.quiet', null, 'Ranks with the same letter got the same values from every collective that they shared',
      sides ? '' : ': all did', '. ', el('b.cell-mark', null, '!'), ' marks steps in which something was found. An empty cell is a step without calls.'),
    left.length ? el('p.note', null, `${left.join('; ')}.`) : null,
    el('div.wide', null, el('table.by-steps', null,
      el('thead', null, el('tr', null, el('th', { scope: 'col' }, 'Step'), table.steps.map((step) => el('th', { scope: 'col' }, step)))),
      el('tbody', null, table.ranks.map((rank, row) => el('tr', null,
        el('th', { scope: 'row' }, `rank ${rank}`), table.steps.map((_, column) => stepCell(table, row, column))))))));
}

function stepCell(table, row, column) {
  const [side, found, calls] = [table.sides[row][column], table.deviations[row][column], table.calls[row][column]];
  if (side < 0) return el('td.absent', { title: `rank ${table.ranks[row]}, step ${table.steps[column]}: no calls` });
  const letter = SIDES[Math.min(side, SIDES.length - 1)];
  const title = `rank ${table.ranks[row]}, step ${table.steps[column]}: ${plural(calls, 'call')}`
    + (found ? `, ${plural(found, 'deviation')}` : '');
  return el(`td.side-${Math.min(side, 3)}${found ? '.found' : ''}`, { title }, letter, found ? el('b', null, '!') : null);
}

function rankList(told, facts) {
  const firsts = new Map(told.by_rank.map((each) => [each.rank, each]));
  const shown = told.ranks.slice(0, 256);
  return el('section', null, el('h2', null, 'Ranks'),
    el('table.figures', null,
      el('thead', null, el('tr', null, ['Rank', 'Calls', 'Steps', 'Collectives', 'First deviation'].map((n) => el('th', { scope: 'col' }, n)))),
      el('tbody', null, shown.map((rank) => el('tr', null,
        el('td.name', null, `rank ${rank.rank}`, el('span.quiet', null, ` ${rank.host}${rank.is_closed ? '' : ', did not end normally'}`)),
        el('td', { 'data-label': 'calls' }, count(rank.calls)),
        el('td', { 'data-label': 'steps' }, count(rank.steps)),
        el('td', { 'data-label': 'collectives' }, count(rank.collectives)),
        el('td.name', null, firstOf(firsts.get(rank.rank), facts)))))),
    told.ranks.length > shown.length ? el('p.quiet', null, `and ${plural(told.ranks.length - shown.length, 'more rank')}`) : null);
}

function firstOf(d, facts) {
  if (!d) return el('span.quiet', null, 'none');
  const at = facts.rank === d.rank ? link({ call: d.index }, `call ${d.index}`) : `call ${d.index}`;
  return [el('span.chip', null, d.kind), ' step ', String(d.step), ', ', at, ' ', el('code', null, d.kernel_name)];
}
