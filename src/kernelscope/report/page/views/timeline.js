// Steps, graphs, compilations and calls along time; the wheel zooms, dragging moves.

const MOST_CALLS = 0.8; // of them are in view at first
const LEAST_SPAN = 200; // nanoseconds across the window
const CLICKS = { call: 'click to open', calls: 'click to zoom in', graph: 'click to zoom in', step: 'click to zoom in', compiling: 'click to see its stages', away: 'click to go there' };

async function timeline(root, params, app) {
  const run = app.run('a');
  const [{ facts, compiled }, data] = await Promise.all([run.about(), run.sites()]);
  const note = facts.missing.find((m) => m.what === 'times');
  const kinds = [...new Set(Object.values(data.kernels).map((kernel) => kernel.kind))];
  const button = (text, label, action) => el('button', { type: 'button', 'aria-label': label, title: label, onclick: action }, text);
  const view = new Timeline(run, data, app, compiled);
  replace(root, el('div.timeline-page', null,
    el('div.toolbar', null, el('span.together', null, button('−', 'Zoom out', () => view.zoom(1.6)), button('+', 'Zoom in', () => view.zoom(1 / 1.6)), button('All', 'Show all', () => view.reset())),
      el('span.together', null, button('‹', 'Previous step', () => view.toStep(-1)), button('›', 'Next step', () => view.toStep(1))),
      view.told, el('span.spring'), el('span.legend', null, kinds.map((kind) => kindChip(kind)))),
    note && facts.totals.calls ? el('p.note', null, 'Times were not measured: each call is a mark at its launch. ', el('code', null, note.how), copyButton(note.how, 'the command')) : null,
    facts.totals.calls ? [el('div.timeline-box', null, view.minimap.element, view.canvas, view.tip), view.below] : el('p.empty', null, 'No call was recorded. ', facts.missing[0]?.why || '')));
  if (facts.totals.calls) await view.load();
  return {
    close: () => view.close(),
    pressed: (event) => view.pressed(event),
    grown: async () => { Object.assign(data, await run.sites()); view.minimap.whole = null; await view.load(); },
  };
}

class Timeline {
  constructor(run, data, app, compiled) {
    Object.assign(this, { run, data, app });
    this.graphs = compiled;
    this.compiled = compiled.map((graph, at) => ({ ...graph, at })).filter((graph) => graph.time);
    this.told = el('span.quiet');
    this.canvas = el('canvas.timeline', { tabindex: 0, role: 'img', 'aria-label': 'Calls along time; arrow keys move, plus and minus zoom' });
    this.tip = el('div.tip', { hidden: true });
    this.below = el('div.in-view');
    this.begin = this.end = null;
    this.colours = {};
    this.lit = null;
    this.pointers = new Map();
    this.lanes = new Lanes(this);
    this.minimap = new Minimap(() => this.frame(), (begin, end) => this.show(begin, end - begin), (name) => this.colour(name));
    this.listen(this.canvas);
    this.resizing = new ResizeObserver(() => { if (this.canvas.clientWidth !== this.paintedWidth) this.paint(); });
    this.resizing.observe(this.canvas);
    this.fetchSoon = debounced(120, () => this.load().catch((error) => say(error.message)));
    this.sumSoon = debounced(120, () => replace(this.below, this.sums()));
    this.forget = onNewColours(() => { this.colours = {}; this.paint(); });
  }

