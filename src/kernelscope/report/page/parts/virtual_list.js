// A list of any length: only the rows in view are elements, and they are used again.

// Browsers cannot make an element higher than this. A longer list scrolls on a shorter track.
const HIGHEST = 12_000_000;
let rowNumber = 0;

class VirtualList {
  // draw(element, index) fills a row; pick(index) is called for Enter and clicks.
  constructor({ rowHeight, draw, pick, label }) {
    this.rowHeight = rowHeight;
    this.draw = draw;
    this.pick = pick;
    this.count = 0;
    this.selected = -1;
    this.exact = 0; // pixels of the whole list above the view
    this.pool = [];
    this.spacer = el('div.spacer', { role: 'presentation' });
    this.element = el('div.virtual', { tabindex: 0, role: 'listbox', 'aria-label': label }, this.spacer);
    this.element.addEventListener('scroll', () => this.scrolled(), { passive: true });
    this.element.addEventListener('wheel', (event) => this.wheeled(event), { passive: false });
    this.element.addEventListener('keydown', (event) => this.pressed(event));
    // Measured when it changes: to ask for it between changes would lay out the page each time.
    this.height = 0;
    this.resizing = new ResizeObserver(() => {
      const wasHidden = !this.height;
      this.height = this.element.clientHeight;
      if (wasHidden && this.height && this.exact) this.moveTo(this.exact); // what has no height does not scroll
      this.refresh();
    });
    this.resizing.observe(this.element);
    this.waiting = 0;
  }

  close() { this.resizing.disconnect(); }

  get whole() { return this.count * this.rowHeight; }
  get track() { return Math.min(this.whole, HIGHEST); }
  get isShortened() { return this.whole > HIGHEST; }
  get perTrack() {
    return this.isShortened ? (this.whole - this.height) / Math.max(1, this.track - this.height) : 1;
  }

  // The rows become higher or lower; the first in view stays the first.
  setRowHeight(height) {
    if (height === this.rowHeight) return;
    const first = this.exact / this.rowHeight;
    this.rowHeight = height;
    this.setCount(this.count);
    this.moveTo(first * height);
  }

  setCount(count) {
    this.count = count;
    this.spacer.style.height = `${this.track}px`;
    this.exact = Math.min(this.exact, Math.max(0, this.whole - this.height));
    this.refresh();
  }

  // Draw all rows in view again.
  refresh() {
    for (const row of this.pool) row.index = -1;
    this.soon();
  }

