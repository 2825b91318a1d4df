// The keyboard.

const KEYS = [
  ['1 … 5', 'overview, pipeline, calls, timeline, diff'],
  ['/', 'search calls'],
  ['j k ↑ ↓', 'move in a table or in code'],
  ['Enter', 'open the selected call, pin the selected line'],
  ['[ ]', 'previous and next call'],
  ['Esc', 'clear the selection, close this'],
  ['t', 'light or dark'],
  ['+ − ← →', 'zoom and move the timeline'],
  ['?', 'this'],
];

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
    if (/^[1-5]$/.test(event.key)) return app.go({ [VIEW_NAMES[event.key - 1]]: true });
    const actions = {
      '/': () => (app.shown?.search ? app.shown.search.focus() : app.go({ calls: true, focus: 1 })),
      '[': () => app.shown?.previous && app.go(app.shown.previous),
      ']': () => app.shown?.next && app.go(app.shown.next),
      t: () => app.toggleTheme(),
      '?': () => (app.help.open ? app.help.close() : app.help.showModal()),
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
  const box = el('dialog.help', { 'aria-label': 'Keyboard' }, el('h2', null, 'Keyboard'),
    el('dl.pairs', null, KEYS.map(([keys, what]) => [el('dt', null, keys), el('dd', null, what)])),
    el('form', { method: 'dialog' }, el('button', { type: 'submit' }, 'Close')));
  box.querySelector('form').addEventListener('submit', (event) => { event.preventDefault(); box.close(); });
  return box;
}
