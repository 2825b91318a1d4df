// Calls along time, a lane for each stream; the wheel zooms, dragging moves.

const LANE = 64, AXIS = 26, MARGIN = 140;
const MOST_CALLS = 0.8; // of them are in view at first

async function timeline(root, params, app) {
  const run = app.run('a');
  const [{ facts, compiled }, data] = await Promise.all([run.about(), run.sites()]);
  const told = el('span.quiet');
  const canvas = el('canvas.timeline', { tabindex: 0, role: 'img', 'aria-label': 'Calls along time; arrow keys move, plus and minus zoom' });
  const tip = el('div.tip', { hidden: true });
  const note = facts.missing.find((m) => m.what === 'times');
  const kinds = [...new Set(Object.values(data.kernels).map((kernel) => kernel.kind))];
  const button = (text, label, action) => el('button', { type: 'button', 'aria-label': label, title: label, onclick: action }, text);
  const view = new Timeline(canvas, tip, told, run, data, app, compiled.filter((graph) => graph.time));
  replace(root, el('div.timeline-page', null,
    el('div.toolbar', null, button('−', 'Zoom out', () => view.zoom(1.6)), button('+', 'Zoom in', () => view.zoom(1 / 1.6)), button('All', 'Show all', () => view.reset()),
      told, el('span.spring'), kinds.map((kind) => kindChip(kind))),
    note && facts.totals.calls ? el('p.note', null, 'Times were not measured: each call is a mark at its launch. ', el('code', null, note.how), copyButton(note.how, 'the command')) : null,
    facts.totals.calls ? [el('div.timeline-box', null, canvas, tip), view.below] : el('p.empty', null, 'No call was recorded. ', facts.missing[0]?.why || '')));
  if (facts.totals.calls) await view.load();
  return { close: () => view.close(), grown: async () => { Object.assign(data, await run.sites()); await view.load(); } };
}

