// What the timeline draws: an axis, steps, compilations, graphs, and a lane for each stream or thread.

const AXIS = 26, BAND = 22, GAP = 4, LANE = 52, MOST_BANDS = 4;
const KIND_COLOURS = new Set(['triton', 'cpp', 'extern', 'op', 'gcu']);

class Lanes {
  constructor(view) {
    this.view = view;
    this.hits = [];
    this.seen = []; // streams and threads, in the order in which they came
    this.threads = [];
  }

  laneName(stream, thread) {
    if (stream) return `stream 0x${stream.toString(16)}`;
    if (!this.threads.includes(thread)) this.threads.push(thread);
    return `thread ${this.threads.indexOf(thread) + 1}`;
  }

  // Name, top and height of each; what overlaps in time stands in bands below each other.
  layout() {
    const { answer, compiled } = this.view;
    for (const [, , stream, thread] of answer.calls) this.see(this.laneName(stream, thread));
    for (const [stream, thread] of answer.bins) this.see(this.laneName(stream, thread));
    this.compiling = bands(compiled, (graph) => [graph.start, graph.start + graph.time]);
    this.graphs = bands(answer.graphs, (graph) => [graph[3], graph[4]]);
    const tall = (of) => Math.max(1, ...of.map(([, band]) => band + 1)) * BAND + 2 * GAP;
    const lanes = [];
    const put = (name, height) => { lanes.push({ name, height, top: lanes.length ? lanes.at(-1).top + lanes.at(-1).height : AXIS }); };
    if (answer.steps.length) put('steps', BAND + 2 * GAP);
    if (this.compiling.length) put('compiling', tall(this.compiling));
    if (this.graphs.length) put('graphs', tall(this.graphs));
    for (const name of this.seen) put(name, LANE);
    this.lanes = lanes;
    this.at = new Map(lanes.map((lane) => [lane.name, lane]));
    return lanes.length ? lanes.at(-1).top + lanes.at(-1).height : AXIS;
  }

  see(name) { if (!this.seen.includes(name)) this.seen.push(name); }

  paint() {
    const { view } = this;
    const height = this.layout() + 2;
    this.context = sized(view.canvas, view.width, height);
    view.canvas.dataset.lanes = JSON.stringify(Object.fromEntries(this.lanes.map((lane) => [lane.name, [lane.top, lane.height]])));
    view.canvas.dataset.margin = view.margin;
    this.hits = [];
    this.axis(height);
    this.context.save();
    this.context.beginPath();
    this.context.rect(view.margin, 0, view.width - view.margin, height);
    this.context.clip();
    this.steps(height);
    for (const [graph, band] of this.compiling) this.compilation(graph, band);
    if (this.compiling.length && !this.hits.some((hit) => hit.kind === 'compiling')) this.compiledElsewhere();
    for (const [graph, band] of this.graphs) this.graphCall(graph, band);
    this.calls();
    this.bins();
    this.context.restore();
  }

  axis(height) {
    const { view, context } = this;
    const span = view.end - view.begin;
    const most = Math.max(2, Math.floor((view.width - view.margin) / 92));
    const step = [1, 2, 5, 10, 20, 50].map((n) => n * 10 ** Math.floor(Math.log10(span / 9))).find((n) => span / n <= most);
    context.fillStyle = view.colour('soft');
    context.strokeStyle = view.colour('line');
    context.lineWidth = 1;
    context.beginPath();
    for (let time = Math.ceil((view.begin - view.low) / step) * step; time <= view.end - view.low; time += step) {
      const x = Math.round(view.xAt(view.low + time)) + 0.5;
      context.moveTo(x, 18);
      context.lineTo(x, height);
      const label = axisLabel(time, step);
      if (x + 3 + context.measureText(label).width <= view.width) context.fillText(label, x + 3, 14);
    }
    for (const { name, top, height: tall } of this.lanes) {
      context.moveTo(0, top + tall - 0.5);
      context.lineTo(view.width, top + tall - 0.5);
      context.fillText(fitted(context, name, view.margin - 14), 8, top + tall / 2 + 4);
    }
    context.moveTo(view.margin - 0.5, AXIS - 2);
    context.lineTo(view.margin - 0.5, height);
    context.stroke();
  }

  // From a moment to another one in pixels, or null if that is out of view.
  across(start, end, least) {
    const { view } = this;
    const left = view.xAt(start), right = Math.max(view.xAt(end), left + least);
    return right < view.margin || left > view.width ? null : [Math.max(view.margin, left), Math.min(view.width, right)];
  }

  block([from, to], top, height, fill, ink, text, edge) {
    const { context, view } = this;
    const wide = Math.max(0.7, to - from - (to - from > 3 ? 1 : 0));
    context.fillStyle = view.colour(fill);
    context.fillRect(from, top, wide, height);
    if (edge && wide > 24) {
      context.fillStyle = view.colour(edge);
      context.fillRect(from, top, Math.min(3, wide), height);
    }
    if (wide < 34) return;
    context.fillStyle = view.colour(ink);
    context.fillText(fitted(context, text, wide - 12), from + 7, top + height / 2 + 4.5);
  }

  steps(height) {
    const { view, context } = this;
    const lane = this.at.get('steps');
    if (!lane) return;
    for (const [first, last, start, end] of view.answer.steps) {
      const place_ = this.across(start, end, 1);
      if (!place_) continue;
      const text = first === last ? `step ${first}` : `steps ${first} to ${last}`;
      this.block(place_, lane.top + GAP, BAND, 'step', 'ink', text, 'soft');
      const x = Math.round(view.xAt(start)) + 0.5;
      if (x >= view.margin) {
        context.strokeStyle = view.colour('step-line');
        context.setLineDash([3, 3]);
        context.beginPath();
        context.moveTo(x, lane.top + lane.height);
        context.lineTo(x, height);
        context.stroke();
        context.setLineDash([]);
      }
      this.hits.push({ kind: 'step', left: place_[0], right: place_[1], top: lane.top, bottom: lane.top + lane.height - 1, title: text, time: end - start, start });
    }
  }

