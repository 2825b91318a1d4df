// Boxes beside or below each other, with a bar between each two that moves their border.

const LEAST = 60; // pixels of a box

// kind: 'columns' or 'rows'; a style may turn it for some widths. The shares are remembered by name.
function split(name, kind, boxes, shares = boxes.map(() => 1)) {
  const whole = el(`div.split.${kind}`);
  const now = remembered(`split-${name}`, shares);
  const bars = boxes.slice(1).map((_, at) => el('div.splitter', {
    role: 'separator', tabindex: 0, 'aria-label': 'Border between two panes', title: 'Drag to resize; double-click to reset',
    'aria-valuemin': 0, 'aria-valuemax': 100, 'data-at': at,
  }));
  const apply = () => {
    // Each more than 1: a box whose neighbours are hidden then fills the whole.
    const least = Math.min(...now);
    boxes.forEach((box, at) => { box.style.flex = `${now[at] / least} 1 0px`; });
    bars.forEach((bar, at) => bar.setAttribute('aria-valuenow', Math.round((100 * now[at]) / (now[at] + now[at + 1]))));
  };
  const isBeside = () => getComputedStyle(whole).flexDirection === 'row';
  // The border before box at + 1 moves by so many pixels.
  const move = (at, start, pixels) => {
    const [a, b] = start.sizes;
    const first = Math.max(Math.min(LEAST, (a + b) / 2), Math.min(a + b - Math.min(LEAST, (a + b) / 2), a + pixels));
    [now[at], now[at + 1]] = [(start.both * first) / (a + b || 1), (start.both * (a + b - first)) / (a + b || 1)];
    apply();
  };
  const begin = (at, event) => {
    const beside = isBeside();
    const sizes = [boxes[at], boxes[at + 1]].map((box) => (beside ? box.offsetWidth : box.offsetHeight));
    return { beside, sizes, both: now[at] + now[at + 1], from: event && (beside ? event.clientX : event.clientY) };
  };
  bars.forEach((bar, at) => {
    let start = null;
    bar.addEventListener('pointerdown', (event) => { event.preventDefault(); bar.focus(); start = begin(at, event); bar.setPointerCapture(event.pointerId); });
    bar.addEventListener('pointermove', (event) => { if (start) move(at, start, (start.beside ? event.clientX : event.clientY) - start.from); });
    for (const end of ['pointerup', 'pointercancel']) bar.addEventListener(end, () => { start = null; remember(`split-${name}`, now); });
    bar.addEventListener('dblclick', () => { [now[at], now[at + 1]] = [shares[at], shares[at + 1]]; apply(); remember(`split-${name}`, now); });
    bar.addEventListener('keydown', (event) => {
      const steps = isBeside() ? { ArrowLeft: -24, ArrowRight: 24 } : { ArrowUp: -24, ArrowDown: 24 };
      if (!(event.key in steps)) return;
      event.preventDefault();
      event.stopPropagation();
      move(at, begin(at), steps[event.key]);
      remember(`split-${name}`, now);
    });
  });
  add(whole, boxes.flatMap((box, at) => (at ? [bars[at - 1], box] : [box])));
  apply();
  return whole;
}

function remembered(name, usual) {
  try {
    const found = JSON.parse(localStorage.getItem(`kernelscope-${name}`));
    const fits = Array.isArray(found) && found.length === usual.length && found.every((n) => n > 0 && n < 1e6);
    return fits ? found : [...usual];
  } catch { return [...usual]; }
}

function remember(name, value) {
  try { localStorage.setItem(`kernelscope-${name}`, JSON.stringify(value)); } catch { /* a page from disk may have none */ }
}
