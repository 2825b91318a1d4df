// Text with numbered lines, some of which belong to something in other panes.

const LINE_HEIGHT = 19;
const NOTHING = '# not recorded';
const STRINGS = '("(?:[^"\\\\]|\\\\.)*"|\'(?:[^\'\\\\]|\\\\.)*\')';
const WORDS = '\\b(def|class|return|for|in|if|else|elif|import|from|with|as|del|None|True|False|self|void|auto|float|int|const|template|extern|struct|while|yield|lambda|and|or|not|tl)\\b';
const NUMBERS = '\\b(\\d[\\w.]*)\\b';
const TOKENS = {
  python: new RegExp(`(#.*$)|${STRINGS}|${WORDS}|${NUMBERS}`, 'g'),
  cpp: new RegExp(`(\\/\\/.*$|^\\s*#.*$)|${STRINGS}|${WORDS}|${NUMBERS}`, 'g'),
};
const TOKEN_CLASSES = ['comment', 'string', 'word', 'number'];

function coloured(text, language) {
  if (language === 'diff' && /^[-+]/.test(text)) return [el(text[0] === '+' ? 'span.added' : 'span.removed', null, text)];
  if (text.length > 2000) return [text];
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKENS[language.startsWith('cpp') || language === 'gcu' ? 'cpp' : 'python'])) {
    if (found.index > at) parts.push(text.slice(at, found.index));
    const kind = TOKEN_CLASSES[found.slice(1).findIndex((group) => group !== undefined)];
    parts.push(el(`span.${kind}`, null, found[0]));
    at = found.index + found[0].length;
  }
  parts.push(text.slice(at));
  return parts;
}

class CodePane {
  // lines: [{number, text, atoms}]; point(atoms) while hovering, pick(atoms) for a click or Enter.
  constructor({ label, point, pick }) {
    this.from = 0; // where what is looked for begins; above it are definitions
    this.lines = [];
    this.marked = new Set();
    this.language = 'python';
    this.list = new VirtualList({
      rowHeight: LINE_HEIGHT, label,
      draw: (element, index) => this.draw(element, index),
      pick: (index) => { const atoms = this.lines[index]?.atoms; if (atoms?.length) pick(atoms, this.lines[index]); },
    });
    this.list.element.classList.add('code');
    const pointed = (event) => {
      const row = this.list.pool.find((each) => each.element.contains(event.target));
      point(row && row.index >= 0 ? this.lines[row.index]?.atoms || [] : []);
    };
    this.list.element.addEventListener('mousemove', pointed, { passive: true });
    this.list.element.addEventListener('mouseleave', () => point([]), { passive: true });
    this.element = this.list.element;
  }

  close() { this.list.close(); }

  setLines(lines, language) {
    this.lines = lines.length ? lines : [{ number: '', text: NOTHING, atoms: [] }];
    this.language = language || 'python';
    const longest = lines.reduce((most, line) => Math.max(most, (line.text || '').length), 20);
    this.list.spacer.style.minWidth = `${Math.min(longest, 2000) + 9}ch`;
    this.list.moveTo(0);
    this.list.setCount(this.lines.length);
  }

  draw(element, index) {
    const line = this.lines[index];
    element.className = 'row line';
    element.classList.toggle('linked', Boolean(line.atoms?.length));
    element.classList.toggle('marked', this.isMarked(line));
    replace(
      element,
      el('span.no', null, line.number ?? ''),
      el('span.text', null, line.text === null ? '(not in the run)' : coloured(line.text, this.language)),
    );
  }

  isMarked(line) { return Boolean(line.atoms) && line.atoms.some((atom) => this.marked.has(atom)); }

  // Mark the lines of these atoms; with `follow`, bring the first of them into view.
  mark(atoms, follow) {
    this.marked = atoms;
    for (const row of this.list.pool) {
      if (row.index >= 0 && this.lines[row.index]) {
        row.element.classList.toggle('marked', this.isMarked(this.lines[row.index]));
      }
    }
    if (!follow || !atoms.size) return;
    const { list } = this;
    const at = this.nearest();
    const isInView = (at + 1) * LINE_HEIGHT > list.exact && (at + 2) * LINE_HEIGHT < list.exact + list.height;
    if (at >= 0 && !isInView) list.reveal(at, true);
  }

  // The first line that stands for what is marked and for little else.
  nearest() {
    let best = -1, most = 0;
    this.lines.forEach((line, at) => {
      if (!this.isMarked(line)) return;
      const share = line.atoms.filter((atom) => this.marked.has(atom)).length / line.atoms.length + (at >= this.from ? 1 : 0);
      if (share > most) [best, most] = [at, share];
    });
    return best;
  }
}

// From [first line, last line, atoms], as a run tells them.
function linked(ranges) {
  const found = new Map();
  for (const [first, last, atoms] of ranges) for (let n = first; n <= last; n++) found.set(n, atoms);
  return (n) => found.get(n) || [];
}

function codeLines(text, atoms) {
  return text.split('\n').map((line, at) => ({ number: at + 1, text: line, atoms: atoms(at + 1) }));
}
