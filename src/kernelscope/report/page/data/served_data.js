// A run that `kernelscope view` reads for us, a page at a time.

async function ask(path, given) {
  const query = new URLSearchParams(given || {}).toString();
  let response;
  try {
    response = await fetch(`api/${path}${query ? '?' + query : ''}`, { credentials: 'omit' });
  } catch {
    throw new Error('kernelscope view does not respond. Is it still running?');
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

class ServedRun {
  constructor(key) {
    this.key = key;
    this.prints = {};
    this.rowsSeen = new Map();
    this.kept = new Map();
    this.cut = false;
  }

  forget() { this.kept.clear(); }

  once(path, given) {
    const key = path + JSON.stringify(given || {});
    if (!this.kept.has(key)) {
      const asked = ask(`${this.key}/${path}`, given);
      this.kept.set(key, asked);
      asked.catch(() => this.kept.delete(key));
    }
    return this.kept.get(key);
  }

  about() { return this.once('about'); }
  sites() { return this.once('sites'); }
  counts() { return this.once('counts'); }
  times() { return this.once('times'); }
  findings() { return this.once('findings'); }
  state() { return ask(`${this.key}/state`); }
  graph(position) { return this.once('graph', { number: position }); }
  async source(kernel) { return (await this.once('kernel', { number: kernel })).source; }
  timeline(begin, end, bins) {
    return ask(`${this.key}/timeline`, begin === null ? { bins } : { begin: Math.round(begin), end: Math.round(end), bins });
  }

  print(slot) { return this.prints[slot]; }
  known(index) { return this.rowsSeen.get(index) || null; }

  async rows(wanted, first, howMany) {
    const answer = await ask(`${this.key}/calls`, { ...this.asked(wanted), first, count: howMany });
    return { total: answer.total, rows: this.taken(answer.rows) };
  }

  async place(wanted, index) {
    return (await ask(`${this.key}/place`, { ...this.asked(wanted), index })).place;
  }

  async call(index) {
    const answer = await ask(`${this.key}/call`, { index });
    const rows = this.taken(answer.row);
    return { ...answer, row: rows.find((row) => row.index === index) };
  }

  asked(wanted) {
    const given = { ...wanted };
    if (wanted.sites) given.sites = wanted.sites.join(',');
    return given;
  }

  // Columns to rows; what their slots hold is kept, but not without end.
  taken(columns) {
    if (this.rowsSeen.size > 50000) {
      this.rowsSeen.clear();
      this.prints = {};
    }
    Object.assign(this.prints, columns.prints);
    return columns.index.map((index, at) => {
      const row = rowAt(columns, at);
      this.rowsSeen.set(index, row);
      return row;
    });
  }
}

class ServedRanks {
  about() {
    this.told ??= ask('ranks/about');
    this.told.catch(() => { this.told = undefined; });
    return this.told;
  }
}

class ServedPrecision {
  about() {
    this.told ??= ask('precision/about');
    this.told.catch(() => { this.told = undefined; });
    return this.told;
  }
}

class ServedDiff {
  about() { this.told ??= ask('diff/about'); return this.told; }
  rows(first, howMany) { return ask('diff/rows', { first, count: howMany }); }
}
