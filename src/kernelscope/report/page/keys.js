// The keyboard.

const KEYS = {
  Everywhere: [
    ['1 … 7', 'overview, pipeline, calls, timeline, diff, ranks, precision'],
    ['/', 'search calls'],
    ['t', 'light or dark'],
    ['Esc', 'clear the selection, close this'],
    ['?', 'this help'],
  ],
  'Tables and code': [
    ['j k ↑ ↓', 'move'],
    ['PgUp PgDn Home End', 'move further'],
    ['Enter', 'open the selected call, pin the selected line'],
  ],
  Call: [['[ ]', 'previous and next call']],
  Pipeline: [['f', 'fusion graph']],
  Timeline: [
    ['+ −', 'zoom'],
    ['← →', 'move'],
    ['[ ]', 'previous and next step'],
    ['0', 'the whole run'],
  ],
  'Borders between panes': [['← → ↑ ↓', 'move the border that has the focus']],
};

const MOVES = new Set(['j', 'k', 'ArrowDown', 'ArrowUp']);

function listenToKeys(app) {
  addEventListener('keydown', (event) => {
    const typing = event.target.matches?.('input, textarea, select');
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape') {
      if (app.help.open) app.help.close();
      else if (typing) event.target.blur();
      else app.shown?.escape?.();
      return;
    }
    if (typing) return;
    if (event.key === '?') {
      event.preventDefault();
      return void (app.help.open ? app.help.close() : app.help.showModal());
    }
    if (app.help.open) return;
    if (app.shown?.pressed?.(event)) return void event.preventDefault();
    if (/^[1-7]$/.test(event.key)) return app.go({ [VIEW_NAMES[event.key - 1]]: true });
    const actions = {
      '/': () => (app.shown?.search ? app.shown.search.focus() : app.go({ calls: true, focus: 1 })),
      '[': () => app.shown?.previous && app.go(app.shown.previous),
      ']': () => app.shown?.next && app.go(app.shown.next),
      t: () => app.toggleTheme(),
    };
    // What moves in a list does so before anything was clicked, too.
    if (MOVES.has(event.key) && !event.target.matches?.('button, a, summary, canvas, [role]') && app.shown?.list) {
      app.shown.list.element.focus();
      return void app.shown.list.pressed(event);
    }
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  });
}

function helpBox() {
  const keys = (text) => text.split(' ').map((key) => (key === '…' ? ' … ' : el('kbd', null, key)));
  const box = el('dialog.help', { 'aria-label': 'Keyboard' }, el('h2', null, 'Keyboard'),
    el('div.key-groups', null, Object.entries(KEYS).map(([where, pairs]) => el('section', null, el('h3', null, where),
      el('dl', null, pairs.map(([text, what]) => [el('dt', null, keys(text)), el('dd', null, what)]))))),
    el('form', { method: 'dialog' }, el('button', { type: 'submit' }, 'Close')));
  box.querySelector('form').addEventListener('submit', (event) => { event.preventDefault(); box.close(); });
  box.addEventListener('click', (event) => { if (event.target === box) box.close(); }); // beside it
  return box;
}