  compilation(graph, band) {
    const place_ = this.across(graph.start, graph.start + graph.time, 2);
    if (!place_) return;
    const top = this.at.get('compiling').top + GAP + band * BAND;
    this.block(place_, top, BAND - 2, 'compiling', 'ink', graph.name, 'compiling-edge');
    this.hits.push({ kind: 'compiling', left: place_[0], right: place_[1], top, bottom: top + BAND - 1, title: `compiling ${graph.name}`, more: graph.made, time: graph.time, start: graph.start, graph: graph.at });
  }

  // No compilation is in view: where the nearest ones are.
  compiledElsewhere() {
    const { view, context } = this;
    const lane = this.at.get('compiling');
    const before = view.compiled.filter((graph) => graph.start < view.begin), after = view.compiled.filter((graph) => graph.start > view.end);
    const put = (graphs, text, fromRight, nearest) => {
      if (!graphs.length) return;
      const label = fitted(context, text, (view.width - view.margin) / 2 - 20);
      const wide = context.measureText(label).width;
      const left = fromRight ? view.width - wide - 8 : view.margin + 8;
      context.fillStyle = view.colour('soft');
      context.fillText(label, left, lane.top + lane.height / 2 + 4);
      this.hits.push({ kind: 'away', left: left - 4, right: left + wide + 4, top: lane.top, bottom: lane.top + lane.height - 1, title: `compiling ${nearest.name}`, time: nearest.time, start: nearest.start });
    };
    put(before, `‹ ${count(before.length)} earlier`, false, before.reduce((a, b) => (a.start > b.start ? a : b), before[0]));
    put(after, `${count(after.length)} later ›`, true, after.reduce((a, b) => (a.start < b.start ? a : b), after[0]));
  }

  graphCall([call_, id, step, start, end, many], band) {
    const place_ = this.across(start, end, 1.5);
    if (!place_) return;
    const graph = this.view.data.graphs[id];
    const name = many > 1 ? plural(many, 'graph call') : graph ? graphName(graph, id, this.view.graphs) : `graph call ${call_}`;
    const top = this.at.get('graphs').top + GAP + band * BAND;
    const fill = many > 1 ? 'accent' : graph?.direction === 'forward' || graph?.direction === 'backward' ? `graph-${graph.direction}` : 'graph-other';
    this.block(place_, top, BAND - 2, fill, 'on-kind', name);
    this.hits.push({ kind: 'graph', left: place_[0], right: place_[1], top, bottom: top + BAND - 1, title: name, more: many > 1 ? `from graph call ${call_}` : `graph call ${call_}, step ${step}`, time: end - start, start });
  }

  calls() {
    const { view, context } = this;
    for (const [index, site, stream, thread, start, time] of view.answer.calls) {
      const place_ = this.across(start, start + (time || 0), time === null ? 2 : 1);
      if (!place_ || !view.data.sites[site]) continue;
      const lane = this.at.get(this.laneName(stream, thread));
      const id = view.data.sites[site].kernel;
      const kernel = view.data.kernels[id];
      const top = lane.top + 6, height = lane.height - 12;
      context.globalAlpha = view.lit === null || view.lit === id ? 1 : 0.15;
      this.block(place_, top, height, KIND_COLOURS.has(kernel.kind) ? `kind-${kernel.kind}` : 'kind-other', 'on-kind', kernel.name);
      this.hits.push({ kind: 'call', left: place_[0], right: place_[1], top, bottom: top + height, index, kernel: id, name: kernel.name, title: `call ${index}`, more: kernel.name, time, start });
    }
    context.globalAlpha = 1;
  }

  bins() {
    const { bins, first, width } = this.view.answer;
    if (!bins.length) return;
    const most = Math.max(...bins.map(([, , , n]) => n));
    this.context.fillStyle = this.view.colour('accent');
    for (const [stream, thread, bin, n, busy, index] of bins) {
      const place_ = this.across(first + bin * width, first + (bin + 1) * width, 1);
      if (!place_) continue;
      const lane = this.at.get(this.laneName(stream, thread));
      const high = Math.max(2, (busy ? Math.min(1, busy / width) : n / most) * (lane.height - 12));
      this.context.fillRect(place_[0], lane.top + lane.height - 6 - high, place_[1] - place_[0], high);
      this.hits.push({ kind: 'calls', left: place_[0], right: place_[1], top: lane.top + 6, bottom: lane.top + lane.height - 6, title: plural(n, 'call'), more: `from call ${index}`, time: busy, start: first + bin * width });
    }
  }
}

// Each with the number of its band: the first that is free again.
function bands(spans, timesOf) {
  const ends = [];
  return [...spans].sort((a, b) => timesOf(a)[0] - timesOf(b)[0]).map((span) => {
    const [start, end] = timesOf(span);
    const free = ends.findIndex((before) => before <= start);
    const band = free >= 0 ? free : Math.min(ends.length, MOST_BANDS - 1);
    ends[band] = Math.max(end, ends[band] ?? end);
    return [span, band];
  });
}

// In the unit of the whole, with as many digits as tell two marks apart.
function axisLabel(time, step) {
  const [unit, size] = [['s', 1e9], ['ms', 1e6], ['µs', 1e3]].find(([, each]) => time >= each) || ['ns', 1];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(size / step) - 1e-9)));
  return time ? `${(time / size).toFixed(digits)} ${unit}` : '0';
}
