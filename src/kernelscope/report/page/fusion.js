// Which scheduler nodes became one kernel, drawn as a graph from top to bottom.

const GROUP_WIDTH = 190, GROUP_GAP = 26, LAYER_GAP = 44, NODE_LINE = 15, MOST_NODES = 6;

class FusionGraph {
  constructor(graph, { point, pick }) {
    this.groups = graph.fusion.groups;
    this.names = this.groups.map((group) => {
      const launch = graph.launches.find((each) => each.atoms.some((atom) => group.atoms.includes(atom)));
      return launch ? launch.kernel : 'no kernel';
    });
    const { places, width, height } = this.layout(graph.fusion.edges);
    this.boxes = this.groups.map((group, at) => this.box(group, at, places[at], point, pick));
    const picture = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Fusion groups' },
      graph.fusion.edges.map(([a, b]) => this.edge(places[a], places[b])), this.boxes);
    this.scroller = el('div.fusion-scroll', null, picture);
    this.places = places;
    const refused = graph.fusion.refusals;
    this.element = el('section.fusion', { 'aria-label': 'Fusion' },
      el('p.quiet', null, `${plural(this.groups.length, 'group')}, each one kernel; ${plural(refused.length, 'pair')} refused.`),
      this.scroller,
      refused.length ? el('details', null, el('summary', null, 'Why other pairs were not fused'),
        el('ul.plain', null, refused.slice(0, 300).map(([a, b, reason, times]) => el('li', null, el('code', null, `${a} + ${b}`), ` ${reason}`, times > 1 ? el('span.quiet', null, ` ${times}×`) : null)))) : null);
  }

  heightOf(group) { return 30 + Math.min(group.nodes.length, MOST_NODES + 1) * NODE_LINE + 6; }

  // Each group below all that it reads; within a layer near those that it reads.
  layout(edges) {
    const layer = this.groups.map(() => 0);
    const before = this.groups.map(() => []);
    for (const [a, b] of edges) before[b].push(a);
    for (let round = 0, moved = true; moved && round < this.groups.length; round++) {
      moved = false;
      for (const [a, b] of edges) if (layer[b] <= layer[a]) { layer[b] = layer[a] + 1; moved = true; }
    }
    const layers = [];
    layer.forEach((n, at) => (layers[n] ??= []).push(at));
    const places = [];
    let y = 8, width = 0;
    for (const members of layers) {
      if (!members) continue;
      const wish = (at) => before[at].length ? before[at].reduce((sum, b) => sum + places[b].x, 0) / before[at].length : 0;
      members.sort((a, b) => wish(a) - wish(b));
      let x = 8;
      for (const at of members) {
        x = Math.max(x, Math.min(wish(at), x + 400));
        places[at] = { x, y, height: this.heightOf(this.groups[at]) };
        x += GROUP_WIDTH + GROUP_GAP;
      }
      width = Math.max(width, x);
      y += Math.max(...members.map((at) => places[at].height)) + LAYER_GAP;
    }
    return { places, width: width + 8, height: y };
  }

  edge(from, to) {
    const x1 = from.x + GROUP_WIDTH / 2, y1 = from.y + from.height, x2 = to.x + GROUP_WIDTH / 2, y2 = to.y;
    const bend = Math.max(18, (y2 - y1) / 2);
    return svg('path', { class: 'edge', d: `M${x1} ${y1} C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}` });
  }

  box(group, at, { x, y, height }, point, pick) {
    const nodes = group.nodes.slice(0, MOST_NODES);
    const line = (text, i, kind) => svg('text', { class: kind, x: 10, y: 34 + i * NODE_LINE }, clipped(text, 28));
    const made = svg('g', { class: 'group', transform: `translate(${x} ${y})`, tabindex: 0, role: 'button', 'aria-label': `${this.names[at]}: ${group.nodes.map((n) => n.name).join(', ')}` },
      svg('title', null, `${this.names[at]}\n${group.nodes.map((n) => `${n.name} ${n.type}: ${n.fx.join(', ')}`).join('\n')}`),
      svg('rect', { width: GROUP_WIDTH, height, rx: 6 }),
      svg('text', { class: 'title', x: 10, y: 17 }, clipped(this.names[at], 27)),
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
    if (follow && first && this.element.isConnected) this.scroller.scrollTo({ top: first.y - 60, left: first.x - 120 });
  }
}

function clipped(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
