// What became of each line: source, graph stages, kernels and wrapper, linked by what they share.

const STAGE_WORDS = {
  dynamo: 'Dynamo’s graph', guards: 'guards', pre_grad: 'before autograd', joint: 'forward and backward', aot: 'this graph alone',
  post_grad: 'after Inductor’s passes', schedule_before: 'scheduler, before fusion', schedule: 'scheduler, fused', output_code: 'wrapper and kernels',
};

async function pipeline(root, params, app) {
  const run = app.run('a');
  const [{ facts, compiled: graphs }, data, counts] = await Promise.all([run.about(), run.sites(), run.counts()]);
  if (!graphs.length) {
    replace(root, el('div.empty', null, el('h1', null, 'No compiled graph'), el('p', null, 'No graph was compiled or executed during the recording.'),
      facts.missing.filter((m) => m.what === 'stages' || m.what === 'calls').map((m) => el('p', null, m.why, ' ', el('code', null, m.how), copyButton(m.how, 'the command')))));
    return null;
  }
  const at = Math.min(Number(params.graph) || 0, graphs.length - 1);
  const graph = await run.graph(at);
  const view = new Pipeline(graph, data, counts, app);
  const chosen = choice('Graph', 'graph', graphs.map((g, i) => [i, g.name]), at);
  chosen.options[0].remove();
  chosen.addEventListener('input', () => app.go({ pipeline: true, graph: chosen.value }));
  const note = facts.missing.find((m) => m.what === 'stages');
  replace(root, el('div.pipeline', null,
    el('div.toolbar', null, chosen,
      el('span.quiet', null, graph.staged ? `${graph.made} · ${plural(graph.launches.length, 'launch').replace('launchs', 'launches')} · ${plural(graph.kernels.length, 'generated kernel')}` : 'without stages: wrapper, kernels and lines only'),
      note && !graph.staged ? el('span.how', null, el('code', null, note.how), copyButton(note.how, 'the command')) : null,
      el('span.spring'), view.fusionButton),
    view.selection, view.tabs, view.fusion ? split('fusion', 'rows', [view.fusion.element, view.element], [view.fusion.share, 1 - view.fusion.share]) : view.element));
  if (params.launch !== undefined && graph.launches[params.launch]) requestAnimationFrame(() => view.pick(graph.launches[params.launch].atoms));
  return { close: () => view.close(), escape: () => view.pick([]), list: view.source.list, pressed: (event) => event.key === 'f' && Boolean(view.fusion) && view.toggleFusion() };
}

class Pipeline {
  constructor(graph, data, counts, app) {
    Object.assign(this, { graph, data, counts, app });
    this.pinned = new Set();
    this.kernelShown = -1;
    this.launchOf = new Map();
    graph.launches.forEach((launch, at) => launch.atoms.forEach((atom) => this.launchOf.set(atom, at)));
    this.selection = el('div.selection', { 'aria-live': 'polite' });
    this.source = this.pane('Your source');
    this.stage = this.pane('Stage');
    this.kernel = this.pane('Kernel');
    this.wrapper = this.pane('Wrapper');
    this.panes = [this.source, this.stage, this.kernel, this.wrapper];
    this.fusion = graph.fusion ? new FusionGraph(graph, { point: (atoms) => this.point(atoms), pick: (atoms) => this.pick(atoms) }) : null;
    this.fusionButton = this.fusion ? el('button', { type: 'button', 'aria-pressed': 'false', onclick: () => this.toggleFusion() }, 'Fusion graph') : null;
    if (this.fusion) this.fusion.element.hidden = true;
    const boxes = this.boxes();
    const [source, stage, kernel, wrapper] = boxes;
    this.element = split('panes', 'rows', [split('upper', 'columns', [source, stage]), split('lower', 'columns', [kernel, wrapper])]);
    this.element.classList.add('panes');
    this.tabs = this.paneTabs(boxes);
    // A choice is read as far as its pane is wide.
    this.resizing = new ResizeObserver((entries) => entries.forEach(({ target, contentRect }) => relabel(target.querySelector('select'), (contentRect.width - 170) / 9)));
    boxes.forEach((box) => this.resizing.observe(box));
    this.fill();
    this.pick([]);
  }

