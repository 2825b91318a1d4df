// Which scheduler nodes became which kernel, drawn as a graph from left to right: one box for each launch.

const GROUP_WIDTH = 224, GROUP_GAP = 14, COLUMN_GAP = 34, NODE_LINE = 15, MOST_NODES = 6, LETTERS = 30;
const NO_KERNEL = 'no kernel';

class FusionGraph {
  constructor(graph, { point, pick }) {
    this.groups = graph.fusion.groups;
    this.names = this.groups.map(({ launch }) => (launch === null ? NO_KERNEL : graph.launches[launch].kernel));
    const { places, width, height } = this.layout(graph.fusion.edges);
    this.boxes = this.groups.map((group, at) => this.box(group, at, places[at], point, pick));
    const picture = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Fusion groups' },
      graph.fusion.edges.map(([a, b]) => this.edge(places[a], places[b])), this.boxes);
    this.scroller = el('div.fusion-scroll', null, picture);
    this.share = Math.max(0.2, Math.min(0.5, (height + 90) / Math.max(400, innerHeight - 150))); // of the view, at first
    this.places = places;
    const refused = graph.fusion.refusals;
    this.element = el('section.fusion', { 'aria-label': 'Fusion' },
      el('p.quiet', null, `${plural(this.groups.filter(({ launch }) => launch !== null).length, 'kernel launch').replace('launchs', 'launches')} from ${plural(this.groups.reduce((all, group) => all + group.nodes.length, 0), 'scheduler node')}`
        + `; ${plural(refused.length, 'pair')} of nodes not fused.`),
      this.scroller,
      refused.length ? el('details', null, el('summary', null, 'Why other pairs were not fused'),
        el('ul.plain', null, refused.slice(0, 300).map(([a, b, reason, times]) => el('li', null, el('code', null, `${a} + ${b}`), ` ${reason}`, times > 1 ? el('span.quiet', null, ` ${times}×`) : null)))) : null);
  }

  heightOf(group) { return 30 + Math.min(group.nodes.length, MOST_NODES + 1) * NODE_LINE + 6; }

  // Each group to the right of all that it reads; within a column near those that it reads.
  layout(edges) {
    const column = this.groups.map(() => 0);
    const before = this.groups.map(() => []);
    for (const [a, b] of edges) before[b].push(a);
    for (let round = 0, moved = true; moved && round < this.groups.length; round++) {
      moved = false;
      for (const [a, b] of edges) if (column[b] <= column[a]) { column[b] = column[a] + 1; moved = true; }
    }
    const columns = [];
    column.forEach((n, at) => (columns[n] ??= []).push(at));
    const places = [];
    let x = 10, height = 0;
    for (const members of columns) {
      if (!members) continue;
      const wish = (at) => (before[at].length ? before[at].reduce((sum, b) => sum + places[b].y, 0) / before[at].length : 0);
      members.sort((a, b) => wish(a) - wish(b));
      let y = 10;
      for (const at of members) {
        places[at] = { x, y, height: this.heightOf(this.groups[at]) };
        y += places[at].height + GROUP_GAP;
      }
      height = Math.max(height, y);
      x += GROUP_WIDTH + COLUMN_GAP;
    }
    return { places, width: x, height };
  }

  edge(from, to) {
    const x1 = from.x + GROUP_WIDTH, y1 = from.y + 14, x2 = to.x, y2 = to.y + 14;
    const bend = Math.max(16, Math.min(90, (x2 - x1) / 2));
    return svg('path', { class: 'edge', d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` });
  }

  box(group, at, { x, y, height }, point, pick) {
    const nodes = group.nodes.slice(0, MOST_NODES);
    const line = (text, i, kind) => svg('text', { class: kind, x: 10, y: 34 + i * NODE_LINE }, clipped(text, LETTERS));
    const made = svg('g', { class: 'group', transform: `translate(${x} ${y})`, tabindex: 0, role: 'button', 'aria-label': `${this.names[at]}: ${group.nodes.map((n) => n.name).join(', ')}` },
      svg('title', null, `${this.names[at]}\n${group.nodes.map((n) => `${n.name} ${n.type}: ${n.fx.join(', ')}`).join('\n')}`),
      svg('rect', { width: GROUP_WIDTH, height, rx: 6 }),
      svg('text', { class: 'title', x: 10, y: 17 }, clipped(this.names[at], LETTERS)),
      nodes.map((node, i) => line(`${node.name} ${node.fx.length ? node.fx.join(' ') : node.type}`, i, 'node')),
      group.nodes.length > MOST_NODES ? line(`and ${group.nodes.length - MOST_NODES} more`, MOST_NODES, 'more') : null);
    made.addEventListener('mouseenter', () => point(group.atoms));
    made.addEventListener('mouseleave', () => point([]));
    made.addEventListener('click', () => pick(group.atoms));
    made.addEventListener('keydown', (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); pick(group.atoms); } });
    return made;
  }

  mark(atoms, follow) {
    let first = null;
    this.groups.forEach((group, at) => {
      const isMarked = group.atoms.some((atom) => atoms.has(atom));
      this.boxes[at].classList.toggle('marked', isMarked);
      if (isMarked && !first) first = this.places[at];
    });
    if (follow && first && !this.element.hidden) this.scroller.scrollTo({ top: first.y - 30, left: first.x - 160 });
  }
}
