// Owns: the schedule on a canvas: lanes, memory, zoom, hover, marks. Reads the object that html_data.c writes.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const S = { STREAM: 0, BEGIN: 1, DURATION: 2, OP: 3, PHASE: 4, UNIT: 5, EXPOSED: 6, INSTR: 7, NAME: 8, BYTES: 9 };
  const canvas = document.getElementById('canvas'), tip = document.getElementById('tip');
  const LEFT = 84, RIGHT = 14, LANE = 30, GAP = 7, STRIP = 22, UNITS = 20, AXIS = 22, MEMORY = 190;
  const streamColors = ['', '--gather', '--reduce', '--replicate', '--copyin', '--copyout'];
  const phaseColors = ['--begin', '--forward', '--backward', '--recompute', '--update'];
  const state = { from: 0, to: data.total, x: -1, y: -1, marked: -1, drag: null, width: 0, colors: {} };

  // --- units of measure -------------------------------------------------------------------------------
  const bytes = b => {
    const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let k = 0;
    while (b >= 1024 && k < 4) b /= 1024, k++;
    return (k && b < 100 ? b.toPrecision(3) : Math.round(b)) + ' ' + names[k];
  };
  // Three digits, and never an exponent: what would be rounded to the next unit has reached it.
  const time = ns => {
    const names = ['ns', 'us', 'ms', 's'];
    let k = 0;
    while (k < 3 && ns >= 999.5) ns /= 1e3, k++;
    return (k && ns < 99.95 ? ns.toPrecision(3) : Math.round(ns)) + ' ' + names[k];
  };
  const step = (range, most) => {
    let s = Math.pow(10, Math.floor(Math.log10(range / most)));
    for (const f of [1, 2, 5, 10]) if (range / (s * f) <= most) return s * f;
    return s * 10;
  };

  // --- lanes --------------------------------------------------------------------------------------------
  const lanes = data.streams.map((name, stream) => ({ name, stream, slices: [], real: [] }));
  for (const slice of data.slices) lanes[slice[S.STREAM]].slices.push(slice);
  const byInstr = new Map(data.slices.map(slice => [slice[S.INSTR], slice]));
  if (data.measured)
    for (const real of data.measured.slices) lanes[real[0]].real.push(real);
  const shown = lanes.filter(lane => lane.slices.length);
  for (const lane of shown) lane.slices.sort((a, b) => a[S.BEGIN] - b[S.BEGIN]);
  const laneHeight = LANE + (data.measured ? 12 : 0);
  const unitsTop = STRIP + 6, lanesTop = unitsTop + UNITS + 8, memoryTop = lanesTop + shown.length * (laneHeight + GAP) + 12;
  const height = memoryTop + MEMORY + AXIS + 4;

  // Runs of compute of one unit, by time: [unit, begin, end].
  const runs = [];
  for (const slice of lanes[0].slices) {
    const last = runs[runs.length - 1], end = slice[S.BEGIN] + slice[S.DURATION];
    if (last && last[0] === slice[S.UNIT]) last[2] = end;
    else runs.push([slice[S.UNIT], slice[S.BEGIN], end]);
  }

  // --- memory: levels by time ----------------------------------------------------------------------------
  const points = [];
  {
    const now = data.classes.map(() => 0);
    for (const [ns, kind, level] of data.memory) {
      now[kind] = level;
      const total = now.reduce((a, b) => a + b, 0), last = points[points.length - 1];
      if (last && last.ns === ns) last.levels = now.slice(), last.total = total;
      else points.push({ ns, levels: now.slice(), total });
    }
  }
  const peak = points.reduce((a, b) => b.total > a.total ? b : a, points[0]);
  const limits = [data.budget, data.arena].filter(b => b && b < 1.6 * peak.total);
  const peakSlice = lanes[0].slices.find(slice => slice[S.BEGIN] <= peak.ns && peak.ns < slice[S.BEGIN] + slice[S.DURATION]);
  const peakShort = 'peak ' + bytes(peak.total);
  const peakLong = peakShort + (peakSlice ? ', ' + data.ops[peakSlice[S.OP]] + ' ' + peakSlice[S.NAME] : '');
  const top = Math.max(peak.total, ...limits) * 1.06;
  const pointAt = ns => {
    let low = 0, high = points.length;
    while (high - low > 1) { const mid = (low + high) >> 1; if (points[mid].ns <= ns) low = mid; else high = mid; }
    return low;
  };

  // --- drawing ------------------------------------------------------------------------------------------
  const color = name => state.colors[name] || (state.colors[name] = getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  const x = ns => LEFT + (ns - state.from) / (state.to - state.from) * (state.width - LEFT - RIGHT);
  const ns = px => state.from + (px - LEFT) / (state.width - LEFT - RIGHT) * (state.to - state.from);
  const fill = slice => color(slice[S.STREAM] ? streamColors[slice[S.STREAM]] : phaseColors[slice[S.PHASE]]);
  const clip = v => Math.min(Math.max(v, LEFT), state.width - RIGHT);

  // Tails of a dotted name; of a run of parameters ("h.3.mlp.c_proj+20") what tells where it begins.
  const pieces = text => {
    const parts = text.split('.'), number = text.includes('+') ? parts.findIndex(part => /^\d+$/.test(part)) : -1;
    const tails = parts.map((_, k) => parts.slice(k).join('.'));
    return number < 0 ? tails : [...tails.slice(0, number + 1), parts.slice(0, number + 1).join('.') + '..', parts[number] + '..'];
  };

  // Blocks are numbered where all numbers fit, in a smaller size before none.
  const digits = Math.max(1, ...data.units.flatMap(unit => unit[0].split('.').filter(part => /^\d+$/.test(part)).map(part => part.length)));

  const label = (g, text, a, b, y, ink) => {
    const room = Math.min(b, state.width - RIGHT) - Math.max(a, LEFT) - 8, font = g.font;
    for (const rest of pieces(text)) {
      const number = /^\d+$/.test(rest), widest = number ? '9'.repeat(digits) : rest;
      const small = number && g.measureText(widest).width > room;
      if (small) g.font = font.replace('12px', '9px');
      if (g.measureText(widest).width <= room + (small ? 6 : 0)) {
        g.fillStyle = ink;
        g.textAlign = 'center';
        g.fillText(rest, (Math.max(a, LEFT) + Math.min(b, state.width - RIGHT)) / 2, y);
        g.font = font;
        return;
      }
      g.font = font;
    }
  };

  const drawLane = (g, lane, y) => {
    g.fillStyle = color('--raised');
    g.fillRect(LEFT, y, state.width - LEFT - RIGHT, laneHeight);
    g.fillStyle = color('--ink');
    g.textAlign = 'right';
    g.fillText(lane.name, LEFT - 8, y + LANE / 2 + 4);
    let covered = -1;
    lane.slices.forEach((slice, k) => {
      const a = x(slice[S.BEGIN]), b = x(slice[S.BEGIN] + slice[S.DURATION]);
      if (b < LEFT || a > state.width - RIGHT || b < covered) return;
      const left = clip(a), width = Math.max(clip(b) - left, 0.6);
      covered = left + 0.5;
      g.globalAlpha = state.marked >= 0 && slice[S.UNIT] !== state.marked ? 0.22 : k % 2 ? 1 : 0.86;
      g.fillStyle = fill(slice);
      g.fillRect(left, y, width, LANE);
      g.globalAlpha = 1;
      if (width > 34) label(g, slice[S.STREAM] && slice[S.UNIT] >= 0 ? data.units[slice[S.UNIT]][0] : slice[S.NAME], a, b, y + LANE / 2 + 4, '#ffffff');
    });
    if (!data.measured) return;
    g.fillStyle = color('--soft');
    g.textAlign = 'right';
    g.fillText('measured', LEFT - 8, y + LANE + 10);
    const scale = data.total / data.measured.total;
    for (const real of lane.real) { // measured: a thin row below, on its own clock stretched to the prediction's length
      const a = clip(x(real[1] * scale)), b = clip(x((real[1] + real[2]) * scale));
      const slice = byInstr.get(real[3]);
      if (b <= a && b <= LEFT) continue;
      g.globalAlpha = 0.75;
      g.fillStyle = slice ? fill(slice) : color('--soft');
      g.fillRect(a, y + LANE + 2, Math.max(b - a, 0.6), 9);
      g.globalAlpha = 1;
    }
  };

  const drawStrip = g => {
    data.segments.forEach(([name, count, begin, end], k) => {
      const a = clip(x(begin)), b = clip(x(end));
      if (b <= a) return;
      g.fillStyle = color(k % 2 ? '--line' : '--raised');
      g.fillRect(a, 2, b - a, STRIP - 4);
      const often = count > 1 ? name + ' × ' + count : name, long = often + ', ' + time(end - begin) + (count > 1 ? ' each' : '');
      const fits = [long, often, name].find(text => g.measureText(text).width < b - a - 8);
      if (fits) label(g, fits, a, b, STRIP - 8, color('--ink'));
    });
  };

  const drawUnits = g => {
    g.fillStyle = color('--ink');
    g.textAlign = 'right';
    g.fillText('unit', LEFT - 8, unitsTop + UNITS / 2 + 4);
    for (const [unit, begin, end] of runs) {
      const a = clip(x(begin)), b = clip(x(end));
      if (unit < 0 || b <= a) continue;
      g.globalAlpha = state.marked >= 0 && unit !== state.marked ? 0.3 : 1;
      g.fillStyle = color('--u' + data.units[unit][1]);
      g.fillRect(a, unitsTop, Math.max(b - a - 0.5, 0.5), UNITS);
      g.globalAlpha = 1;
      label(g, data.units[unit][0], a, b, unitsTop + UNITS / 2 + 4, color('--ink'));
    }
  };

  const memoryY = level => memoryTop + MEMORY * (1 - level / top);

  const drawMemory = g => {
    g.fillStyle = color('--raised');
    g.fillRect(LEFT, memoryTop, state.width - LEFT - RIGHT, MEMORY);
    const first = pointAt(state.from), last = Math.min(pointAt(state.to) + 1, points.length - 1);
    for (let kind = data.classes.length - 1; kind >= 0; kind--) {
      g.fillStyle = color('--c' + kind);
      g.beginPath();
      g.moveTo(clip(x(Math.max(points[first].ns, state.from))), memoryY(0));
      for (let p = first; p <= last; p++) {
        let level = 0;
        for (let c = 0; c <= kind; c++) level += points[p].levels[c];
        const a = clip(x(points[p].ns)), b = clip(x(p + 1 < points.length ? points[p + 1].ns : data.total));
        g.lineTo(a, memoryY(level));
        g.lineTo(b, memoryY(level));
      }
      g.lineTo(clip(x(last + 1 < points.length ? points[last + 1].ns : data.total)), memoryY(0));
      g.fill();
    }
    g.textAlign = 'right';
    g.fillStyle = color('--soft');
    const unit = Math.pow(1024, Math.floor(Math.log(top) / Math.log(1024))), s = step(top / unit, 5) * unit;
    for (let level = 0; level <= top; level += s) g.fillText(bytes(level), LEFT - 8, memoryY(level) + 4);
    for (const [limit, name, ink] of [[data.arena, 'arena', '--soft'], [data.budget, 'budget', '--warn']]) {
      if (!limit || limit > top) continue;
      g.strokeStyle = g.fillStyle = color(ink);
      g.setLineDash(name === 'budget' ? [6, 4] : []);
      g.beginPath();
      g.moveTo(LEFT, memoryY(limit));
      g.lineTo(state.width - RIGHT, memoryY(limit));
      g.stroke();
      g.setLineDash([]);
      g.textAlign = name === 'budget' ? 'left' : 'right';
      g.fillText(name + ' ' + bytes(limit), name === 'budget' ? LEFT + 6 : state.width - RIGHT - 6, memoryY(limit) - 4);
    }
    const px = x(peak.ns), py = memoryY(peak.total);
    if (px < LEFT || px > state.width - RIGHT) return;
    g.fillStyle = g.strokeStyle = color('--ink');
    g.beginPath();
    g.arc(px, py, 3.5, 0, 7);
    g.fill();
    const room = Math.max(px - LEFT, state.width - RIGHT - px) - 12;
    const peakLabel = g.measureText(peakLong).width < room ? peakLong : peakShort;
    const left = px + 12 + g.measureText(peakLabel).width > state.width - RIGHT;
    g.textAlign = left ? 'right' : 'left';
    g.strokeStyle = color('--ground');
    g.lineWidth = 3;
    g.strokeText(peakLabel, px + (left ? -8 : 8), py + 16);
    g.lineWidth = 1;
    g.fillText(peakLabel, px + (left ? -8 : 8), py + 16);
  };

  const drawAxis = g => {
    const range = state.to - state.from, s = step(range, Math.max(3, state.width / 120)), scale = data.total < 1e6 ? [1e3, 'us'] : data.total < 1e9 ? [1e6, 'ms'] : [1e9, 's'];
    const digits = Math.max(0, -Math.floor(Math.log10(s / scale[0]) + 1e-9)), first = Math.ceil(state.from / s) * s;
    const text = at => (at / scale[0]).toFixed(digits) + (at === first ? ' ' + scale[1] : ''); // zoomed in as well, the axis has a unit
    document.documentElement.dataset.axis = text(first);
    g.textAlign = 'center';
    for (let at = first; at <= state.to; at += s) {
      g.globalAlpha = 0.5;
      g.fillStyle = color('--line');
      g.fillRect(x(at), lanesTop, 1, memoryTop + MEMORY - lanesTop);
      g.globalAlpha = 1;
      g.fillStyle = color('--soft');
      g.fillText(text(at), x(at), memoryTop + MEMORY + 16);
    }
    for (const [, , begin] of data.segments.slice(1)) {
      if (x(begin) < LEFT || x(begin) > state.width - RIGHT) continue;
      g.fillStyle = color('--soft');
      for (let y = lanesTop; y < memoryTop + MEMORY; y += 6) g.fillRect(x(begin), y, 1, 3);
    }
    if (state.x >= LEFT && state.x <= state.width - RIGHT) {
      g.fillStyle = color('--accent');
      g.fillRect(state.x, lanesTop, 1, memoryTop + MEMORY - lanesTop);
    }
  };

  let wanted = false;
  const paint = () => {
    wanted = false;
    const ratio = window.devicePixelRatio || 1;
    state.width = canvas.clientWidth || canvas.parentElement.clientWidth;
    canvas.style.height = height + 'px';
    canvas.width = Math.round(state.width * ratio);
    canvas.height = Math.round(height * ratio);
    const g = canvas.getContext('2d');
    g.scale(ratio, ratio);
    g.font = '12px system-ui, "DejaVu Sans", sans-serif';
    drawStrip(g);
    drawUnits(g);
    shown.forEach((lane, k) => drawLane(g, lane, lanesTop + k * (laneHeight + GAP)));
    drawMemory(g);
    drawAxis(g);
    document.documentElement.dataset.window = Math.round(state.from) + '-' + Math.round(state.to);
  };
  const draw = () => { if (!wanted) wanted = true, requestAnimationFrame(paint); };

  // --- moving -------------------------------------------------------------------------------------------
  const show = (from, to) => {
    const least = Math.min(data.total, 50), length = Math.min(Math.max(to - from, least), data.total);
    state.from = Math.min(Math.max(from, 0), data.total - length);
    state.to = state.from + length;
    draw();
  };
  const zoom = (factor, at) => show(at - (at - state.from) * factor, at + (state.to - at) * factor);
  const middle = () => (state.from + state.to) / 2;

  canvas.addEventListener('wheel', event => {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = event.deltaX / state.width * (state.to - state.from);
      show(state.from + by, state.to + by);
    } else zoom(Math.exp(event.deltaY * 0.002), ns(event.offsetX));
  }, { passive: false });
  canvas.addEventListener('pointerdown', event => { state.drag = { x: event.offsetX, from: state.from, to: state.to, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener('pointerup', event => {
    if (state.drag && !state.drag.moved) { const slice = sliceAt(event.offsetX, event.offsetY); mark(slice ? slice[S.UNIT] : -1); }
    state.drag = null;
  });
  canvas.addEventListener('pointercancel', () => { state.drag = null; }); // a finger that scrolls the page
  canvas.addEventListener('pointermove', event => {
    state.x = event.offsetX, state.y = event.offsetY;
    if (state.drag && Math.abs(event.offsetX - state.drag.x) > 3) {
      state.drag.moved = true;
      const by = (state.drag.x - event.offsetX) / (state.width - LEFT - RIGHT) * (state.drag.to - state.drag.from);
      show(state.drag.from + by, state.drag.to + by);
    }
    hover(event);
    draw();
  });
  canvas.addEventListener('pointerleave', () => { state.x = -1; tip.hidden = true; draw(); });
  canvas.addEventListener('dblclick', () => show(0, data.total));
  canvas.addEventListener('keydown', event => {
    const by = (state.to - state.from) / 8, moves = { ArrowLeft: [-by, -by], ArrowRight: [by, by] }[event.key];
    if (moves) show(state.from + moves[0], state.to + moves[1]);
    else if (event.key === '+' || event.key === '=') zoom(0.6, middle());
    else if (event.key === '-') zoom(1 / 0.6, middle());
    else if (event.key === 'Escape') mark(-1), show(0, data.total);
    else return;
    event.preventDefault();
  });
  document.getElementById('in').onclick = () => zoom(0.5, middle());
  document.getElementById('out').onclick = () => zoom(2, middle());
  document.getElementById('all').onclick = () => { mark(-1); show(0, data.total); };

  // --- what is under the pointer ------------------------------------------------------------------------
  const sliceAt = (px, py) => {
    if (py >= unitsTop && py < unitsTop + UNITS) return lanes[0].slices.find(slice => slice[S.BEGIN] <= ns(px) && ns(px) < slice[S.BEGIN] + slice[S.DURATION]) || null;
    const k = Math.floor((py - lanesTop) / (laneHeight + GAP));
    if (k < 0 || k >= shown.length || px < LEFT) return null;
    const slices = shown[k].slices, at = ns(px), near = (state.to - state.from) / state.width * 1.5;
    let low = 0, high = slices.length;
    while (low < high) { const mid = (low + high) >> 1; if (slices[mid][S.BEGIN] <= at + near) low = mid + 1; else high = mid; }
    const slice = slices[low - 1];
    return slice && slice[S.BEGIN] + slice[S.DURATION] >= at - near ? slice : null;
  };
  const line = (parent, text, strong) => {
    const element = document.createElement(strong ? 'b' : 'div');
    element.textContent = text;
    parent.appendChild(element);
  };
  const hover = event => {
    tip.textContent = '';
    const slice = sliceAt(state.x, state.y), at = ns(state.x);
    if (slice) {
      line(tip, data.ops[slice[S.OP]] + ' ' + slice[S.NAME], true);
      line(tip, data.phases[slice[S.PHASE]] + ' · i' + slice[S.INSTR] + (slice[S.UNIT] >= 0 ? ' · unit ' + data.units[slice[S.UNIT]][0] : ''));
      line(tip, time(slice[S.DURATION]) + ' from ' + time(slice[S.BEGIN]) + ' on' + (slice[S.BYTES] ? ' · ' + bytes(slice[S.BYTES]) : ''));
      if (slice[S.EXPOSED]) line(tip, 'compute waits ' + time(slice[S.EXPOSED]) + ' for it');
      const real = data.measured && data.measured.slices.find(m => m[3] === slice[S.INSTR]);
      if (real) line(tip, 'measured ' + time(real[2]) + ', ' + (real[2] / slice[S.DURATION]).toFixed(2) + ' × predicted');
    } else if (state.y >= memoryTop && state.y <= memoryTop + MEMORY && state.x >= LEFT) {
      const point = points[pointAt(at)];
      line(tip, bytes(point.total) + ' in use at ' + time(at), true);
      point.levels.map((level, kind) => [level, kind]).filter(([level]) => level).sort((a, b) => b[0] - a[0])
        .forEach(([level, kind]) => line(tip, bytes(level) + ' ' + data.classes[kind].replace('_', ' ')));
    }
    tip.hidden = !tip.childNodes.length;
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + 'px';
  };

  // --- marking a unit, here and in the tables -----------------------------------------------------------
  const mark = unit => {
    state.marked = unit;
    document.querySelectorAll('tr.marked').forEach(row => row.classList.remove('marked'));
    const row = unit >= 0 && document.querySelector('tr[data-unit="' + unit + '"]');
    if (row) row.classList.add('marked');
    document.documentElement.dataset.marked = unit;
    draw();
  };
  document.querySelectorAll('[data-unit]').forEach(element => {
    if (element.tagName === 'TR') element.addEventListener('mouseenter', () => mark(+element.dataset.unit));
    else element.addEventListener('click', event => { event.preventDefault(); mark(+element.dataset.unit); });
  });

  // --- legend, start ------------------------------------------------------------------------------------
  const legend = document.getElementById('legend');
  const key = (name, text) => {
    const item = document.createElement('span'), square = document.createElement('i');
    square.className = 'key';
    square.style.background = 'var(' + name + ')';
    item.append(square, text);
    legend.appendChild(item);
  };
  data.phases.forEach((name, p) => { if (data.slices.some(s => !s[S.STREAM] && s[S.PHASE] === p)) key(phaseColors[p], name); });
  data.classes.forEach((name, c) => { if (points.some(p => p.levels[c] > top / 500)) key('--c' + c, name.replace('_', ' ')); });
  document.getElementById('schedule').hidden = false;
  document.getElementById('drawing').hidden = true;
  const hash = /zoom=([\d.]+)-([\d.]+)/.exec(location.hash), unit = /unit=(\d+)/.exec(location.hash);
  if (hash) show(data.total * +hash[1], data.total * +hash[2]);
  if (unit) mark(+unit[1]);
  window.addEventListener('resize', draw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { state.colors = {}; draw(); });
  paint();
  document.documentElement.dataset.ms = Math.round(performance.now());
  document.documentElement.dataset.ready = data.slices.length;
})();
