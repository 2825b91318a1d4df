// Small pictures: histograms, ranges, heat maps.

// Viridis: even steps for the eye, also for eyes that do not tell red from green, and in grey.
const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const WILD = [214, 39, 102];

function shade(level) {
  if (level === 255) return WILD;
  const at = (level / 254) * (VIRIDIS.length - 1);
  const low = Math.min(Math.floor(at), VIRIDIS.length - 2);
  return VIRIDIS[low].map((value, i) => Math.round(value + (VIRIDIS[low + 1][i] - value) * (at - low)));
}

function heatMap(heat, label) {
  if (!heat) return null;
  const levels = Uint8Array.from(atob(heat.data), (c) => c.charCodeAt(0));
  const canvas = el('canvas.heat', { width: heat.columns, height: heat.rows, role: 'img', 'aria-label': label });
  if (heat.rows < 4) canvas.classList.add('flat');
  const context = canvas.getContext('2d');
  const image = context.createImageData(heat.columns, heat.rows);
  levels.forEach((level, i) => image.data.set([...shade(level), 255], 4 * i));
  context.putImageData(image, 0, 0);
  return el('figure.heat', null, canvas, el('figcaption', null,
    el('span', null, number(heat.low)), el('span.scale', { 'aria-hidden': 'true' }), el('span', null, number(heat.high)),
    levels.includes(255) ? el('span.wild', null, 'not finite') : null));
}

function histogram(picture, width = 168, height = 44) {
  const found = picture?.histogram;
  if (!found) return null;
  const most = Math.max(...found.counts, 1);
  const step = width / found.counts.length;
  const label = `${count(found.counts.reduce((a, b) => a + b, 0))} finite values from ${number(found.low)} to ${number(found.high)}`;
  return el('figure.histogram', null,
    svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label },
      found.counts.map((n, i) => svg('rect', {
        x: (i * step).toFixed(1), width: Math.max(1, step - 1).toFixed(1),
        y: (height - Math.max(n ? 1.5 : 0, (n / most) * height)).toFixed(1),
        height: Math.max(n ? 1.5 : 0, (n / most) * height).toFixed(1),
      }))),
    el('figcaption', null, el('span', null, number(found.low)), el('span', null, number(found.high))));
}

// From the statistics alone: the range, and within it the mean and one standard deviation to each side.
function range(stats, width = 168) {
  if (!stats || ![stats.min, stats.max, stats.mean, stats.std].every(Number.isFinite)) return null;
  const span = stats.max - stats.min || 1;
  const at = (value) => (Math.max(0, Math.min(1, (value - stats.min) / span)) * (width - 4) + 2).toFixed(1);
  const left = at(stats.mean - stats.std);
  const label = `from ${number(stats.min)} to ${number(stats.max)}, mean ${number(stats.mean)}, deviation ${number(stats.std)}`;
  return el('figure.range', null,
    svg('svg', { viewBox: `0 0 ${width} 16`, width, height: 16, role: 'img', 'aria-label': label },
      svg('line', { x1: 2, x2: width - 2, y1: 8, y2: 8 }),
      svg('rect', { x: left, y: 4, width: Math.max(2, at(stats.mean + stats.std) - left).toFixed(1), height: 8, rx: 2 }),
      svg('line', { class: 'mean', x1: at(stats.mean), x2: at(stats.mean), y1: 1, y2: 15 })),
    el('figcaption', null, el('span', null, number(stats.min)), el('span', null, number(stats.max))));
}

function bar(share) {
  const filling = el('span');
  filling.style.width = `${Math.max(0.5, 100 * share)}%`;
  return el('span.bar', { 'aria-hidden': 'true' }, filling);
}

function statsOf(print) {
  if (!print || print.length < 2) return null;
  return Object.fromEntries(STATS.map((name, i) => [name, print[i + 1]]));
}
