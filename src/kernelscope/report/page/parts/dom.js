// Elements. Everything that comes from a run becomes text, never markup.

const SVG = 'http://www.w3.org/2000/svg';

// Characters that would hide or reorder what is shown: written out, so that nothing pretends to be something else.
// As kernelscope.model.html has them: controls, what has no width, what turns the direction, fillers, tags.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e007f}]/gu;

function visible(text) {
  return String(text).replace(UNSEEN, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, '0')}`);
}

// el('div.card', {title: 'x', onclick: f}, 'text', child): strings become text, null is left out.
function el(name, attributes, ...children) {
  const [tag, ...classes] = name.split('.');
  const made = document.createElement(tag || 'div');
  if (classes.length) made.className = classes.join(' ');
  return filled(made, attributes, children);
}

function svg(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? '' : visible(value));
  }
  add(made, children);
  return made;
}

function add(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
}

function replace(parent, ...children) {
  parent.textContent = '';
  add(parent, children);
}

// A link inside this page. The address is made of names and numbers of ours.
function link(to, ...children) {
  return el('a', { href: address(to) }, ...children);
}

function address(to) {
  const parts = Object.entries(to).filter(([, value]) => value !== null && value !== undefined && value !== '');
  return '#' + parts.map(([k, v]) => (v === true ? k : `${k}=${encodeURIComponent(v)}`)).join('&');
}

function copyButton(text, what) {
  const button = el('button.copy', { type: 'button', title: `Copy ${what}`, 'aria-label': `Copy ${what}` },
    svg('svg', { viewBox: '0 0 16 16', width: 13, height: 13, 'aria-hidden': 'true' },
      svg('path', { d: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z' })));
  button.addEventListener('click', async (event) => {
    event.stopPropagation();
    // As it is seen: a terminal would act on what a run had hidden in a command.
    say((await copied(visible(typeof text === 'function' ? text() : text))) ? `Copied ${what}` : 'Could not copy');
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page from disk may not have the clipboard: the old way.
    const area = el('textarea', { 'aria-hidden': 'true' });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

let saying = 0;
function say(text) {
  const at = document.getElementById('said');
  replace(at, text);
  at.classList.add('shown');
  clearTimeout(saying);
  saying = setTimeout(() => at.classList.remove('shown'), 1800);
}

// The colour behind one of the style's names, as a canvas wants it.
function colour(name) {
  const probe = el('span');
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// Call it whenever the colours change; gives a function that ends that.
function onNewColours(action) {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  addEventListener('themed', action);
  dark.addEventListener('change', action);
  return () => { removeEventListener('themed', action); dark.removeEventListener('change', action); };
}

// A telephone, or a window that is hardly wider: as the style has it.
const NARROW = matchMedia('(max-width: 900px)');

function debounced(wait, action) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), wait);
  };
}