  soon() {
    if (!this.waiting) this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.show(); });
  }

  scrolled() {
    const top = this.element.scrollTop;
    if (Math.abs(top - this.expected) > 1) this.exact = top * this.perTrack;
    this.expected = top;
    this.soon();
  }

  // On a shortened track a turn of the wheel would skip rows: it moves by what it says instead.
  wheeled(event) {
    if (!this.isShortened || event.ctrlKey || !event.deltaY) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? this.rowHeight : event.deltaMode === 2 ? this.height : 1;
    this.moveTo(this.exact + event.deltaY * unit);
  }

  moveTo(pixels) {
    this.exact = Math.max(0, Math.min(pixels, this.whole - this.height));
    this.expected = Math.round(this.exact / this.perTrack);
    this.element.scrollTop = this.expected;
    this.soon();
  }

  reveal(index, centred) {
    if (!this.height) this.height = this.element.clientHeight;
    const top = index * this.rowHeight;
    if (centred) this.moveTo(top - this.height / 2 + this.rowHeight / 2);
    else if (top < this.exact) this.moveTo(top);
    else if (top + this.rowHeight > this.exact + this.height) this.moveTo(top + this.rowHeight - this.height);
  }

  // Draw again what was filled in, if it is in view.
  refreshFrom(first, size) {
    if (first < this.last && first + size > this.first) this.refresh();
  }

  get first() { return Math.max(0, Math.floor(this.exact / this.rowHeight) - 4); }
  get last() { return Math.min(this.count, Math.ceil((this.exact + this.height) / this.rowHeight) + 4); }

  show() {
    if (!this.height) return;
    const needed = Math.ceil(this.height / this.rowHeight) + 10;
    while (this.pool.length < needed) {
      const row = { index: -1, element: el('div.row', { role: 'option', id: `row-${rowNumber++}` }) };
      row.element.addEventListener('click', () => { this.select(row.index); this.pick?.(row.index); });
      this.pool.push(row);
      this.spacer.append(row.element);
    }
    const shift = this.element.scrollTop - this.exact;
    const used = new Set();
    const { first, last } = this;
    for (let index = first; index < last; index++) {
      const row = this.pool[index % this.pool.length];
      used.add(row);
      row.element.style.transform = `translateY(${Math.round(index * this.rowHeight + shift)}px)`;
      if (row.index === index) continue;
      row.index = index;
      row.element.hidden = false;
      row.element.setAttribute('aria-posinset', index + 1);
      row.element.setAttribute('aria-setsize', this.count);
      this.draw(row.element, index);
      this.markSelected(row);
    }
    for (const row of this.pool) {
      if (!used.has(row)) { row.element.hidden = true; row.index = -1; }
    }
  }

  select(index) {
    this.selected = Math.max(0, Math.min(index, this.count - 1));
    for (const row of this.pool) this.markSelected(row);
  }

  markSelected(row) {
    const isSelected = row.index >= 0 && row.index === this.selected;
    row.element.classList.toggle('selected', isSelected);
    row.element.setAttribute('aria-selected', isSelected);
    if (isSelected) this.element.setAttribute('aria-activedescendant', row.element.id);
  }

  pressed(event) {
    const page = Math.max(1, Math.floor(this.height / this.rowHeight) - 1);
    const moves = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.select(Math.max(this.selected, -1) + moves[event.key]);
    else if (event.key === 'Home') this.select(0);
    else if (event.key === 'End') this.select(this.count - 1);
    else if (event.key === 'Enter' && this.selected >= 0) return void this.pick?.(this.selected);
    else return;
    event.preventDefault();
    event.stopPropagation();
    this.reveal(this.selected);
  }
}

// Rows that come in pages: `get` gives one or asks for its page, and `changed` is called when it is there.
class Pages {
  constructor(fetchPage, changed, size = 200) {
    Object.assign(this, { fetchPage, changed, size });
    this.pages = new Map();
    this.asked = new Set();
    this.pending = [];
    this.closed = false;
  }

  get(index) {
    const page = Math.floor(index / this.size);
    const rows = this.pages.get(page);
    if (!rows) {
      this.ask(page);
      return undefined;
    }
    const within = index - page * this.size;
    if (within > 0.6 * this.size && rows.length === this.size) this.askLater(page + 1);
    if (within < 0.4 * this.size && page) this.askLater(page - 1);
    return rows[within];
  }

  // What may be looked at next, when there is nothing better to ask for.
  askLater(page) {
    if (this.pages.has(page) || this.asked.has(page) || this.pending.length) return;
    this.pending.push(page);
    this.next();
  }

  // The newest question first, and few at a time; not while every frame asks for something else, because
  // rows that are scrolled past so fast are not read.
  ask(page) {
    if (this.asked.has(page) || this.pending.includes(page)) return;
    this.pending = [page, ...this.pending].slice(0, 3);
    clearTimeout(this.timer);
    if (this.pages.size) this.timer = setTimeout(() => this.next(), 40);
    else this.next();
  }

  async next() {
    if (this.asked.size >= 2 || !this.pending.length || this.closed) return;
    const page = this.pending.shift();
    this.asked.add(page);
    try {
      const answer = await this.fetchPage(page * this.size, this.size);
      if (this.closed) return;
      if (this.pages.size > 200) this.pages.delete(this.pages.keys().next().value);
      this.pages.set(page, answer.rows);
      this.changed(answer, page * this.size);
    } catch (error) {
      say(error.message);
    } finally {
      this.asked.delete(page);
      this.next();
    }
  }

  close() { this.closed = true; }
}
