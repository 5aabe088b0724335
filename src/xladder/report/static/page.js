// The page of `xladder report` and `xladder watch`. A report has its data inside; a live page fetches it and listens.
// All text from runs goes through textContent, never through HTML.
"use strict";
(() => {
  const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B07500", "#3A93C9", "#6F4E9C", "#50565E"];
  const DARK = ["#56B0EA", "#F08A4B", "#35CFA3", "#E7A5CB", "#F2B53A", "#8FD3F7", "#B39BE0", "#AEB6BF"];
  const ITEMS = { gem: 0, bone: 7, food: 1, deck_a: 3, deck_b: 1, deck_c: 2, deck_d: 0, apples: 1, zapped: 7, clean: 2, zap: 3 };
  const VIRIDIS = ["440154", "482475", "414487", "355f8d", "2a788e", "21918c", "22a884", "44bf70", "7ad151", "bddf26", "fde725"];
  const RED_BLUE = ["053061", "2166ac", "4393c3", "92c5de", "d1e5f0", "f7f7f7", "fddbc7", "f4a582", "d6604d", "b2182b", "67001f"];
  const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // ---- Small helpers -------------------------------------------------------------------------------------------

  function el(tag, props, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(props || {})) {
      if (name === "class") node.className = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name in node && name !== "list") node[name] = value;
      else node.setAttribute(name, value);
    }
    for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
    return node;
  }

  const colours = () => (dark.matches ? DARK : LIGHT);
  const runColour = (run) => colours()[run.id % LIGHT.length];
  const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
  const minus = (text) => text.replace(/^-/, "−");

  function number(value, digits = 4) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (typeof value !== "number") return String(value);
    const size = Math.abs(value);
    if (size && (size < 1e-4 || size >= 1e9)) return minus(value.toExponential(2).replace(/\.?0+e/, "e").replace("e-", "e−").replace("e+", "e"));
    const decimals = size ? clamp(digits - 1 - Math.floor(Math.log10(size)), 0, 6) : 0;
    return minus(value.toLocaleString("en-US", { maximumFractionDigits: decimals }));
  }
  const signed = (value) => (value > 0 ? "+" : "") + number(value, 3);

  function short(value) {
    for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(value) >= size) return number(value / size, 3) + letter;
    return number(value, 3);
  }

  function duration(seconds) {
    if (seconds === null || seconds === undefined) return "–";
    if (seconds < 60) return `${number(seconds, 3)} s`;
    const minutes = Math.floor(seconds / 60);
    return minutes < 60 ? `${minutes} min ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  function rgb(stops, share) {
    const at = clamp(share, 0, 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
    const [a, b] = [stops[i], stops[i + 1]].map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));
    return a.map((x, k) => Math.round(x + (b[k] - x) * (at - i)));
  }

  const ARRAYS = { uint8: Uint8Array, uint16: Uint16Array, int16: Int16Array, float32: Float32Array };
  async function unpack(packed) {
    const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new ARRAYS[packed.dtype](await new Response(stream).arrayBuffer());
  }

  function sized(canvas, width, height) {
    const scale = Math.max(1, Math.min(3, devicePixelRatio || 1));
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    return pen;
  }

  // ---- Curves --------------------------------------------------------------------------------------------------

  function secondsAt(run, x) {
    const { x: xs, seconds } = run.times;
    if (!xs.length) return null;
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle + 1;
      else high = middle;
    }
    if (!low || xs[low] === x) return seconds[low] * (x / xs[low]);
    const share = (x - xs[low - 1]) / (xs[low] - xs[low - 1]);
    return seconds[low - 1] + share * (seconds[low] - seconds[low - 1]);
  }

  // What one chart shows: aligned data for uPlot, and what each series is.
  function chartSpec(section, title) {
    const shown = section.runs.filter((run) => !section.hidden.has(run.id));
    const panels = shown.map((run) => run.panels.find((panel) => panel.title === title));
    const any = section.runs.map((run) => run.panels.find((panel) => panel.title === title)).find(Boolean);
    const tables = [], series = [], bands = [];
    let low = Infinity, high = -Infinity, least = Infinity, bandLow = Infinity, bandHigh = -Infinity;
    const measure = (values) => {
      for (const value of values) {
        if (value === null) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
        if (value > 0) least = Math.min(least, value);
      }
    };
    shown.forEach((run, place) => {
      (panels[place] ? panels[place].lines : []).forEach((line, k) => {
        const x = section.byTime ? line.x.map((at) => secondsAt(run, at)) : line.x;
        if (section.byTime && x.some((at) => at === null)) return;
        const palette = colours();
        const colour = any.several ? palette[ITEMS[line.name] ?? (k + 2) % palette.length] : runColour(run);
        const dash = any.several ? [[], [6, 4], [2, 3], [8, 3, 2, 3]][place % 4] : [];
        measure(line.mean);
        const columns = [x, line.mean];
        series.push({ run, line, kind: "mean", colour, dash });
        if (line.low.length && (line.seeds.length || !any.several)) {
          const between = line.seeds.length > 0;
          for (const value of line.low) if (value !== null) bandLow = Math.min(bandLow, value);
          for (const value of line.high) if (value !== null) bandHigh = Math.max(bandHigh, value);
          columns.push(line.high, line.low);
          bands.push({ series: [series.length + 1, series.length + 2], fill: colour + (between ? "30" : "1f") });
          series.push({ run, line, kind: "band" }, { run, line, kind: "band" });
        }
        for (const seed of line.seeds) {
          measure(seed.y);
          columns.push(seed.y);
          series.push({ run, line, kind: "seed", seed: seed.seed, colour });
        }
        tables.push(columns);
      });
    });
    const logarithmic = Boolean(any && any.logarithmic && low > 0 && high > 3 * least && least < Infinity);
    if (tables.length && low < Infinity) {
      const room = logarithmic ? 0 : 0.25 * (high - low || Math.abs(high) || 1);
      if (!logarithmic) {
        low = Math.min(low, Math.max(bandLow, low - room));
        high = Math.max(high, Math.min(bandHigh, high + room));
      }
    }
    const references = any && any.wide ? shown.flatMap((run) =>
      Object.entries(run.references).map(([name, value]) => ({ name, value, run }))) : [];
    for (const { value } of references) {
      if (logarithmic && value <= 0) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (logarithmic) // an interval may reach below zero, which such an axis does not have
      for (const columns of tables)
        for (let k = 1; k < columns.length; k++) columns[k] = columns[k].map((value) => (value !== null && value <= 0 ? low / 2 : value));
    const data = tables.length ? uPlot.join(tables) : [[0, 1]];
    return { title, panel: any, data, series, bands, low, high, logarithmic, references, byTime: section.byTime,
      signature: JSON.stringify([series.map((s) => [s.run.id, s.kind, s.line.name, s.seed, s.colour, s.line.sparse]), logarithmic]) };
  }

  class Chart {
    constructor(section, title, wide) {
      this.section = section;
      this.title = title;
      this.place = el("div", { class: "plot" });
      this.tip = el("div", { class: "tip", hidden: true });
      this.number = el("span", { class: "late" });
      this.node = el("figure", { class: wide ? "chart wide" : "chart" },
        el("figcaption", {}, el("span", {}, title), this.number), this.place, this.tip);
      this.height = wide ? 280 : 200;
      this.plot = null;
      new ResizeObserver(() => this.resize()).observe(this.place);
    }

    resize() {
      const width = Math.floor(this.place.clientWidth);
      if (!width) return;
      if (!this.plot) this.draw();
      else if (this.plot.width !== width) this.plot.setSize({ width, height: this.height });
    }

    // Draws again; keeps the zoom and the cursor if only the numbers have changed.
    draw(force = false) {
      const width = Math.floor(this.place.clientWidth);
      if (!width) return;
      const spec = chartSpec(this.section, this.title), before = this.spec;
      this.spec = spec;
      this.showLast();
      if (!force && this.plot && before && before.signature === spec.signature && before.byTime === spec.byTime) {
        this.plot.setData(spec.data, !this.zoomed);
        if (this.zoomed) this.plot.redraw();
        return;
      }
      if (this.plot) this.plot.destroy();
      this.zoomed = false;
      const ink = theme("--faint"), line = theme("--line"), paper = theme("--card");
      const font = "12px " + theme("--font");
      const axis = { stroke: ink, font, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 } };
      const options = {
        width, height: this.height, padding: [12, 20, 0, 0], legend: { show: false },
        cursor: { y: false, drag: { x: true, y: false, dist: 8 }, points: { size: (_, i) => (i && this.spec.series[i - 1].kind === "band" ? 0 : 7) } },
        scales: {
          x: { time: false },
          y: { distr: spec.logarithmic ? 3 : 1, range: () => this.range() },
        },
        axes: [
          { ...axis, size: 34, space: 70, values: (_, ticks) => ticks.map(short) },
          { ...axis, size: 56, values: (_, ticks) => ticks.map((y) => (y === null ? "" : short(y))) },
        ],
        series: [{}, ...spec.series.map((one) => ({
          stroke: one.kind === "band" ? undefined : one.kind === "seed" ? one.colour + "99" : one.colour,
          width: one.kind === "mean" ? 2 : 1,
          dash: one.kind === "mean" ? one.dash : [],
          show: one.kind !== "seed",
          spanGaps: true,
          points: { show: one.kind === "mean" && one.line.sparse, size: 6, fill: one.colour || paper, stroke: one.colour },
        }))],
        bands: spec.bands,
        hooks: {
          setCursor: [() => this.hover()],
          setSelect: [(u) => { this.zoomed = u.select.width > 0 || this.zoomed; }],
          draw: [(u) => this.drawReferences(u)],
          ready: [(u) => {
            u.over.addEventListener("mouseenter", () => this.showSeeds(true));
            u.over.addEventListener("mouseleave", () => { this.showSeeds(false); this.tip.hidden = true; });
            u.over.addEventListener("dblclick", () => { this.zoomed = false; });
          }],
        },
      };
      this.plot = new uPlot(options, spec.data, this.place);
    }

    range() {
      const { panel, logarithmic } = this.spec;
      let { low, high } = this.spec;
      if (!(low < Infinity)) return [0, 1];
      if (logarithmic) return uPlot.rangeLog(low, high, 10, false);
      const room = 0.06 * (high - low) || 0.1 * Math.abs(high) || 1;
      const [least, most] = panel ? panel.limits : [null, null];
      return [least ?? low - room, most ?? high + room];
    }

    showLast() {
      const lines = this.spec.series.filter((one) => one.kind === "mean");
      const several = this.spec.panel && this.spec.panel.several;
      const runs = [...new Set(lines.map((one) => one.run))];
      if (several && runs.length > 1) {
        // Colours tell the lines apart, dashes the runs.
        const names = [...new Map(lines.map((one) => [one.line.name, one.colour]))];
        const styles = ["solid", "dashed", "dotted", "dash-dotted"];
        this.number.replaceChildren(...names.map(([name, colour]) => {
          const node = el("span", {}, name);
          node.style.color = colour;
          return node;
        }), ...runs.slice(0, 4).map((run, k) => el("span", { class: "faint" }, `${styles[k]}: ${run.name}`)));
        return;
      }
      this.number.replaceChildren(...lines.slice(0, 8).map((one) => {
        const [mean, interval] = one.line.last;
        const words = `${several ? one.line.name + " " : ""}${number(mean, 3)}${interval > 1e-9 * Math.abs(mean) ? " ± " + number(interval, 2) : ""}`;
        const node = el("span", { title: "mean of the last tenth" + (interval === null ? "" : " ± 95 % interval over seeds") }, words);
        node.style.color = one.colour;
        return node;
      }));
    }

    showSeeds(on) {
      const seeds = this.spec.series.map((one, i) => (one.kind === "seed" ? i + 1 : 0)).filter(Boolean);
      if (!seeds.length) return;
      this.plot.batch(() => seeds.forEach((i) => this.plot.setSeries(i, { show: on })));
    }

    hover() {
      const { left, top, idx } = this.plot.cursor;
      if (left < 0 || idx === null || idx === undefined) { this.tip.hidden = true; return; }
      const { data, series, panel, byTime } = this.spec;
      const near = (values) => {
        for (let away = 0; away < 60; away++)
          for (const i of [idx - away, idx + away]) if (values && values[i] !== null && values[i] !== undefined) return values[i];
        return null;
      };
      const first = series[0];
      if (!first) return;
      const x = data[0][idx];
      const rows = [el("b", {}, byTime ? `${number(x)} s` : `${number(x, 6)} ${first.run.unit}`)];
      series.forEach((one, i) => {
        if (one.kind === "band") return;
        const value = near(data[i + 1]);
        if (value === null) return;
        const name = one.kind === "seed" ? `seed ${one.seed}`
          : (panel.several ? `${one.line.name}${this.section.runs.length > 1 ? " · " + one.run.name : ""}` : one.run.name);
        const swatch = el("i", {});
        swatch.style.background = one.colour;
        const band = one.kind === "mean" && one.line.low.length ? [near(data[i + 2]), near(data[i + 3])] : [];
        const words = one.kind === "mean" && one.line.interval && band[0] !== null && band.length
          ? `${number(value)} ± ${number(band[0] - value, 2)}` : number(value);
        rows.push(el("span", { class: one.kind }, swatch, el("em", {}, name), el("strong", {}, words)));
      });
      this.tip.replaceChildren(...rows.slice(0, 20));
      this.tip.hidden = false;
      const width = this.tip.offsetWidth, over = this.plot.over;
      const at = over.offsetLeft + left, room = this.place.clientWidth;
      this.tip.style.left = `${at + 16 + width < room ? at + 14 : Math.max(0, at - width - 14)}px`;
      this.tip.style.top = `${this.place.offsetTop + clamp(top - 20, 4, 80)}px`;
    }

    drawReferences(u) {
      const pen = u.ctx, ratio = devicePixelRatio || 1;
      pen.save();
      pen.font = `${12 * ratio}px ${theme("--font")}`;
      const many = this.spec.references.length > 1;
      for (const { name, value, run } of this.spec.references) {
        if (this.spec.logarithmic && value <= 0) continue;
        const y = u.valToPos(value, "y", true), { left, width } = u.bbox;
        pen.strokeStyle = pen.fillStyle = many ? runColour(run) : theme("--ink");
        pen.globalAlpha = 0.75;
        pen.lineWidth = ratio;
        pen.setLineDash([5 * ratio, 4 * ratio]);
        pen.beginPath();
        pen.moveTo(left, y);
        pen.lineTo(left + width, y);
        pen.stroke();
        pen.textAlign = "right";
        if (many && run !== this.spec.references[0].run) continue;
        const label = [`${name}: ${number(value, 3)}`, left + width - 4 * ratio, y - 5 * ratio];
        pen.setLineDash([]);
        pen.lineWidth = 4 * ratio;
        pen.lineJoin = "round";
        pen.strokeStyle = theme("--card");  // a rim, where curves pass behind it
        pen.strokeText(...label);
        pen.fillText(...label);
      }
      pen.restore();
    }
  }

  // ---- Scenes --------------------------------------------------------------------------------------------------
  // Each kind has `times`, one per frame; `traces`, lines over these times; `draw(i, share)`; and a node.

  class BoardScene {
    constructor(scene) {
      this.scene = scene;
      this.pace = 4; // turns per second
      this.chosen = 0;
      this.canvas = el("canvas", { class: "board", role: "img" });
      this.seen = el("canvas", { class: "seen" });
      this.chips = el("div", { class: "chips" });
      this.bars = el("div", { class: "bars" });
      this.words = el("p", { class: "words" });
      this.events = el("ol", { class: "events", "aria-label": "last rewards" });
      this.detail = el("div", { class: "detail" }, el("div", {}, this.seen), el("div", { class: "grow" }, this.words, this.bars));
      this.node = el("div", { class: "scene" }, this.canvas, el("div", { class: "beside" }, this.chips, this.detail, this.legend(), this.events));
    }

    legend() {
      return el("div", { class: "legend" }, this.scene.legend.map((item) =>
        el("span", {}, el("img", { src: this.scene.sprites[item.sprite], alt: "" }), `${item.name} ${signed(item.value)}`)));
    }

    async load() {
      const names = ["cells", "positions", "actions", "rewards", "values", "views"];
      const arrays = await Promise.all(names.map((name) => unpack(this.scene[name])));
      names.forEach((name, i) => { this[name] = arrays[i]; });
      [this.turns, this.rows, this.columns] = this.scene.cells.shape;
      this.count = this.scene.actors.length;
      this.times = Array.from({ length: this.turns }, (_, i) => i + 1);
      this.unit = "turn";
      this.sprites = await Promise.all(this.scene.sprites.map((uri) => new Promise((done) => {
        const image = new Image();
        image.onload = image.onerror = () => done(image);
        image.src = uri;
      })));
      this.totals = new Float64Array(this.turns * this.count);
      for (let t = 0; t < this.turns; t++)
        for (let i = 0; i < this.count; i++)
          this.totals[t * this.count + i] = (t ? this.totals[(t - 1) * this.count + i] : 0) + this.rewards[t * this.count + i];
      this.traces = this.scene.actors.map((actor, i) => ({
        colour: actor.colour, values: this.times.map((_, t) => this.totals[t * this.count + i]) }));
      this.trace = "return so far";
      this.buttons = this.scene.actors.map((actor, i) => {
        const button = el("button", { type: "button", title: "what this agent saw, expected and did",
          onclick: () => { this.chosen = this.chosen === i ? -1 : i; this.again(); } });
        button.style.background = actor.colour;
        button.style.color = light(actor.colour) ? "#1F2328" : "#FFFFFF";
        return button;
      });
      this.chips.replaceChildren(...this.buttons);
      [this.low, this.high] = this.values.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);
    }

    key(name) {
      if (!/^[0-9]$/.test(name)) return false;
      this.chosen = Number(name) - 1 < this.count ? Number(name) - 1 : this.chosen;
      this.again();
      return true;
    }

    again() { this.draw(this.last[0], this.last[1], this.last[2]); }

    draw(t, share = 1, width = 400) {
      this.last = [t, share, width];
      const tile = Math.max(8, Math.min(44, Math.floor(Math.min(width, 640) / this.columns)));
      const pen = sized(this.canvas, tile * this.columns, tile * this.rows);
      for (let y = 0; y < this.rows; y++)
        for (let x = 0; x < this.columns; x++) {
          pen.fillStyle = this.scene.ground[(x + y) % 2];
          pen.fillRect(x * tile, y * tile, tile, tile);
          // While agents move, the board is still the one before.
          const from = share < 0.6 && t ? t - 1 : t;
          const code = this.cells[(from * this.rows + y) * this.columns + x];
          if (code) pen.drawImage(this.sprites[code - 1], x * tile, y * tile, tile, tile);
        }
      const places = this.scene.actors.map((_, i) => {
        const [row, column] = this.where(t, i), [row0, column0] = this.where(t - 1, i);
        const ease = share * share * (3 - 2 * share);
        return [row0 + (row - row0) * ease, column0 + (column - column0) * ease];
      });
      if (this.chosen >= 0) this.shade(pen, tile, t);
      this.flash(pen, tile, t, share, [2, 1]);
      this.scene.actors.forEach((actor, i) => {
        const [y, x] = places[i], reward = this.rewards[t * this.count + i];
        if (reward && share > 0.6) {
          pen.fillStyle = reward > 0 ? "#FFB40088" : "#B3261E88";
          pen.beginPath();
          pen.arc((x + 0.5) * tile, (y + 0.5) * tile, 0.66 * tile, 0, 7);
          pen.fill();
        }
        pen.drawImage(this.sprites[actor.sprite], x * tile, y * tile, tile, tile);
      });
      if (share >= 0.6) this.flash(pen, tile, t, share, [0]);
      this.tell(t);
    }

    // Rewards of this turn and of those before, which rise and fade.
    flash(pen, tile, t, share, ages) {
      pen.save();
      pen.font = `700 ${Math.max(11, 0.4 * tile)}px ${theme("--font")}`;
      pen.textAlign = "center";
      pen.lineJoin = "round";
      for (const age of ages) {
        for (let i = 0; t >= age && i < this.count; i++) {
          const reward = this.rewards[(t - age) * this.count + i];
          if (!reward) continue;
          const [row, column] = this.where(t - age, i);
          const x = clamp((column + 0.5) * tile, tile * 0.6, tile * (this.columns - 0.6));
          const y = Math.max(12, (row - 0.1 - 0.28 * (age + share - 1)) * tile);
          pen.globalAlpha = [1, 0.7, 0.35][age];
          pen.lineWidth = 4;
          pen.strokeStyle = "#FFFFFF";
          pen.strokeText(signed(reward), x, y);
          pen.fillStyle = reward > 0 ? "#0B5CAD" : "#B3261E";
          pen.fillText(signed(reward), x, y);
        }
      }
      pen.restore();
    }

    // Row and column of an agent after a turn, counted from 0; −1 is the start.
    where(turn, i) {
      const at = ((turn + 1) * this.count + i) * 2;
      return [this.positions[at], this.positions[at + 1]];
    }

    // Darkens what the chosen agent did not see when it chose.
    shade(pen, tile, t) {
      if (this.scene.whole) return;
      const [, , h, w] = this.scene.views.shape, i = this.chosen;
      const [row, column] = this.where(t - 1, i);
      const top = (row - (h - 1) / 2) * tile, left = (column - (w - 1) / 2) * tile;
      pen.save();
      pen.fillStyle = "#1F232826";
      pen.beginPath();
      pen.rect(0, 0, tile * this.columns, tile * this.rows);
      pen.rect(left, top, w * tile, h * tile);
      pen.fill("evenodd");
      pen.strokeStyle = this.scene.actors[i].colour;
      pen.lineWidth = 2;
      pen.strokeRect(left, top, w * tile, h * tile);
      pen.restore();
    }

    tell(t) {
      this.buttons.forEach((button, i) => {
        button.textContent = `${i + 1}: ${number(this.totals[t * this.count + i], 3)}`;
        button.setAttribute("aria-pressed", String(i === this.chosen));
      });
      const total = this.scene.actors.reduce((sum, _, i) => sum + this.totals[t * this.count + i], 0);
      this.canvas.setAttribute("aria-label", `board after turn ${t + 1}, return ${number(total, 3)}`);
      this.score = `return ${number(total, 4)}`;
      const rows = [];
      for (let turn = t; turn >= 0 && rows.length < 6; turn--)
        for (let i = 0; i < this.count; i++) {
          const reward = this.rewards[turn * this.count + i];
          if (reward) rows.push(el("li", {}, `turn ${turn + 1}`, el("span", {}, this.scene.actors[i].name), el("b", { class: reward > 0 ? "gain" : "loss" }, signed(reward))));
        }
      this.events.replaceChildren(...rows.slice(0, 6));
      this.detail.hidden = this.chosen < 0;
      if (this.chosen < 0) return;
      const i = this.chosen, [, , h, w] = this.scene.views.shape, tile = Math.max(8, Math.floor(110 / w));
      const pen = sized(this.seen, tile * w, tile * h);
      const [ownRow, ownColumn] = this.scene.whole ? this.where(t - 1, i) : [(h - 1) / 2, (w - 1) / 2];
      for (let y = 0; y < h; y++)
        for (let x = 0; x < w; x++) {
          pen.fillStyle = this.scene.ground[(x + y) % 2];
          pen.fillRect(x * tile, y * tile, tile, tile);
          const code = this.views[((t * this.count + i) * h + y) * w + x];
          const own = y === ownRow && x === ownColumn;
          const sprite = own ? this.scene.actors[i].sprite : code - 1;
          if (own || code) pen.drawImage(this.sprites[sprite], x * tile, y * tile, tile, tile);
        }
      const reward = this.rewards[t * this.count + i], action = this.actions[t * this.count + i];
      this.words.replaceChildren(el("b", {}, this.scene.actors[i].name), ` saw this, chose ${this.scene.action_names[action]} and got `,
        el("b", { class: reward > 0 ? "gain" : reward < 0 ? "loss" : "" }, reward ? signed(reward) : "0"));
      const many = this.scene.action_names.length, from = (t * this.count + i) * many;
      drawBars(this.bars, this.scene.action_names, this.values.subarray(from, from + many), action, this.low, this.high, this.scene.actors[i].colour);
    }
  }

  const light = (hex) => {
    const [r, g, b] = [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
    return 0.299 * r + 0.587 * g + 0.114 * b > 140;
  };

  // Values of actions as bars; made once, then only changed.
  function drawBars(place, names, values, chosen, low, high, colour) {
    if (place.children.length !== names.length)
      place.replaceChildren(...names.map((name) => el("div", { class: "bar" }, el("span", {}, name), el("div", { class: "track" }, el("div", {})), el("output", {}))));
    names.forEach((_, k) => {
      const row = place.children[k], fill = row.children[1].firstChild, value = values[k];
      row.classList.toggle("chosen", k === chosen);
      const usable = value > -1e8; // unavailable actions are masked by a very low value
      fill.style.width = `${usable ? 100 * clamp((value - low) / (high - low || 1), 0.01, 1) : 0}%`;
      fill.style.background = colour;
      row.children[2].textContent = usable ? number(value, 3) : "–";
    });
  }

  class FilmScene {
    constructor(scene) {
      this.scene = scene;
      this.pace = 25;
      this.canvas = el("canvas", { class: "film", role: "img" });
      this.words = el("p", { class: "words" });
      this.bars = el("div", { class: "bars" });
      this.node = el("div", { class: "scene" }, this.canvas,
        el("div", { class: "beside" }, el("div", { class: "detail" }, el("div", { class: "grow" }, this.words, this.bars))));
    }

    async load() {
      const names = ["frames", "rewards", "actions", "values"];
      const arrays = await Promise.all(names.map((name) => unpack(this.scene[name])));
      names.forEach((name, i) => { this[name] = arrays[i]; });
      const [count, height, width] = this.scene.frames.shape, size = height * width;
      for (let i = size; i < count * size; i++) this.frames[i] ^= this.frames[i - size];
      [this.height, this.width] = [height, width];
      this.palette = this.scene.palette.match(/.{6}/g).map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));
      this.times = this.scene.shown.map((step) => step + 1);
      this.unit = "step";
      let sum = 0;
      this.totals = Array.from(this.rewards, (reward) => (sum += reward));
      this.traces = [{ colour: null, values: this.scene.shown.map((step) => this.totals[step]) }];
      this.trace = "return so far";
      this.image = new ImageData(width, height);
      this.picture = el("canvas", { width, height });
      let low = Infinity, high = -Infinity;
      for (const value of this.values) if (value > -1e8) { low = Math.min(low, value); high = Math.max(high, value); }
      [this.low, this.high] = [low, high];
    }

    key() { return false; }

    draw(t, _, width = 400) {
      const size = this.height * this.width, pixels = this.image.data, frame = this.frames.subarray(t * size, (t + 1) * size);
      for (let i = 0; i < size; i++) {
        const colour = this.palette[frame[i]];
        pixels[4 * i] = colour[0];
        pixels[4 * i + 1] = colour[1];
        pixels[4 * i + 2] = colour[2];
        pixels[4 * i + 3] = 255;
      }
      this.picture.getContext("2d").putImageData(this.image, 0, 0);
      const scale = Math.min(width / this.width, 460 / this.height, Math.max(1, Math.floor(420 / this.width)) * 1.2);
      const pen = sized(this.canvas, Math.floor(this.width * scale), Math.floor(this.height * scale));
      pen.imageSmoothingEnabled = scale < 1;
      pen.drawImage(this.picture, 0, 0, Math.floor(this.width * scale), Math.floor(this.height * scale));
      const step = this.scene.shown[t], many = this.scene.action_names.length;
      this.score = `return ${number(this.totals[step], 4)}`;
      this.canvas.setAttribute("aria-label", `frame of step ${step + 1}, ${this.score}`);
      if (step < this.actions.length) {
        const reward = this.rewards[step + 1];
        this.words.replaceChildren("chooses ", el("b", {}, this.scene.action_names[this.actions[step]] ?? ""),
          reward === undefined ? " · the episode ends" : ` · reward ${signed(reward)}`);
        if (many <= 20) drawBars(this.bars, this.scene.action_names, this.values.subarray(step * many, (step + 1) * many), this.actions[step], this.low, this.high, colours()[0]);
      } else this.words.textContent = "the episode ends";
    }
  }

  class MapsScene {
    constructor(scene) {
      this.scene = scene;
      this.pace = 4;
      this.maps = ["target", "learned", "learned − target"].map((name) => ({ name, canvas: el("canvas", { role: "img", "aria-label": name }) }));
      this.distance = el("output", { class: "big" });
      this.words = el("p", { class: "words" });
      this.cell = el("p", { class: "words cell" }, "Point at a cell for its probabilities.");
      this.node = el("div", { class: "scene" },
        el("p", { class: "headline" }, "total variation ", this.distance, el("small", {}, ` (${scene.distance})`)),
        el("div", { class: "maps" }, this.maps.map(({ name, canvas }) => el("figure", {}, canvas, el("figcaption", {}, name)))), this.words, this.cell);
    }

    async load() {
      [this.target, this.learned] = await Promise.all([unpack(this.scene.target), unpack(this.scene.learned)]);
      [this.rows, this.columns] = this.scene.target.shape;
      this.size = this.rows * this.columns;
      this.times = this.scene.ticks;
      this.unit = this.scene.tick;
      this.traces = [{ colour: null, values: this.scene.distances }];
      this.trace = "total variation";
      this.top = this.target.reduce((a, b) => Math.max(a, b), 0) * 1.25 || 1;
      const last = this.learned.length - this.size;
      this.furthest = 1e-12;
      for (let i = 0; i < this.size; i++) this.furthest = Math.max(this.furthest, Math.abs(this.learned[last + i] * this.scene.unit - this.target[i]));
      this.furthest = Math.max(2 * this.furthest, this.top / 4);
      for (const { canvas } of this.maps) {
        canvas.addEventListener("pointermove", (event) => this.point(event, canvas));
        canvas.addEventListener("pointerleave", () => { this.cell.textContent = "Point at a cell for its probabilities."; });
      }
    }

    key() { return false; }

    point(event, canvas) {
      const box = canvas.getBoundingClientRect();
      const column = clamp(Math.floor((event.clientX - box.left) / box.width * this.columns), 0, this.columns - 1);
      const row = clamp(Math.floor((event.clientY - box.top) / box.height * this.rows), 0, this.rows - 1);
      const i = row * this.columns + column, learned = this.learned[this.now * this.size + i] * this.scene.unit;
      this.cell.textContent = `cell (${row}, ${column}): target ${number(this.target[i], 3)}, learned ${number(learned, 3)}, error ${signed(learned - this.target[i])}`;
    }

    draw(t, _, width = 400) {
      this.now = t;
      const from = t * this.size, unit = this.scene.unit;
      const learned = (i) => this.learned[from + i] * unit;
      const shades = [
        (i) => rgb(VIRIDIS, Math.sqrt(this.target[i] / this.top)),
        (i) => rgb(VIRIDIS, Math.sqrt(learned(i) / this.top)),
        (i) => rgb(RED_BLUE, 0.5 + (learned(i) - this.target[i]) / this.furthest / 2),
      ];
      const across = width > 420 ? 3 : 2;
      const side = Math.min(230, (width - 12 * (across - 1)) / across);
      const tile = Math.max(1, Math.floor(side / this.columns)), tall = this.rows === 1 ? Math.max(tile, 24) : tile;
      this.maps.forEach(({ canvas }, k) => {
        const pen = sized(canvas, tile * this.columns, tall * this.rows);
        for (let i = 0; i < this.size; i++) {
          const [r, g, b] = shades[k](i);
          pen.fillStyle = `rgb(${r} ${g} ${b})`;
          pen.fillRect((i % this.columns) * tile, Math.floor(i / this.columns) * tall, tile, tall);
        }
      });
      const distance = this.scene.distances[t];
      this.distance.textContent = distance === null ? "–" : distance.toFixed(4);
      this.score = `TV ${distance === null ? "–" : distance.toFixed(3)}`;
      this.words.textContent = `${this.scene.caption}; ${this.scene.tick} ${number(this.times[t], 7)}; colours by the square root of a probability`;
    }
  }

  const KINDS = { board: BoardScene, film: FilmScene, maps: MapsScene };

  // ---- The player: one timeline for one scene, or for two side by side -----------------------------------------

  class Player {
    constructor(section, choices) {
      this.section = section;
      this.choices = choices; // { run, scene, label }
      this.views = [];
      this.at = 0;
      this.speed = 2;
      this.playing = false;
      this.stages = el("div", { class: "stages" });
      this.strip = el("canvas", { class: "strip" });
      this.scrub = el("input", { type: "range", min: "0", max: "0", step: "1", value: "0", "aria-label": "time",
        oninput: () => { this.pause(); this.go(Number(this.scrub.value)); } });
      this.button = el("button", { type: "button", class: "play", onclick: () => this.toggle() }, "▶");
      this.pacing = el("output", { class: "pace" });
      this.clock = el("output", { class: "clock" });
      const button = (text, title, action) => el("button", { type: "button", title, "aria-label": title, onclick: action }, text);
      this.selects = [0, 1].map((k) => el("select", { "aria-label": k ? "second replay" : "first replay", onchange: () => this.choose() }));
      choices.forEach((choice, i) => this.selects.forEach((select) => select.append(el("option", { value: String(i) }, choice.label))));
      this.selects[1].prepend(el("option", { value: "-1" }, "nothing beside it"));
      const beside = (fits) => choices.findIndex((choice, i) => i > 0 && choice.scene.kind === choices[0].scene.kind && fits(choice));
      const another = beside((choice) => choice.run !== choices[0].run);
      // Where seeds disagree, a run has the maps of its median seed and of its worst.
      const other = another < 0 && choices[0].scene.kind === "maps" ? beside(() => true) : another;
      this.selects[0].value = "0";
      this.selects[1].value = String(other);
      this.controls = el("div", { class: "controls" },
        button("|◀", "to the beginning (Home)", () => { this.pause(); this.go(0); }),
        button("◀|", "one step back (←)", () => { this.pause(); this.go(this.at - 1); }),
        this.button,
        button("▶|", "one step (→)", () => { this.pause(); this.go(this.at + 1); }),
        button("−", "slower (−)", () => this.faster(-1)), this.pacing, button("+", "faster (+)", () => this.faster(1)),
        this.clock);
      this.node = el("div", { class: "player", tabIndex: 0, "aria-label": "replay: space plays and pauses, arrow keys step, plus and minus change the speed" },
        choices.length > 1 ? el("div", { class: "choices" }, ...this.selects) : null,
        this.stages, this.strip, this.scrub, this.controls);
      this.node.addEventListener("pointerdown", () => { Player.active = this; });
      this.node.addEventListener("focusin", () => { Player.active = this; });
      this.faster(0);
      new ResizeObserver(() => { if (this.node.clientWidth !== this.width) this.show(); }).observe(this.node);
      this.choose();
    }

    async choose() {
      const picked = this.selects.map((select) => Number(select.value)).filter((i, k) => i >= 0 && (k === 0 || this.choices.length > 1));
      const loading = (this.loading = picked.map((i) => {
        const { run, scene, label } = this.choices[i];
        return { run, label, view: new KINDS[scene.kind](scene) };
      }));
      try {
        await Promise.all(loading.map(({ view }) => view.load()));
      } catch {
        this.stages.replaceChildren(el("p", { class: "note" }, "This browser cannot unpack the replay: a newer one can."));
        return;
      }
      if (this.loading !== loading) return; // chosen again meanwhile
      this.views = loading;
      this.timeline = [...new Set(loading.flatMap(({ view }) => view.times))].sort((a, b) => a - b);
      this.stages.replaceChildren(...loading.map((one) => {
        const swatch = el("i", { class: "swatch" });
        swatch.style.background = runColour(one.run);
        one.score = el("output", {});
        return el("div", { class: "stage" }, el("h4", {}, swatch, el("span", {}, one.label), one.score), one.view.node);
      }));
      this.stages.classList.toggle("two", loading.length > 1);
      this.scrub.max = String(this.timeline.length - 1);
      // Maps begin with what was learned in the end; episodes at their beginning.
      this.go(loading[0].view.unit === "turn" || loading[0].view.unit === "step" ? 0 : this.timeline.length - 1);
      this.node.dataset.ready = "yes";
    }

    toggle() { if (this.playing) this.pause(); else this.play(); }

    play() {
      if (!this.views.length) return;
      if (this.at >= this.timeline.length - 1) this.go(0);
      Player.active = this;
      this.playing = true;
      this.button.textContent = "▮▮";
      this.button.setAttribute("aria-label", "pause (space)");
      let before = null, part = 0;
      const step = (now) => {
        if (!this.playing) return;
        if (before !== null) part += Math.min(0.25, (now - before) / 1000) * this.views[0].view.pace * SPEEDS[this.speed];
        before = now;
        if (part >= 1) {
          const whole = Math.floor(part);
          part -= whole;
          this.at = Math.min(this.at + whole, this.timeline.length - 1);
        }
        const over = this.at >= this.timeline.length - 1;
        this.show(over ? 1 : undefined, part);
        if (over) this.pause();
        else requestAnimationFrame(step);
      };
      requestAnimationFrame(step);
    }

    pause() {
      this.playing = false;
      this.button.textContent = "▶";
      this.button.setAttribute("aria-label", "play (space)");
    }

    faster(change) {
      this.speed = clamp(this.speed + change, 0, SPEEDS.length - 1);
      this.pacing.textContent = `${SPEEDS[this.speed]}×`;
    }

    go(at) {
      if (!this.timeline) return;
      this.at = clamp(at, 0, this.timeline.length - 1);
      this.show();
    }

    // `part` of the way to the next time, while playing.
    show(_, part = 0) {
      if (!this.views.length) return;
      const width = (this.width = this.node.clientWidth), two = this.views.length > 1 && width > 640;
      const room = Math.floor((two ? (width - 28) / 2 : width) - 4);
      for (const one of this.views) {
        const { view } = one, smooth = this.playing && view.pace * SPEEDS[this.speed] <= 10;
        const ahead = smooth && this.at < this.timeline.length - 1 ? this.timeline[this.at + 1] : this.timeline[this.at];
        const i = lastUpTo(view.times, ahead), moves = smooth && i !== lastUpTo(view.times, this.timeline[this.at]);
        view.draw(i, moves ? part : 1, room);
        one.score.textContent = view.score;
      }
      const first = this.views[0].view;
      this.scrub.value = String(this.at);
      this.clock.textContent = `${first.unit} ${number(this.timeline[this.at], 7)} of ${number(this.timeline[this.timeline.length - 1], 7)}`;
      this.scrub.setAttribute("aria-valuetext", this.clock.textContent);
      this.drawStrip(width);
    }

    drawStrip(width) {
      const height = 54, pen = sized(this.strip, width, height), { timeline } = this;
      const several = this.views.length > 1;
      const lines = this.views.flatMap(({ view, run }) => (several ? [total(view.traces)] : view.traces).map((trace) => ({ ...trace, times: view.times, colour: trace.colour || runColour(run) })));
      const values = lines.flatMap((line) => line.values).filter((value) => value !== null);
      const low = Math.min(0, ...values), high = Math.max(...values, low + 1e-9);
      const x = (time) => 8 + (width - 16) * (timeline.length > 1 ? (time - timeline[0]) / (timeline[timeline.length - 1] - timeline[0]) : 0);
      const y = (value) => height - 5 - (height - 20) * (value - low) / (high - low);
      pen.strokeStyle = theme("--line");
      pen.beginPath();
      pen.moveTo(0, y(0));
      pen.lineTo(width, y(0));
      pen.stroke();
      pen.lineWidth = 1.6;
      for (const line of lines) {
        for (const [from, alpha] of [[0, 0.25], [1, 1]]) {
          pen.globalAlpha = alpha;
          pen.strokeStyle = line.colour;
          pen.beginPath();
          line.values.forEach((value, i) => {
            if (value === null || (from && line.times[i] > timeline[this.at])) return;
            pen.lineTo(x(line.times[i]), y(value));
          });
          pen.stroke();
        }
      }
      pen.globalAlpha = 1;
      pen.strokeStyle = theme("--ink");
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(x(timeline[this.at]), 12);
      pen.lineTo(x(timeline[this.at]), height);
      pen.stroke();
      pen.fillStyle = theme("--faint");
      pen.font = `11px ${theme("--font")}`;
      pen.fillText(`${this.views[0].view.trace}, ${number(low, 3)} to ${number(high, 3)}`, 2, 10);
    }

    key(event) {
      const { key } = event, jump = event.shiftKey ? 10 : 1;
      if (key === " ") this.toggle();
      else if (key === "ArrowRight") { this.pause(); this.go(this.at + jump); }
      else if (key === "ArrowLeft") { this.pause(); this.go(this.at - jump); }
      else if (key === "Home") { this.pause(); this.go(0); }
      else if (key === "End") { this.pause(); this.go(this.timeline ? this.timeline.length - 1 : 0); }
      else if (key === "+" || key === "=") this.faster(1);
      else if (key === "-" || key === "−") this.faster(-1);
      else return this.views.map(({ view }) => view.key(key)).some(Boolean);
      return true;
    }
  }
  // Several lines as one: their sum.
  const total = (traces) => (traces.length < 2 ? traces[0]
    : { colour: null, values: traces[0].values.map((_, i) => traces.reduce((sum, trace) => sum + trace.values[i], 0)) });

  Player.active = null;
  Player.all = [];

  function lastUpTo(times, time) {
    let found = 0;
    times.forEach((one, i) => { if (one <= time) found = i; });
    return found;
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const tag = event.target.tagName;
    if (tag === "SELECT" || tag === "TEXTAREA" || (tag === "INPUT" && event.target.type !== "range")) return;
    if ((tag === "BUTTON" || tag === "SUMMARY" || tag === "A") && (event.key === " " || event.key === "Enter")) return;
    const inside = event.target.closest && event.target.closest(".player");
    const player = Player.all.find((one) => one.node === inside) || Player.active || Player.all[0];
    if (!player || !player.node.isConnected) return;
    // Without focus in a player, the keys that scroll a page keep doing so unless a player is in view.
    const box = player.node.getBoundingClientRect();
    if (!inside && (box.bottom < 80 || box.top > innerHeight - 80)) return;
    if (player.key(event)) event.preventDefault();
  });

  // ---- Blocks of a section -------------------------------------------------------------------------------------

  const STATES = { finished: "finished", training: "training", stopped: "not finished", diverged: "diverged" };

  function swatchOf(run) {
    const swatch = el("i", { class: "swatch" });
    swatch.style.background = runColour(run);
    return swatch;
  }

  function cards(section) {
    return el("div", { class: "cards" }, section.runs.map((run) => {
      const share = run.total ? clamp(run.done / run.total, 0, 1) : 0;
      const fill = el("div", {});
      fill.style.width = `${100 * share}%`;
      fill.style.background = runColour(run);
      const rate = run.seconds ? run.done / run.seconds : 0;
      const left = run.state === "training" && rate && run.total ? ` · ${duration((run.total - run.done) / rate)} left` : "";
      const done = run.total ? `${number(run.done, 9)} of ${number(run.total, 9)} ${run.unit}` : `${number(run.done, 9)} ${run.unit}`;
      const seen = !section.hidden.has(run.id);
      return el("article", { class: "card" },
        el("h3", {}, swatchOf(run), el("span", {}, run.name),
          section.runs.length > 1 ? el("button", { type: "button", class: "eye", "aria-pressed": String(seen), title: "show or hide its curves",
            onclick: () => { if (seen) section.hidden.add(run.id); else section.hidden.delete(run.id); section.refresh(true); } }, seen ? "shown" : "hidden") : null,
          el("span", { class: `state ${run.state}` }, STATES[run.state] || run.state)),
        el("p", { class: "facts" }, [run.rung, run.seeds, run.seconds === null ? null : `${duration(run.seconds)} of training`, rate ? `${short(rate)} ${run.unit}/s` : null].filter(Boolean).join(" · ")),
        el("div", { class: "progress" }, fill), el("p", { class: "facts" }, done + left),
        [...run.summary, ...run.score_lines].map((line) => el("p", { class: "line" }, line)),
        run.notes.map((note) => el("p", { class: "note" }, note)));
    }));
  }

  function table(head, rows, caption) {
    return el("div", { class: "scroll" }, el("table", {}, caption ? el("caption", {}, caption) : null,
      head ? el("thead", {}, el("tr", {}, head.map((cell) => el("th", { scope: "col" }, cell)))) : null,
      el("tbody", {}, rows.map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name), cells.map((cell) => el("td", {}, cell)))))));
  }

  const shown = (value) => (Array.isArray(value) ? value.map((one) => number(one, 4)).join(", ") : value === true ? "yes" : value === false ? "no" : number(value, 5));

  function side(runs, field, show = String) {
    const names = [...new Set(runs.flatMap((run) => run[field].map(([name]) => name)))];
    return names.map((name) => [name, ...runs.map((run) => {
      const entry = run[field].find(([other]) => other === name);
      return entry ? show(entry[1]) : "";
    })]);
  }

  const heads = (runs) => [""].concat(runs.map((run) => el("span", {}, swatchOf(run), run.name)));

  function evaluation(section) {
    const intervals = (name) => ({ mean_return: "ci95", random_return: "random_ci95" })[name] || `${name}_ci95`;
    const all = side(section.runs, "score", shown), of = new Map(all.map(([name, ...cells]) => [name, cells]));
    const rows = all.filter(([name]) => !/(^|_)ci95$/.test(name)).map(([name, ...cells]) => {
      const around = of.get(intervals(name)) || [];
      return [name.replaceAll("_", " "), ...cells.map((cell, i) => (around[i] && around[i] !== "–" ? `${cell} ± ${around[i]}` : cell))];
    });
    const body = rows.length ? table(heads(section.runs), rows, "± is a 95 % interval")
      : el("p", { class: "faint" }, "Not evaluated yet. `xladder eval RUN` evaluates the agents of a run.");
    return block("Evaluation", body);
  }

  function settings(section) {
    const { config } = section.differences, runs = section.runs;
    const differ = runs.length < 2 ? null : config.length
      ? table(heads(runs), config.map(([name, values]) => [name, ...values]), "What differs")
      : el("p", { class: "faint" }, "All settings are the same.");
    return block("Settings", differ, el("details", {}, el("summary", {}, "All settings"), table(heads(runs), side(runs, "config"))));
  }

  function environment(section) {
    const runs = section.runs, differ = section.differences.environment;
    const timings = side(runs, "timings").map(([name, ...cells]) => [name.replaceAll("_", " "), ...cells]);
    return block("Timings and environment",
      timings.length ? table(heads(runs), timings, "Timings, in seconds") : null,
      runs.length > 1 && differ.length ? table(heads(runs), differ.map(([name, values]) => [name, ...values]), "What differs in the environment") : null,
      el("details", {}, el("summary", {}, "Environment"), table(heads(runs), side(runs, "environment"))),
      runs.filter((run) => run.log.length).map((run) =>
        el("details", {}, el("summary", {}, `Log of ${run.name}`), el("pre", {}, run.log.join("\n")))));
  }

  const block = (title, ...children) => el("section", { class: "block" }, el("h3", {}, title), ...children);

  // ---- A section: the runs of one workload ---------------------------------------------------------------------

  class Section {
    constructor(workload) {
      this.workload = workload;
      this.hidden = new Set();
      this.byTime = false;
      this.charts = new Map();
      this.keys = {};
      this.parts = {};
      this.grid = el("div", { class: "charts" });
      this.axis = el("div", { class: "axis", role: "group", "aria-label": "horizontal axis" });
      this.curves = block("Curves", this.axis, this.grid, (this.hint = el("p", { class: "faint" })));
      this.replay = el("section", { class: "block replay" });
      this.node = el("section", { class: "workload", id: `workload-${workload.replace(/[^\w-]/g, "-")}` }, el("h2", {}, workload));
      for (const name of ["cards", "curves", "replay", "evaluation", "settings", "environment"]) {
        this.parts[name] = this[name] instanceof Node ? this[name] : el("div", {});
        this.node.append(this.parts[name]);
      }
    }

    take(runs, differences) {
      this.runs = runs;
      this.differences = differences;
      this.refresh(false);
    }

    refresh(force) {
      const runs = this.runs;
      this.swap("cards", cards, runs.map(({ panels, times, scenes, log, ...rest }) => rest).concat([[...this.hidden]]), force);
      this.swap("evaluation", evaluation, runs.map((run) => run.score), force);
      this.swap("settings", settings, [runs.map((run) => run.config), this.differences.config], force);
      this.swap("environment", environment, [runs.map((run) => [run.timings, run.environment, run.log]), this.differences.environment], force);
      this.drawCurves(force);
      this.drawReplay(force);
    }

    // Builds a part again if what it shows has changed; open details stay open.
    swap(name, make, what, force) {
      const key = JSON.stringify(what);
      if (!force && this.keys[name] === key) return;
      this.keys[name] = key;
      const old = this.parts[name], fresh = make(this);
      const open = [...old.querySelectorAll("details[open] > summary")].map((node) => node.textContent);
      for (const summary of fresh.querySelectorAll("summary")) if (open.includes(summary.textContent)) summary.parentNode.open = true;
      old.replaceWith(fresh);
      this.parts[name] = fresh;
    }

    drawCurves(force) {
      const titles = new Map();
      for (const run of this.runs) for (const panel of run.panels) if (!titles.has(panel.title)) titles.set(panel.title, panel.wide);
      if ([...titles.keys()].join("\n") !== [...this.charts.keys()].join("\n")) {
        for (const chart of this.charts.values()) if (chart.plot) chart.plot.destroy();
        this.charts = new Map([...titles].map(([title, wide]) => [title, new Chart(this, title, wide)]));
        this.grid.replaceChildren(...[...this.charts.values()].map((chart) => chart.node));
        if (!titles.size) this.grid.replaceChildren(el("p", { class: "faint" }, "Nothing has been measured yet."));
      } else for (const chart of this.charts.values()) chart.draw(force);
      const unit = this.runs[0].unit, timed = this.runs.every((run) => run.times.x.length);
      this.axis.replaceChildren(...(timed ? [[unit, false], ["seconds", true]] : []).map(([words, time]) =>
        el("button", { type: "button", "aria-pressed": String(this.byTime === time), onclick: () => { this.byTime = time; this.refresh(true); } }, words)));
      const lines = this.runs.flatMap((run) => run.panels.flatMap((panel) => panel.lines));
      const window = Math.max(0, ...lines.map((line) => line.window)), several = lines.some((line) => line.seeds.length);
      const kind = (line) => (line.interval ? "95 % interval of the mean over seeds" : line.seeds.length ? "range of two or three seeds" : "range of the values of a single seed");
      const bands = [...new Set(lines.filter((line) => line.low.length).map(kind))];
      this.hint.textContent = [
        window ? `Lines: moving mean over ${number(window, 7)} ${unit}, except for schedules and evaluations.` : "",
        bands.length ? `Bands: ${bands.join("; ")}.` : "", several ? "Point at a chart to see each seed." : "",
        lines.length ? "Drag to zoom, double-click to zoom out." : ""].filter(Boolean).join(" ");
    }

    drawReplay(force) {
      const key = JSON.stringify(this.runs.map((run) => [run.id, run.scenes.map((scene) => scene.title), run.scenes_note, run.scenes_url, dark.matches && force]));
      if (this.keys.replay === key) return;
      this.keys.replay = key;
      const choices = this.runs.flatMap((run) => run.scenes.filter((scene) => KINDS[scene.kind]).map((scene) =>
        ({ run, scene, label: `${run.name}: ${scene.title}` })));
      Player.all = Player.all.filter((player) => player !== this.player);
      if (this.player) this.player.pause();
      this.player = choices.length ? new Player(this, choices) : null;
      if (this.player) Player.all.push(this.player);
      const notes = this.runs.filter((run) => run.scenes_note).map((run) => el("p", { class: "note" }, `${run.name}: ${run.scenes_note}`));
      const asks = this.runs.filter((run) => run.scenes_url && !run.scenes.length).map((run) =>
        el("button", { type: "button", class: "ask", onclick: (event) => fetchScenes(this, run, event.target) }, `Replay the agents of ${run.name}`));
      const maps = choices.some((choice) => choice.scene.kind === "maps");
      this.replay.hidden = !choices.length && !notes.length && !asks.length;
      this.replay.replaceChildren(el("h3", {}, maps ? "Distribution" : "Replay"), ...(this.player ? [this.player.node] : []),
        this.player ? el("p", { class: "faint keys" }, "Keys: ", ...[["space", "play or pause"], ["← →", "step"], ["+ −", "speed"], ["Home End", "first and last"], ...(maps || choices[0].scene.kind !== "board" ? [] : [["1 … 9", "whose view"]])].flatMap(([name, what]) => [el("kbd", {}, name), ` ${what}  `])) : "",
        ...asks, ...notes);
    }
  }

  // ---- The page ------------------------------------------------------------------------------------------------

  const page = document.getElementById("page"), sections = new Map();
  let state = null, status = null;

  function show(data) {
    state = data;
    if (!status) {
      status = el("span", { class: "live" });
      page.append(
        el("header", {}, el("h1", {}, data.live ? "xladder watch" : "xladder report"), el("p", { class: "faint", id: "made" }), status),
        el("nav", { "aria-label": "workloads" }), el("div", { id: "missing" }), el("main", {}));
    }
    document.getElementById("made").textContent = `${data.live ? "live" : "made " + data.made} · xladder ${data.version}`;
    const nav = page.querySelector("nav"), several = data.sections.length > 1;
    nav.hidden = !several;
    if (several) nav.replaceChildren(el("p", {}, "These runs are of different workloads, which are not compared with each other: "),
      ...data.sections.map(({ workload }) => el("a", { href: `#workload-${workload.replace(/[^\w-]/g, "-")}` }, workload)));
    document.getElementById("missing").replaceChildren(...data.missing.map(({ name, why }) =>
      el("p", { class: "note bad" }, el("b", {}, name), ` cannot be shown: ${why}`)));
    const main = page.querySelector("main");
    for (const { workload, runs, differences } of data.sections) {
      if (!sections.has(workload)) {
        sections.set(workload, new Section(workload));
        main.append(sections.get(workload).node);
      }
      sections.get(workload).take(runs.map((id) => data.runs.find((run) => run.id === id)), differences);
    }
    for (const [workload, section] of sections)
      if (!data.sections.some((one) => one.workload === workload)) { section.node.remove(); sections.delete(workload); }
    if (data.live) {
      const running = data.runs.filter((run) => run.state === "training" && run.total);
      document.title = [...running.map((run) => `${Math.floor(100 * run.done / run.total)} % ${run.name}`).slice(0, 3), "xladder"].join(" · ");
    }
    if (data.live && !data.runs.length) main.replaceChildren(el("p", { class: "faint" }, "Waiting for a run to begin …"));
    document.documentElement.dataset.ready = "yes";
  }

  dark.addEventListener("change", () => { for (const section of sections.values()) section.refresh(true); });

  // ---- Live ----------------------------------------------------------------------------------------------------

  const scenes = new Map(); // by run, once asked for

  async function fetchScenes(section, run, button) {
    button.disabled = true;
    button.textContent = "The agents act once more, this takes some seconds …";
    try {
      const found = await (await fetch(run.scenes_url)).json();
      scenes.set(run.id, found);
      update(state);
    } catch {
      button.disabled = false;
      button.textContent = "It did not work; try again";
    }
  }

  function update(data) {
    for (const run of data.runs) if (scenes.has(run.id)) Object.assign(run, scenes.get(run.id), { scenes_url: "" });
    show(data);
  }

  function listen() {
    const source = new EventSource("events");
    const tell = (words, name) => { if (status) { status.textContent = words; status.className = `live ${name}`; } };
    source.addEventListener("page", (event) => { update(JSON.parse(event.data)); tell("connected", "on"); });
    source.addEventListener("end", () => { source.close(); tell("The run has ended, and the server with it; this is the last state.", "off"); });
    source.addEventListener("alive", () => tell("connected", "on"));
    source.onerror = () => {
      if (!status) page.textContent = "Connecting …";
      tell(source.readyState === EventSource.CLOSED ? "The server has ended; this is what was last seen." : "Connection lost; trying again …", "off");
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
    };
  }

  const embedded = JSON.parse(document.getElementById("data").textContent);
  if (embedded) show(embedded);
  else listen();
})();