  listen(canvas) {
    for (const each of [canvas, this.minimap.element]) {
      each.addEventListener('wheel', (event) => {
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          this.show(this.begin + (event.deltaX / this.frame().width) * (this.end - this.begin), this.end - this.begin);
        } else if (each === canvas || event.ctrlKey) {
          event.preventDefault();
          this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event.offsetX));
        }
      }, { passive: false });
    }
    canvas.addEventListener('pointerdown', (event) => {
      this.pointers.set(event.pointerId, event.offsetX);
      this.drag = { x: event.offsetX, begin: this.begin, end: this.end, moved: this.pointers.size > 1 };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => this.moved(event));
    canvas.addEventListener('pointerup', (event) => {
      const was = this.drag;
      this.pointers.delete(event.pointerId);
      this.drag = null;
      if (was && !was.moved) this.clicked(event);
    });
    canvas.addEventListener('pointercancel', (event) => { this.pointers.delete(event.pointerId); this.drag = null; });
    canvas.addEventListener('pointerleave', (event) => { if (event.pointerType === 'mouse') this.tip.hidden = true; });
  }

  close() {
    this.resizing.disconnect();
    this.forget();
  }

  get width() { return Math.max(200, this.canvas.clientWidth); }
  get margin() { return this.width < 600 ? 78 : 140; }
  frame() { return { low: this.low, high: this.high, begin: this.begin, end: this.end, left: this.margin, width: this.width - this.margin }; }
  colour(name) { this.colours[name] ??= colour(name); return this.colours[name]; }

  async load() {
    const asked = this.asked = [this.begin, this.end];
    const bins = Math.max(100, this.width - this.margin);
    if (!this.minimap.whole) this.minimap.setWhole(await this.run.timeline(null, null, bins), this.compiled);
    const answer = this.begin === null ? this.minimap.whole : await this.run.timeline(this.begin, this.end, bins);
    if (asked !== this.asked) return; // it was moved since
    this.answer = answer;
    this.low = Math.min(answer.low, ...this.compiled.map((graph) => graph.start));
    this.high = Math.max(answer.high, answer.low + 1000, ...this.compiled.map((graph) => graph.start + graph.time));
    if (this.begin === null) [this.begin, this.end] = this.busiest(answer.calls);
    this.paint();
  }

  // A program may compile for minutes between two calls: begin where most calls are.
  busiest(calls) {
    const most = Math.ceil(MOST_CALLS * calls.length);
    const sorted = [...calls].sort((a, b) => a[4] - b[4]);
    const ends = sorted.map(([, , , , start, time]) => start + (time || 0));
    let [begin, end] = [this.low, this.high];
    for (let at = 0; most && at + most <= sorted.length; at++) {
      if (ends[at + most - 1] - sorted[at][4] < end - begin) [begin, end] = [sorted[at][4], ends[at + most - 1]];
    }
    if (end - begin > (this.high - this.low) / 2) return [this.low, this.high];
    const margin = (end - begin) / 50 + 100;
    return [Math.max(this.low, begin - margin), Math.min(this.high, end + margin)];
  }

  xAt(time) { return this.margin + ((time - this.begin) / (this.end - this.begin)) * (this.width - this.margin); }
  timeAt(x) { return this.begin + ((x - this.margin) / (this.width - this.margin)) * (this.end - this.begin); }

  zoom(factor, around) {
    if (this.begin === null) return;
    const centre = around ?? (this.begin + this.end) / 2;
    const span = Math.min(this.high - this.low, Math.max(LEAST_SPAN, (this.end - this.begin) * factor));
    const share = (centre - this.begin) / (this.end - this.begin);
    this.show(centre - span * share, span);
  }

  show(begin, wanted) {
    const span = Math.min(this.high - this.low, Math.max(LEAST_SPAN, wanted));
    this.begin = Math.max(this.low, Math.min(begin, this.high - span));
    this.end = this.begin + span;
    this.tip.hidden = true;
    this.paint();
    this.fetchSoon();
  }

  reset() { if (this.begin !== null) this.show(this.low, this.high - this.low); }

  // A part of the run with a little room around it.
  showPart(start, end) {
    const room = (end - start) / 40 + LEAST_SPAN / 2;
    this.show(start - room, end - start + 2 * room);
  }

  toStep(direction) {
    const steps = this.minimap.whole?.steps || [];
    const middle_ = (this.begin + this.end) / 2;
    const now = steps.findLastIndex(([, , start]) => start <= middle_);
    const inStep = now >= 0 && steps[now][2] >= this.begin && steps[now][3] <= this.end && this.end - this.begin < 2 * (steps[now][3] - steps[now][2]);
    const at = Math.max(0, Math.min(steps.length - 1, inStep ? now + direction : Math.max(0, now)));
    if (steps[at]) this.showPart(steps[at][2], steps[at][3]);
  }

  paint() {
    if (!this.answer) return;
    this.paintedWidth = this.canvas.clientWidth;
    this.lanes.paint();
    this.minimap.paint();
    replace(this.told, `${duration(this.end - this.begin)} of ${duration(this.high - this.low)}`,
      this.answer.bins.length ? ' · zoom in to see single calls' : ` · ${plural(this.lanes.hits.filter((hit) => hit.kind === 'call').length, 'call')} in view`);
    this.sumSoon();
  }

  // Where the time in view went.
  sums() {
    const byName = new Map();
    for (const { kind, kernel, name, time } of this.lanes.hits) {
      if (kind !== 'call') continue;
      if (!byName.has(kernel)) byName.set(kernel, { name, calls: 0, times: [] });
      const sum = byName.get(kernel);
      sum.calls += 1;
      if (time !== null) sum.times.push(time);
    }
    const rows = [...byName].map(([kernel, sum]) => [kernel, { ...sum, total: sum.times.reduce((a, b) => a + b, 0) }])
      .sort(([, a], [, b]) => b.total - a.total || b.calls - a.calls);
    const whole = rows.reduce((all, [, sum]) => all + sum.total, 0);
    if (!rows.length) return null;
    const timed = ([kernel, sum]) => {
      const sorted = sum.times.sort((a, b) => a - b);
      const row = el('tr', null, el('td.name', null, nameLink({ calls: true, kernel }, sum.name)), el('td.n', { 'data-label': 'calls' }, count(sum.calls)),
        whole ? [
          el('td.n', { 'data-label': 'total' }, duration(sum.total)), el('td.n', { 'data-label': 'median' }, duration(medianOf(sorted))),
          el('td.n', { 'data-label': 'mean' }, duration(sum.times.length ? sum.total / sum.times.length : null)), el('td.n', { 'data-label': 'max' }, duration(sorted[sorted.length - 1])),
          el('td.share', null, bar(sum.total / whole), el('span', null, percent(sum.total / whole))),
        ] : null);
      const light = (name) => () => { this.lit = name; this.lanes.paint(); };
      row.addEventListener('mouseenter', light(kernel));
      row.addEventListener('mouseleave', light(null));
      return row;
    };
    return [el('h2', null, 'In view', el('span.count', null, plural(rows.length, 'kernel'))), el('table.figures', null,
      el('thead', null, el('tr', null, el('th', { scope: 'col' }, 'Kernel'), ['Calls', ...(whole ? ['Total', 'Median', 'Mean', 'Max'] : [])].map((n) => el('th.n', { scope: 'col' }, n)), whole ? el('th', { scope: 'col' }, 'Share') : null)),
      el('tbody', null, rows.slice(0, 15).map(timed)))];
  }

  hit(event) {
    const { offsetX: x, offsetY: y } = event;
    const near = event.pointerType === 'touch' ? 6 : 1;
    return this.lanes.hits.findLast((hit) => x >= hit.left - near && x <= hit.right + near && y >= hit.top && y <= hit.bottom);
  }

  moved(event) {
    if (this.pointers.has(event.pointerId)) this.pinched(event);
    if (this.drag && !this.drag.pinched && (this.drag.moved || Math.abs(event.offsetX - this.drag.x) > 3)) {
      this.drag.moved = true;
      const shift = ((event.offsetX - this.drag.x) / (this.width - this.margin)) * (this.drag.end - this.drag.begin);
      this.show(this.drag.begin - shift, this.drag.end - this.drag.begin);
      return;
    }
    if (event.pointerType === 'mouse') this.point(event);
  }

  // Two fingers: what is under each of them stays there.
  pinched(event) {
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
    const before = this.pointers.get(event.pointerId);
    this.pointers.set(event.pointerId, event.offsetX);
    if (!others.length || !this.drag) return;
    this.drag.pinched = true;
    const [[, other]] = others;
    const [was, now] = [Math.abs(before - other), Math.abs(event.offsetX - other)];
    if (was > 8 && now > 8) this.zoom(was / now, this.timeAt(other));
  }

  point(event) {
    const hit = this.hit(event);
    this.canvas.style.cursor = hit ? 'pointer' : 'grab';
    this.tip.hidden = !hit;
    if (!hit) return null;
    replace(this.tip, el('b', null, hit.title), ' ', hit.more || '',
      el('div.quiet', null, [hit.time !== null && duration(hit.time), `at ${duration(hit.start - this.low) || '0'}`].filter(Boolean).join(' · ')),
      el('div.quiet', null, event.pointerType === 'mouse' ? CLICKS[hit.kind] : CLICKS[hit.kind].replace('click', 'tap again')));
    const box = this.canvas.getBoundingClientRect();
    const [wide, tall] = [this.tip.offsetWidth, this.tip.offsetHeight];
    this.tip.style.left = `${Math.max(4, Math.min(event.offsetX + 14, box.width - wide - 4))}px`;
    const top = this.canvas.offsetTop + event.offsetY;
    this.tip.style.top = `${box.top + event.offsetY + 16 + tall > innerHeight ? Math.max(0, top - tall - 12) : top + 16}px`;
    return hit;
  }

  clicked(event) {
    const hit = this.hit(event);
    const key = hit && `${hit.kind} ${hit.start}`;
    // A finger covers what it points at: the first touch tells, the second one acts.
    if (event.pointerType !== 'mouse' && key !== this.touched) {
      this.touched = key;
      return void this.point(event);
    }
    if (!hit) return;
    if (hit.kind === 'away') this.showPart(hit.start, hit.start + hit.time);
    else if (hit.kind === 'call') this.app.go({ call: hit.index });
    else if (hit.kind === 'calls') this.zoom(0.2, this.timeAt(event.offsetX));
    else if (hit.kind === 'compiling') this.app.go({ pipeline: true, graph: hit.graph });
    else this.showPart(hit.start, hit.start + hit.time);
  }

  pressed(event) {
    const span = this.end - this.begin;
    const moves = { ArrowLeft: () => this.show(this.begin - span / 8, span), ArrowRight: () => this.show(this.begin + span / 8, span),
      '+': () => this.zoom(1 / 1.6), '=': () => this.zoom(1 / 1.6), '-': () => this.zoom(1.6), 0: () => this.reset(),
      '[': () => this.toStep(-1), ']': () => this.toStep(1) };
    if (!(event.key in moves) || this.begin === null) return false;
    moves[event.key]();
    return true;
  }
}