  close() {
    for (const pane of this.panes) pane.close();
    this.resizing.disconnect();
  }

  // Where only one pane fits the window: which one it is.
  paneTabs(boxes) {
    const tabs = ['Source', 'Graph', 'Kernel', 'Wrapper'].map((name, at) => el('button', { type: 'button', role: 'tab', onclick: () => show(at) }, name));
    const show = (at) => {
      boxes.forEach((box, i) => box.classList.toggle('chosen', i === at));
      boxes.forEach((box) => box.parentElement?.classList.toggle('chosen', box.parentElement.contains(boxes[at])));
      tabs.forEach((tab, i) => tab.setAttribute('aria-selected', i === at));
      requestAnimationFrame(() => this.panes[at].mark(this.pinned, true));
    };
    show(0);
    return el('div.tabs', { role: 'tablist', 'aria-label': 'Panes' }, tabs);
  }

  pane(label) {
    return new CodePane({ label, point: (atoms) => this.point(atoms), pick: (atoms) => this.pick(atoms) });
  }

  boxes() {
    const { graph } = this;
    const files = graph.sources.map((source, i) => [i, baseName(source.file)]);
    const stages = graph.panes.flatMap((pane, i) => (pane.name === 'output_code' ? [] : [[i, pane.name + (STAGE_WORDS[pane.name] ? ` · ${STAGE_WORDS[pane.name]}` : '')]]));
    this.files = select('Source file', files, () => this.showSource());
    this.stages = select('Stage', stages, () => this.showStage());
    this.kernels = select('Kernel', graph.kernels.map((kernel, i) => [i, kernel.name]), () => this.showKernel(Number(this.kernels.value)));
    const preferred = graph.panes.findIndex((pane) => pane.name === 'post_grad');
    if (preferred >= 0) this.stages.value = preferred;
    this.sourceNote = el('span.quiet');
    const wrapper = graph.panes.find((pane) => pane.name === 'output_code');
    const box = (title, chooser, pane, text, note) => el(title === 'Kernel' ? 'section.pane.all-marked' : 'section.pane', null,
      el('div.pane-bar', null, el('h2', null, title), chooser, note || null, el('span.spring'), copyButton(text, title.toLowerCase())), pane.element);
    return [
      box('Source', this.files, this.source, () => this.source.lines.map((l) => l.text ?? '').join('\n'), this.sourceNote),
      box('Graph', this.stages, this.stage, () => graph.panes[this.stages.value]?.text || ''),
      box('Kernel', this.kernels, this.kernel, () => graph.kernels[this.kernels.value]?.text || ''),
      box('Wrapper', null, this.wrapper, () => wrapper?.text || ''),
    ];
  }

