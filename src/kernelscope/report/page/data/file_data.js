// A run whose data stands in this file. Answers as a served run does.

class FileRun {
  constructor(key, data) {
    this.key = key;
    this.data = data;
    this.cut = data.rows.index.length < data.facts.totals.calls;
    this.found = new Map();
    this.at = new Map(data.rows.index.map((index, position) => [index, position]));
  }

  forget() { /* nothing is added to a file */ }
  async about() { return { facts: this.data.facts, compiled: this.data.compiled }; }
  async sites() { return this.data; }
  async counts() { return this.data.counts; }
  async times() { return this.data.times; }
  async findings() { return this.data.findings; }
  async source(kernel) { return this.data.sources[kernel] || ''; }
  async graph(position) {
    const graph = this.data.pipeline[position];
    return { ...graph, panes: graph.panes.map((pane) => ({ ...pane, text: this.data.texts[pane.text] })) };
  }

  print(slot) { return this.data.rows.prints[slot]; }

  row(position) {
    return rowAt(this.data.rows, position);
  }

  async rows(wanted, first, howMany) {
    const positions = this.matching(wanted);
    return {
      total: positions.length,
      rows: positions.slice(first, first + howMany).map((position) => this.row(position)),
    };
  }

  async place(wanted, index) {
    const positions = this.matching(wanted);
    const found = positions.findIndex((position) => this.data.rows.index[position] >= index);
    return found < 0 ? positions.length : found;
  }

  matching(wanted) {
    const key = JSON.stringify(wanted);
    if (!this.found.has(key)) {
      const rows = this.data.rows;
      const sites = wanted.sites ? new Set(wanted.sites) : null;
      const fits = (at) => (!sites || sites.has(rows.site[at]))
        && ['phase', 'step', 'stream'].every((name) => wanted[name] === undefined || rows[name][at] === wanted[name]);
      this.found.set(key, rows.index.map((_, at) => at).filter(fits));
    }
    return this.found.get(key);
  }

  async call(index) {
    const position = this.at.get(index);
    if (position === undefined) {
      const all = this.data.rows.index;
      throw new Error(this.cut && all.length
        ? `This file has calls ${all[0]} to ${all[all.length - 1]} of ${this.data.facts.totals.calls}. `
          + 'kernelscope view shows all of them.'
        : this.cut ? 'This file has no calls. kernelscope view shows all of them.' : `There is no call ${index} in this run.`);
    }
    const all = this.data.rows.index;
    return {
      row: this.row(position),
      previous: all[position - 1] ?? null,
      next: all[position + 1] ?? null,
      producers: this.data.producers[index] || {},
      consumers: this.consumers().get(index) || [],
      searched: [all[0], all[all.length - 1]],
      saved: this.data.saved[index] || {},
      pictures: this.data.pictures,
      left_out: this.data.pictures_left_out,
    };
  }

  known(index) {
    const position = this.at.get(index);
    return position === undefined ? null : this.row(position);
  }

  consumers() {
    if (!this.consumed) {
      this.consumed = new Map();
      for (const [index, links] of Object.entries(this.data.producers)) {
        for (const [argument, [writer, position, byValue]] of Object.entries(links)) {
          if (!this.consumed.has(writer)) this.consumed.set(writer, []);
          this.consumed.get(writer).push([position, Number(index), Number(argument), byValue]);
        }
      }
    }
    return this.consumed;
  }

  async timeline() {
    const rows = this.data.rows;
    if (!rows.index.length) return { low: 0, high: 0, calls: [], bins: [], graphs: [], steps: [] };
    let low = Infinity, high = -Infinity;
    rows.start.forEach((start, at) => {
      low = Math.min(low, start);
      high = Math.max(high, start + (rows.time[at] || 0));
    });
    const calls = rows.index.map((index, at) => [
      index, rows.site[at], rows.stream[at], rows.thread[at], rows.start[at], rows.time[at],
    ]);
    return { low, high, calls, bins: [], ...this.spans() };
  }

  // Steps and graph calls with their beginnings and ends, as a server tells them.
  spans() {
    const { rows, sites } = this.data;
    const steps = new Map(), graphs = new Map();
    const put = (all, key, at, made) => {
      if (!all.has(key)) all.set(key, { ...made, start: Infinity, end: -Infinity });
      const span = all.get(key);
      span.start = Math.min(span.start, rows.start[at]);
      span.end = Math.max(span.end, rows.start[at] + (rows.time[at] || 0));
      span.graph ??= made.graph;
    };
    rows.index.forEach((_, at) => {
      put(steps, rows.step[at], at, {});
      if (rows.graph_call[at] >= 0) put(graphs, rows.graph_call[at], at, { step: rows.step[at], graph: sites[rows.site[at]]?.graph });
    });
    return {
      steps: [...steps].sort(([a], [b]) => a - b).map(([step, { start, end }]) => [step, step, start, end]),
      graphs: [...graphs].map(([id, { graph, step, start, end }]) => [id, graph, step, start, end, 1]),
    };
  }
}

// Columns to one row.
function rowAt(columns, at) {
  return Object.fromEntries(ROW_COLUMNS.map((name) => [name, columns[name][at]]));
}

const ROW_COLUMNS = ['index', 'site', 'graph_call', 'step', 'phase', 'stream', 'thread', 'start', 'time', 'values'];

class FileRanks {
  constructor(data) { this.data = data; }
  async about() { return this.data; }
}

class FilePrecision {
  constructor(data) { this.data = data; }
  async about() { return this.data; }
}

class FileDiff {
  constructor(data) { this.data = data; }
  async about() { return this.data; }
  async rows(first, howMany) {
    const of = (column) => this.data.rows[column].slice(first, first + howMany);
    return { a: of('a'), b: of('b'), state: of('state') };
  }
}
