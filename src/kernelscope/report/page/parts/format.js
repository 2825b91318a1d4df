// Numbers and names as people read them.

const ROLE_MARKS = { in: '', out: '→', inout: '↔', scalar: '' };
const ROLE_WORDS = { in: 'read', out: 'written', inout: 'read and written', scalar: 'number' };
const STATS = ['numel', 'min', 'max', 'mean', 'std', 'l1', 'nan', 'pos_inf', 'neg_inf', 'zeros'];

function count(n) {
  return Number(n).toLocaleString('en');
}

function plural(n, what) {
  return `${count(n)} ${what}${n === 1 ? '' : 's'}`;
}

function duration(ns) {
  if (ns === null || ns === undefined) return '';
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['µs', 1e3]]) {
    if (ns >= size) return `${(ns / size).toFixed(ns >= 100 * size ? 0 : ns >= 10 * size ? 1 : 2)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

// Bytes in nanoseconds as GB/s.
function rate(bytes, ns) {
  if (!bytes || !ns) return '';
  const found = bytes / ns;
  return found >= 1 ? found.toFixed(1) : found.toPrecision(2);
}

function medianOf(sorted) {
  const half = sorted.length >> 1;
  return !sorted.length ? null : sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function percent(share) {
  return `${(100 * share).toFixed(1)}%`;
}

// JSON has no word for NaN and infinities: they come as text, or as {"$float": "nan"}.
function plain(value) {
  return value && typeof value === 'object' && '$float' in value ? value.$float : value;
}

function number(given) {
  const value = plain(given);
  if (value === null || value === undefined) return '';
  if (typeof value !== 'number') return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return count(value);
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(3) : String(Number(value.toPrecision(5)));
}

function shape(arg) {
  return `${arg.dtype}[${arg.shape.join(', ')}]`;
}

function baseName(file) {
  return file.slice(file.lastIndexOf('/') + 1);
}

function place(frame) {
  return frame ? `${baseName(frame[0])}:${frame[1]}` : '';
}

function shortHash(value) {
  return value ? `#${value.slice(0, 8)}` : '';
}

function moment(seconds) {
  return seconds ? new Date(seconds * 1000).toISOString().replace('T', ' ').slice(0, 19) + ' UTC' : '';
}

// A word as a shell takes it.
function shellWord(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

function tokens(query) {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}