  fill() {
    const wrapper = this.graph.panes.find((pane) => pane.name === 'output_code');
    this.wrapper.setLines(wrapper ? codeLines(wrapper.text, linked(wrapper.lines)) : []);
    const first = wrapper ? wrapper.text.split('\n').findIndex((line) => /^\s*def call\(/.test(line)) : -1;
    this.wrapper.from = Math.max(0, first);
    if (first > 0) requestAnimationFrame(() => this.wrapper.list.reveal(first, true));
    this.showSource();
    this.showStage();
    if (this.graph.kernels.length) this.showKernel(0);
  }

  showSource() {
    const source = this.graph.sources[this.files.value || 0];
    this.source.setLines(source ? source.text.map(([n, text]) => ({ number: n, text, atoms: source.lines[n] || [] })) : []);
    replace(this.sourceNote, source && !source.whole ? 'only lines quoted in the run' : '');
    const first = source ? source.text.findIndex(([n]) => source.lines[n]) : -1;
    if (first > 8) requestAnimationFrame(() => this.source.list.reveal(first, true));
    this.source.mark(this.pinned, false);
  }

  showStage() {
    const pane = this.graph.panes[this.stages.value];
    this.stage.setLines(pane && pane.name !== 'output_code' ? codeLines(pane.text, linked(pane.lines)) : [], pane?.language);
    this.stage.mark(this.pinned, true);
  }

  showKernel(at) {
    if (this.kernelShown === at) return;
    this.kernelShown = at;
    this.kernels.value = at;
    const kernel = this.graph.kernels[at];
    this.kernel.setLines(codeLines(kernel.text, () => kernel.atoms), kernel.language);
    this.kernel.mark(this.pinned, false);
  }

  // While the mouse is over something; what is pinned stays when it leaves.
  point(atoms) {
    const key = atoms.length ? atoms.join() : '';
    if (key === this.pointedKey) return;
    this.pointedKey = key;
    this.show(atoms.length ? new Set(atoms) : this.pinned, false);
  }

  pick(atoms) {
    this.pinned = new Set(atoms);
    this.pointedKey = undefined;
    if (atoms.length) {
      const shown = this.graph.kernels.findIndex((kernel) => kernel.atoms.some((atom) => this.pinned.has(atom)));
      if (shown >= 0 && !this.graph.kernels[this.kernelShown]?.atoms.some((atom) => this.pinned.has(atom))) this.showKernel(shown);
      const file = this.graph.sources.findIndex((source) => Object.values(source.lines).flat().some((atom) => this.pinned.has(atom)));
      const current = this.graph.sources[this.files.value || 0];
      if (file >= 0 && !Object.values(current.lines).flat().some((atom) => this.pinned.has(atom))) { this.files.value = file; this.showSource(); }
    }
    this.show(this.pinned, true);
    replace(this.selection, this.describe(atoms));
  }

  show(atoms, follow) {
    for (const pane of this.panes) pane.mark(atoms, follow);
    [...this.tabs.children].forEach((tab, at) => tab.classList.toggle('marked', this.panes[at].lines.some((line) => this.panes[at].isMarked(line))));
    this.fusion?.mark(atoms, follow);
  }

  describe(atoms) {
    if (!atoms.length) return el('span.quiet', null, NARROW.matches ? 'Tap a line to highlight its counterparts in the other panes.' : 'Point at a line, a node or a kernel to highlight its counterparts; click to pin them.');
    const launches = [...new Set(atoms.map((atom) => this.launchOf.get(atom)))].sort((a, b) => a - b);
    return [
      el('button.quiet', { type: 'button', onclick: () => this.pick([]) }, 'clear (Esc)'),
      launches.slice(0, 12).map((at) => this.launchChip(at, launches.length === 1)),
      launches.length > 12 ? el('span.quiet', null, `and ${launches.length - 12} more launches`) : null,
    ];
  }

  launchChip(at, isOnly) {
    const launch = this.graph.launches[at];
    const ran = launch.sites.flatMap((id) => (this.counts[id] ? [this.counts[id]] : []));
    const first = ran.map(([, , index]) => index).sort((a, b) => a - b)[0];
    const calls = ran.reduce((all, [n]) => all + n, 0);
    return el('span.launch', null,
      el('button', { type: 'button', title: 'Only this launch', 'aria-label': launch.kernel, onclick: () => this.pick(launch.atoms) }, middle(launch.kernel)),
      isOnly && launch.nodes.length ? el('span.quiet', null, plural(launch.nodes.length, 'node')) : null,
      first !== undefined ? link({ call: first }, `call ${first}`) : el('span.quiet', null, 'not called'),
      calls > 1 ? el('span.quiet', null, `${count(calls)}×`) : null,
      isOnly && launch.sites.length ? link({ calls: true, kernel: this.data.sites[launch.sites[0]].kernel }, 'all calls of this kernel') : null);
  }

  toggleFusion() {
    const isShown = this.fusion.element.hidden;
    this.fusionButton.setAttribute('aria-pressed', isShown);
    this.fusion.element.hidden = !isShown;
    requestAnimationFrame(() => this.show(this.pinned, true));
    return true;
  }
}

function relabel(chooser, letters) {
  for (const each of chooser?.options || []) each.label = clipped(each.textContent, Math.max(8, Math.floor(letters)));
}

function select(label, options, changed) {
  const made = el('select', { 'aria-label': label }, options.map(([value, text]) => option(value, text)));
  made.addEventListener('input', changed);
  made.hidden = !options.length;
  return made;
}