class Timeline {
  constructor(canvas, tip, told, run, data, app, compiled) {
    Object.assign(this, { canvas, tip, told, run, data, app, compiled });
    this.below = el('div.in-view');
    this.begin = this.end = null;
    this.lanes = [];
    this.threads = [];
    this.hits = [];
    this.colours = {};
    canvas.addEventListener('wheel', (event) => { event.preventDefault(); this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event.offsetX)); }, { passive: false });
    canvas.addEventListener('pointerdown', (event) => { this.drag = { x: event.offsetX, begin: this.begin, end: this.end, moved: false }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener('pointermove', (event) => this.moved(event));
    canvas.addEventListener('pointerup', (event) => { const was = this.drag; this.drag = null; if (was && !was.moved) this.clicked(event); });
    canvas.addEventListener('pointerleave', () => { this.tip.hidden = true; });
    canvas.addEventListener('keydown', (event) => this.pressed(event));
    this.resizing = new ResizeObserver(() => this.paint());
    this.resizing.observe(canvas.parentElement || canvas);
    this.fetchSoon = debounced(120, () => this.load().catch((error) => say(error.message)));
    this.sumSoon = debounced(120, () => replace(this.below, this.sums()));
    this.forget = onNewColours(() => { this.colours = {}; this.paint(); });
  }

  close() {
    this.resizing.disconnect();
    this.forget();
  }

  get width() { return Math.max(200, this.canvas.clientWidth); }
  colour(name) { this.colours[name] ??= colour(name); return this.colours[name]; }

  async load() {
    const asked = this.asked = [this.begin, this.end];
    const answer = await this.run.timeline(this.begin, this.end, this.width - MARGIN);
    if (asked !== this.asked) return; // it was moved since
    this.answer = answer;
    const { low, high, calls, bins } = answer;
    this.low = Math.min(low, ...this.compiled.map((graph) => graph.start));
    this.high = Math.max(high, low + 1000, ...this.compiled.map((graph) => graph.start + graph.time));
    if (this.begin === null) [this.begin, this.end] = this.busiest(calls);
    const key = (stream, thread) => (stream ? `stream 0x${stream.toString(16)}` : `thread ${this.threadNumber(thread)}`);
    const named = new Set(this.lanes.length ? this.lanes : this.compiled.length ? ['compiling'] : []);
    for (const [, , stream, thread] of calls) named.add(key(stream, thread));
    for (const [stream, thread] of bins) named.add(key(stream, thread));
    this.lanes = [...named];
    this.laneOf = (stream, thread) => this.lanes.indexOf(key(stream, thread));
    this.paint();
  }

  threadNumber(thread) {
    if (!this.threads.includes(thread)) this.threads.push(thread);
    return this.threads.indexOf(thread) + 1;
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

  xAt(time) { return MARGIN + ((time - this.begin) / (this.end - this.begin)) * (this.width - MARGIN); }
  timeAt(x) { return this.begin + ((x - MARGIN) / (this.width - MARGIN)) * (this.end - this.begin); }

  zoom(factor, around) {
    if (this.begin === null) return;
    const centre = around ?? (this.begin + this.end) / 2;
    const span = Math.min(this.high - this.low, Math.max(200, (this.end - this.begin) * factor));
    const share = (centre - this.begin) / (this.end - this.begin);
    this.show(centre - span * share, span);
  }

  show(begin, span) {
    this.begin = Math.max(this.low, Math.min(begin, this.high - span));
    this.end = this.begin + span;
    this.paint();
    this.fetchSoon();
  }

  reset() { this.show(this.low, this.high - this.low); }

  paint() {
    if (!this.answer) return;
    const ratio = devicePixelRatio || 1;
    const height = AXIS + this.lanes.length * LANE + 8;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = this.width * ratio;
    this.canvas.height = height * ratio;
    const context = this.canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.font = '12px system-ui, sans-serif';
    this.axis(context, height);
    this.hits = [];
    for (const graph of this.compiled) this.paintCompiling(context, graph);
    for (const call of this.answer.calls) this.paintCall(context, call);
    this.paintBins(context);
    replace(this.told, `${duration(this.end - this.begin)} of ${duration(this.high - this.low)}`,
      this.answer.bins.length ? ' · zoom in to see single calls' : ` · ${plural(this.hits.filter((hit) => hit.index !== undefined).length, 'call')} in view`);
    this.sumSoon();
  }

  axis(context, height) {
    const span = this.end - this.begin;
    const step = [1, 2, 5, 10].map((n) => n * 10 ** Math.floor(Math.log10(span / 5))).filter((n) => span / n <= 9)[0];
    context.fillStyle = this.colour('soft');
    context.strokeStyle = this.colour('line');
    context.beginPath();
    for (let time = Math.ceil((this.begin - this.low) / step) * step; time <= this.end - this.low; time += step) {
      const x = Math.round(this.xAt(this.low + time)) + 0.5;
      context.moveTo(x, 20);
      context.lineTo(x, height);
      context.fillText(axisLabel(time, step), x + 3, 14);
    }
    this.lanes.forEach((lane, at) => {
      const y = AXIS + at * LANE;
      context.moveTo(0, y + LANE - 1.5);
      context.lineTo(this.width, y + LANE - 1.5);
      context.fillText(clipped(lane, 20), 4, y + LANE / 2 + 4);
    });
    context.stroke();
  }

  paintCompiling(context, graph) {
    const from = Math.max(MARGIN, this.xAt(graph.start)), to = this.xAt(graph.start + graph.time);
    if (to < MARGIN || from > this.width) return;
    const y = AXIS + 7;
    context.fillStyle = this.colour('raised');
    context.fillRect(from, y, to - from, LANE - 16);
    context.strokeStyle = this.colour('soft');
    context.strokeRect(from + 0.5, y + 0.5, Math.max(1, to - from - 1), LANE - 17);
    this.label(context, graph.name, from, y, to - from, 'ink');
    this.hits.push({ left: from, right: to, top: y, name: `compiling ${graph.name}`, time: graph.time, start: graph.start });
  }

  label(context, text, from, y, wide, colour_) {
    if (wide < 46) return;
    context.save();
    context.beginPath();
    context.rect(from, y, wide - 3, LANE - 16);
    context.clip();
    context.fillStyle = this.colour(colour_);
    context.fillText(visible(text), from + 6, y + LANE / 2 - 4);
    context.restore();
  }

  // Where the time in view went.
  sums() {
    const byName = new Map();
    for (const { name, time, index, many } of this.hits) {
      if (index === undefined || many) continue;
      const sum = byName.get(name) || { calls: 0, time: 0 };
      byName.set(name, { calls: sum.calls + 1, time: sum.time + (time || 0) });
    }
    const rows = [...byName].sort(([, a], [, b]) => b.time - a.time || b.calls - a.calls);
    const whole = rows.reduce((all, [, sum]) => all + sum.time, 0);
    if (!rows.length) return null;
    return [el('h2', null, 'In view'), el('table', null,
      el('thead', null, el('tr', null, el('th', { scope: 'col' }, 'Kernel'), ['Calls', 'Total'].map((n) => el('th.n', { scope: 'col' }, n)), el('th', { scope: 'col' }, 'Share'))),
      el('tbody', null, rows.slice(0, 15).map(([name, sum]) => el('tr', null,
        el('td.name', null, name), el('td.n', null, count(sum.calls)), el('td.n', null, whole ? duration(sum.time) : ''), el('td', null, whole ? bar(sum.time / whole) : null)))))];
  }

  paintCall(context, [index, site, stream, thread, start, time]) {
    const left = this.xAt(start), right = this.xAt(start + (time || 0));
    if (right < MARGIN || left > this.width || !this.data.sites[site]) return;
    const y = AXIS + this.laneOf(stream, thread) * LANE + 7;
    const kernel = this.data.kernels[this.data.sites[site].kernel];
    const from = Math.max(MARGIN, left), wide = Math.max(time === null ? 2 : 1, right - from);
    context.fillStyle = this.colour(KIND_COLOURS.has(kernel.kind) ? `kind-${kernel.kind}` : 'kind-other');
    context.fillRect(from, y, Math.max(0.7, wide - (wide > 3 ? 1 : 0)), LANE - 16);
    this.label(context, kernel.name, from, y, wide, 'on-kind');
    this.hits.push({ left: from - 1, right: from + wide + 1, top: y, index, name: kernel.name, time, start });
  }

  paintBins(context) {
    const { bins, first, width } = this.answer;
    if (!bins.length) return;
    const most = Math.max(...bins.map(([, , , n]) => n));
    context.fillStyle = this.colour('accent');
    for (const [stream, thread, bin, n, busy, index] of bins) {
      const left = this.xAt(first + bin * width), right = this.xAt(first + (bin + 1) * width);
      if (right < MARGIN || left > this.width) continue;
      const share = busy ? Math.min(1, busy / width) : n / most;
      const high = Math.max(2, share * (LANE - 12));
      const bottom = AXIS + this.laneOf(stream, thread) * LANE + LANE - 6;
      context.fillRect(left, bottom - high, Math.max(1, right - left), high);
      this.hits.push({ left, right, top: bottom - LANE + 12, index, name: `${plural(n, 'call')}`, time: busy, start: first + bin * width, many: true });
    }
  }

  hit(event) {
    const { offsetX: x, offsetY: y } = event;
    return this.hits.findLast((hit) => x >= hit.left && x <= hit.right && y >= hit.top && y <= hit.top + LANE - 12);
  }

  moved(event) {
    if (this.drag && (this.drag.moved || Math.abs(event.offsetX - this.drag.x) > 3)) {
      this.drag.moved = true;
      const shift = ((event.offsetX - this.drag.x) / (this.width - MARGIN)) * (this.drag.end - this.drag.begin);
      this.show(this.drag.begin - shift, this.drag.end - this.drag.begin);
      return;
    }
    const hit = this.hit(event);
    this.canvas.style.cursor = hit ? 'pointer' : 'grab';
    this.tip.hidden = !hit;
    if (!hit) return;
    replace(this.tip, el('b', null, hit.many || hit.index === undefined ? hit.name : `call ${hit.index}`), ' ', hit.many ? `from call ${hit.index}` : hit.index === undefined ? '' : hit.name,
      el('div.quiet', null, [hit.time !== null && duration(hit.time), `at ${duration(hit.start - this.low) || '0'}`].filter(Boolean).join(' · ')));
    this.tip.style.left = `${Math.min(event.offsetX + 14, this.width - 260)}px`;
    this.tip.style.top = `${event.offsetY + 16}px`;
  }

  clicked(event) {
    const hit = this.hit(event);
    if (hit?.many) this.zoom(0.2, this.timeAt(event.offsetX));
    else if (hit?.index !== undefined) this.app.go({ call: hit.index });
  }

  pressed(event) {
    const span = this.end - this.begin;
    const moves = { ArrowLeft: () => this.show(this.begin - span / 8, span), ArrowRight: () => this.show(this.begin + span / 8, span),
      '+': () => this.zoom(1 / 1.6), '=': () => this.zoom(1 / 1.6), '-': () => this.zoom(1.6), 0: () => this.reset() };
    if (!(event.key in moves) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    moves[event.key]();
  }
}

// In the unit of the whole, with as many digits as tell two marks apart.
function axisLabel(time, step) {
  const [unit, size] = [['s', 1e9], ['ms', 1e6], ['µs', 1e3]].find(([, each]) => time >= each) || ['ns', 1];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(size / step) - 1e-9)));
  return time ? `${(time / size).toFixed(digits)} ${unit}` : '0';
}

const KIND_COLOURS = new Set(['triton', 'cpp', 'extern', 'op', 'gcu']);
