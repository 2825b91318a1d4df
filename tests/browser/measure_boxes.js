// What overlaps, what is wider than the window, what is cut off without an ellipsis, what is too small for a finger.
() => {
  const faults = [], close = 2, wide = innerWidth;
  const name = (e) => `${e.localName}${[...(e.classList || [])].map((c) => '.' + c).join('')}`;
  for (const each of [document.scrollingElement, document.body, document.getElementById('main')]) {
    if (each.scrollWidth > Math.min(wide, each.clientWidth)) faults.push(`${name(each)} scrolls sideways: ${each.scrollWidth}`);
  }
  const cut = (a, b) => ({ left: Math.max(a.left, b.left), right: Math.min(a.right, b.right), top: Math.max(a.top, b.top), bottom: Math.min(a.bottom, b.bottom) });
  const known = new Map();
  // What is seen of the inside of an element.
  const seen = (e) => {
    if (!e || e === document.documentElement) return { left: -1e9, right: 1e9, top: -1e9, bottom: 1e9 };
    if (known.has(e)) return known.get(e);
    const style = getComputedStyle(e), box = e.getBoundingClientRect();
    let area = seen(e.parentElement);
    if (style.overflowX !== 'visible' || style.overflowY !== 'visible') area = cut(area, box);
    known.set(e, area);
    return area;
  };
  const dialog = document.querySelector('dialog[open]'); // it lies above everything else
  const isHidden = (e) => (dialog && !dialog.contains(e)) || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || e.closest('.skip, option, noscript, script, style');
  const boxes = [];
  const put = (node, element, box, text) => {
    const shown = cut(box, seen(node === element ? element.parentElement : element));
    if (shown.right - shown.left <= 2 || shown.bottom - shown.top <= 2) return;
    if (shown.left < -0.5 || shown.right > wide + 0.5) faults.push(`outside the window: ${text} at ${Math.round(shown.left)} to ${Math.round(shown.right)}`);
    for (let e = node === element ? element.parentElement : element; e && e !== document.body; e = e.parentElement) {
      const style = getComputedStyle(e), own = e.getBoundingClientRect();
      if (style.overflowX === 'visible' || Math.max(own.left - box.left, box.right - own.right) <= close) continue;
      if (!['auto', 'scroll'].includes(style.overflowX) && style.textOverflow !== 'ellipsis') faults.push(`cut off by ${name(e)}: ${text}`);
      break;
    }
    boxes.push({ ...shown, node, text });
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || isHidden(element)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) put(node, element, box, node.data.trim().slice(0, 40));
  }
  for (const e of document.querySelectorAll('input, select, canvas, button, nav a, svg:not(button svg), .bar')) {
    if (isHidden(e)) continue;
    const { width, height } = e.getBoundingClientRect();
    if (!e.matches('a')) put(e, e, e.getBoundingClientRect(), name(e));
    if (wide < 500 && e.matches('button, input, select, #top nav a')) {
      if (width < 24 || height < 24) faults.push(`too small for a finger: ${name(e)} ${Math.round(width)} by ${Math.round(height)}`);
    }
  }
  for (const e of document.querySelectorAll('.middle .tail')) {
    if (isHidden(e) || !e.textContent) continue;
    const box = e.getBoundingClientRect(), around = e.parentElement.getBoundingClientRect();
    if (box.right > around.right + close) faults.push(`the end of a name is cut off: ${e.parentElement.title}`);
  }
  const ruler = document.createElement('canvas').getContext('2d');
  for (const e of document.querySelectorAll('select')) {
    if (isHidden(e)) continue;
    ruler.font = getComputedStyle(e).font;
    const needed = ruler.measureText(e.selectedOptions[0].label).width + 24;
    if (needed > e.clientWidth) faults.push(`cut off in its select: ${e.selectedOptions[0].label}`);
  }
  for (const canvas of document.querySelectorAll('canvas')) {
    const at = canvas.getBoundingClientRect();
    for (const t of canvas.texts || []) {
      if (t.right > at.width + 0.5 || t.left < 0) faults.push(`outside its canvas: ${t.text}`);
    }
    for (const [i, a] of (canvas.texts || []).entries()) {
      for (const b of canvas.texts.slice(i + 1)) {
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0) faults.push(`drawn over each other: ${a.text} and ${b.text}`);
      }
    }
  }
  boxes.sort((a, b) => a.top - b.top);
  boxes.forEach((a, at) => {
    for (const b of boxes.slice(at + 1)) {
      if (b.top > a.bottom - close) break;
      if (a.node === b.node || a.node.contains(b.node) || b.node.contains(a.node)) continue;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - b.top;
      if (across > close && down > close) faults.push(`overlap: ${a.text} and ${b.text}, by ${Math.round(across)} and ${Math.round(down)}`);
    }
  });
  return [...new Set(faults)];
}
