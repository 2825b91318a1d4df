// Names that are longer than their place: the middle is left out, because names differ at their ends.

const TAIL = 14; // letters at the end that are always shown

// As an element that fits any width. Its text is the whole name: it can be selected, copied and found.
function middle(name, before = '') {
  return fillMiddle(el('span.middle', null, el('span.head'), el('span.tail')), name, before);
}

// A link of that name; a screen reader reads it as one word.
function nameLink(to, name) {
  return el('a', { href: address(to), 'aria-label': name }, middle(name));
}

function fillMiddle(element, name, before = '') {
  const letters = [...visible(before + name)];
  const tail = Math.min(TAIL, letters.length >> 1);
  const [head, end] = element.children;
  head.textContent = letters.slice(0, letters.length - tail).join('');
  end.textContent = letters.slice(letters.length - tail).join('');
  head.style.maxWidth = `calc(100% - ${tail}ch + 0.5px)`;
  element.title = visible(name);
  return element;
}

// As a text of at most so many letters.
function clipped(text, most) {
  const letters = [...text];
  if (letters.length <= most) return text;
  const tail = (most - 1) >> 1;
  return `${letters.slice(0, most - 1 - tail).join('')}…${letters.slice(letters.length - tail).join('')}`;
}

// As much of it as a canvas has room for; nothing if that would tell nothing.
function fitted(context, text, wide) {
  const whole = visible(text);
  const needed = context.measureText(whole).width;
  if (needed <= wide) return whole;
  for (let most = Math.floor((whole.length * wide) / needed); most >= 7; most--) {
    const part = clipped(whole, most);
    if (context.measureText(part).width <= wide) return part;
  }
  return '';
}
