// The whole run in one strip, and on it the part that is in view: drag it, drag its edges, or click elsewhere.

const MINIMAP = 46, EDGE = 7, COMPILED = 8;

class Minimap {
  // frame() gives {low, high, begin, end, left, width}; show(begin, end) brings another part into view.
  constructor(frame, show, colour) {
    Object.assign(this, { frame, show, colour });
    this.whole = null;
    this.element = el('canvas.minimap', { role: 'img', 'aria-label': 'The whole run; drag to choose what is in view' });
    this.element.addEventListener('pointerdown', (event) => this.pressed(event));
    this.element.addEventListener('pointermove', (event) => this.moved(event));
    for (const end of ['pointerup', 'pointercancel']) this.element.addEventListener(end, () => { this.drag = null; });
  }

  // answer: calls or bins of the whole run; compiled: graphs with start and time.
  setWhole(answer, compiled) { this.whole = answer; this.compiled = compiled; }

  xAt(time) { const { low, high, left, width } = this.frame(); return left + ((time - low) / (high - low)) * width; }
  timeAt(x) { const { low, high, left, width } = this.frame(); return low + ((x - left) / width) * (high - low); }

  // Per pixel: the share of time that calls took, or their number where nothing was measured.
  density(width, low, high) {
    const columns = new Float64Array(Math.max(1, Math.floor(width)));
    const per = (high - low) / columns.length;
    const isTimed = this.whole.calls.some((call) => call[5]) || this.whole.bins.some((bin) => bin[4]);
    const put = (start, time, n) => {
      const from = Math.max(0, (start - low) / per), to = Math.min(columns.length, (start + (time || 0) - low) / per);
      if (!isTimed || !time) { columns[Math.min(columns.length - 1, Math.floor(from))] += isTimed ? 0.02 : n; return; }
      for (let at = Math.floor(from); at < to; at++) columns[at] += Math.min(to, at + 1) - Math.max(from, at);
    };
    for (const [, , , , start, time] of this.whole.calls) put(start, time, 1);
    const { bins, first, width: wide } = this.whole;
    for (const [, , bin, n, busy] of bins) put(first + bin * wide, busy ? Math.min(busy, wide) : 0, n);
    return columns;
  }

  paint() {
    if (!this.whole) return;
    const { low, high, begin, end, left, width } = this.frame();
    const context = sized(this.element, left + width, MINIMAP);
    const floor = MINIMAP - 6, room = floor - COMPILED - 8;
    context.fillStyle = this.colour('soft');
    context.fillText(fitted(context, 'whole run', left - 10), 8, 20);
    context.fillText(fitted(context, duration(high - low), left - 10), 8, 36);
    context.fillStyle = this.colour('raised');
    context.fillRect(left, 4, width, MINIMAP - 8);
    context.fillStyle = this.colour('compiling-edge');
    for (const graph of this.compiled) context.fillRect(this.xAt(graph.start), 5, Math.max(2, (graph.time / (high - low)) * width), COMPILED - 2);
    const columns = this.density(width, low, high);
    const most = columns.reduce((a, b) => Math.max(a, b), 1e-9);
    context.fillStyle = this.colour('accent');
    columns.forEach((share, at) => {
      if (!share) return;
      const tall = Math.max(2, Math.sqrt(share / most) * room);
      context.fillRect(left + at, floor - tall, 1, tall);
    });
    const [from, to] = this.window(begin, end);
    context.fillStyle = this.colour('veil');
    context.fillRect(left, 3, from - left, MINIMAP - 6);
    context.fillRect(to, 3, left + width - to, MINIMAP - 6);
    context.strokeStyle = this.colour('ink');
    context.lineWidth = 1.5;
    context.strokeRect(from + 0.75, 3.75, Math.max(1, to - from - 1.5), MINIMAP - 7.5);
    context.fillStyle = this.colour('ink');
    for (const x of [from, to]) context.fillRect(x - 2, MINIMAP / 2 - 8, 4, 16);
  }

  // Never narrower than can be seen and held.
  window(begin, end) {
    const { left, width } = this.frame();
    const from = Math.max(left, Math.min(this.xAt(begin), left + width - 4));
    return [from, Math.max(from + 4, Math.min(left + width, this.xAt(end)))];
  }

  part(x) {
    const { begin, end } = this.frame();
    const [from, to] = this.window(begin, end);
    if (to - from > 4 * EDGE && Math.abs(x - from) <= EDGE) return 'begin';
    if (to - from > 4 * EDGE && Math.abs(x - to) <= EDGE) return 'end';
    return x > from - EDGE && x < to + EDGE ? 'inside' : 'outside';
  }

  pressed(event) {
    if (!this.whole) return;
    const { begin, end } = this.frame();
    const part = this.part(event.offsetX);
    this.element.setPointerCapture(event.pointerId);
    this.drag = { part, begin, end, at: this.timeAt(event.offsetX) };
    if (part !== 'outside') return;
    const half = (end - begin) / 2;
    this.show(this.drag.at - half, this.drag.at + half);
    this.drag = { part: 'inside', at: this.drag.at, begin: this.frame().begin, end: this.frame().end };
  }

  moved(event) {
    if (!this.drag) {
      const part = this.part(event.offsetX);
      this.element.style.cursor = part === 'inside' ? 'grab' : part === 'outside' ? 'pointer' : 'ew-resize';
      return;
    }
    const { part, begin, end, at } = this.drag;
    const now = this.timeAt(event.offsetX), least = 200;
    if (part === 'begin') this.show(Math.min(now, end - least), end);
    else if (part === 'end') this.show(begin, Math.max(now, begin + least));
    else this.show(begin + now - at, end + now - at);
  }
}

// A canvas of so many pixels of the page, ready to be drawn on.
function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = '12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';
  return context;
}
