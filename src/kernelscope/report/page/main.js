// Which view is shown follows the address: #overview, #pipeline&graph=0, #calls&q=relu, #call=17, #timeline, #diff, #ranks, #precision.

const VIEW_NAMES = ['overview', 'pipeline', 'calls', 'timeline', 'diff', 'ranks', 'precision']; // the last two only where there is something to show
const VIEWS = { overview, pipeline, calls, call, timeline, diff, ranks, precision };
const TITLES = { overview: 'Overview', pipeline: 'Pipeline', calls: 'Calls', timeline: 'Timeline', diff: 'Diff', ranks: 'Ranks', precision: 'Precision' };

class App {
  constructor(data) {
    this.runs = Object.fromEntries(Object.entries(data.runs).map(([key, of]) =>
      [key, data.served ? new ServedRun(key) : new FileRun(key, of)]));
    this.diff = data.diff ? (data.served ? new ServedDiff() : new FileDiff(data.diff)) : null;
    this.ranks = data.ranks ? (data.served ? new ServedRanks() : new FileRanks(data.ranks)) : null;
    this.precision = data.precision ? (data.served ? new ServedPrecision() : new FilePrecision(data.precision)) : null;
    this.served = data.served;
    this.main = document.getElementById('main');
    this.help = helpBox();
    document.body.append(this.help);
    this.turn = 0;
    document.documentElement.dataset.theme = this.rememberedTheme();
    this.top();
    listenToKeys(this);
    addEventListener('hashchange', () => this.show());
    this.show();
    if (this.served) this.follow();
  }

  run(key) { return this.runs[key] || this.runs.a; }
  go(to) { location.hash = address(to); }

  params() {
    const parts = location.hash.slice(1).split('&').filter(Boolean).map((part) => {
      const at = part.indexOf('=');
      return at < 0 ? [part, ''] : [part.slice(0, at), decoded(part.slice(at + 1))];
    });
    return { view: parts.length && parts[0][0] in VIEWS ? parts[0][0] : 'overview', params: Object.fromEntries(parts) };
  }

  async show() {
    const turn = ++this.turn;
    const { view, params } = this.params();
    this.shown?.close?.();
    this.shown = null;
    this.help.close();
    for (const tab of this.tabs) {
      if (tab.dataset.view === (view === 'call' ? 'calls' : view)) tab.setAttribute('aria-current', 'page');
      else tab.removeAttribute('aria-current');
    }
    this.main.className = `view-${view}`;
    delete this.main.dataset.shown;
    const room = el('div.room');
    replace(this.main, room);
    try {
      const shown = await VIEWS[view](room, params, this);
      if (turn !== this.turn) return void shown?.close?.();
      this.shown = shown;
      if (params.focus) shown?.search?.focus();
    } catch (error) {
      if (turn !== this.turn) return;
      replace(room, el('div.empty', { role: 'alert' }, el('h1', null, 'Cannot show this'), el('p', null, error.message), link({ overview: true }, 'Overview')));
      if (!(error instanceof Error) || error.name !== 'Error') console.error(error);
    }
    this.main.dataset.shown = `${view} ${turn}`;
  }

  // The overview again, shown when it is complete.
  async renew() {
    const { turn } = this;
    const room = el('div.room');
    await overview(room, {}, this);
    if (turn === this.turn) replace(this.main, room);
  }

  top() {
    this.tabs = VIEW_NAMES.filter((name) => !['ranks', 'precision'].includes(name) || this[name]).map((name) => el('a', { href: `#${name}`, 'data-view': name }, TITLES[name]));
    this.live = el('span.live', { hidden: true });
    replace(document.getElementById('top'),
      el('strong.brand', null, 'kernelscope'), el('nav', { 'aria-label': 'Views' }, this.tabs), el('span.spring'), this.live,
      el('button', { type: 'button', id: 'theme', 'aria-label': 'Light or dark', title: 'Light or dark (t)', onclick: () => this.toggleTheme() }, '◐'),
      el('button', { type: 'button', 'aria-label': 'Keyboard help', title: 'Keyboard (?)', onclick: () => this.help.showModal() }, '?'));
  }

  rememberedTheme() {
    try { return localStorage.getItem('kernelscope-theme') || ''; } catch { return ''; }
  }

  toggleTheme() {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = isDark ? 'light' : 'dark';
    try { localStorage.setItem('kernelscope-theme', root.dataset.theme); } catch { /* a page from disk may have none */ }
    dispatchEvent(new Event('themed'));
  }

  // While the run is recorded, what was added since shows up by itself.
  async follow() {
    const run = this.runs.a;
    let facts, known;
    for (;;) {
      try {
        if (!facts) {
          ({ facts } = await run.about());
          known = facts.totals.calls;
        } else {
          const now = await run.state();
          if (now.calls !== known || now.state.kind !== facts.state.kind) {
            run.forget();
            ({ facts } = await run.about());
            known = now.calls;
            if (this.params().view === 'overview') await this.renew();
            else await this.shown?.grown?.(known);
          }
        }
        replace(this.live, `recording · ${plural(known, 'call')}`);
        this.live.hidden = facts.state.kind !== 'recording';
      } catch (error) {
        // It may be a moment: a run that is not there yet, a laptop that slept. The view says so itself.
        if (!facts) return;
        replace(this.live, error.message);
      }
      if (facts.state.kind !== 'recording') return;
      await new Promise((wake) => setTimeout(wake, 1000));
    }
  }
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

new App(JSON.parse(document.getElementById('data').textContent));
