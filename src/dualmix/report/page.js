"use strict";
(() => {
  const cells = JSON.parse(document.getElementById("cells-data").textContent);
  const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const unpacker = (id) => {
    let content;
    return () => (content ??= (async () => {
      const packed = new Blob([bytes(document.getElementById(id).textContent.trim())]);
      return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).json();
    })());
  };
  const figures = unpacker("figures-data"), curves = unpacker("curves-data"), runs = unpacker("runs-data");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const make = (tag, text, attributes = {}) => {
    const node = document.createElement(tag);
    if (text !== undefined && text !== null) node.textContent = text;
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };

  // Figures: drawn when they come into view, the others while nothing else is to do (a print shows all of them), and
  // again when the width or the colours change.
  const theme = (night) => {
    const ink = night ? "#e6e9ec" : "#1c2126", line = night ? "#39424b" : "#d5dbe1";
    const font = "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";
    return {
      background: "transparent", font,
      axis: { labelColor: ink, titleColor: ink, domainColor: line, tickColor: line, gridColor: line, labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 },
      axisX: { labelFlush: false },
      legend: { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontWeight: 500 },
      header: { labelColor: ink, titleColor: ink, labelFontSize: 12, labelFontWeight: 600 },
      title: { color: ink, fontSize: 12, fontWeight: 500, anchor: "start" }, text: { color: ink }, view: { stroke: line },
    };
  };
  // On the page panels stand in as many columns as fit, and the legend is one of buttons: it wraps, and a click works.
  // On a dark page the darker colours of the figures are lighter.
  const lighter = { "#0072b2": "#4fb0ea", "#7f7f7f": "#a6a6a6", "#8c564b": "#c79a8f", "#d55e00": "#f08a3c", "#a6761d": "#c9993f", "#5b6bd6": "#93a0f5", "#009e73": "#1fbf92" };
  const lit = (spec) => (dark.matches ? JSON.parse(JSON.stringify(spec).replace(/#[0-9a-f]{6}/g, (colour) => lighter[colour] ?? colour)) : spec);
  const fitted = (spec, width) => {
    spec = structuredClone(spec);
    const parts = spec.concat;
    if (parts) {
      const narrow = width < 600, tiles = parts.every((part) => part.width === part.height), small = parts[0].width < 200;
      const longest = Math.max(0, ...Object.values(spec.datasets ?? {}).flat().map((row) => String(row.name ?? "").length));
      const names = parts.some((part) => part.layer?.some((layer) => layer.encoding?.y?.field === "name"));
      const least = tiles || small ? (narrow ? 165 : tiles ? 185 : 225) : 330;
      spec.columns = Math.max(1, Math.min(parts.length, Math.floor(width / least)));
      spec.spacing = narrow ? 12 : 20;
      const beside = names ? Math.min(7 * longest, 150) + 48 : tiles ? 66 : small && narrow ? 84 : 104;
      for (const part of parts) {
        part.width = Math.min(small || tiles ? 420 : 700, Math.max(90, Math.floor(width / spec.columns) - beside));
        if (tiles) {  // whole pixels per tile, else seams show
          const tasks = part.encoding.x.axis.values.at(-1);
          part.width = part.height = tasks * Math.max(2, Math.floor(Math.min(part.width, 200) / tasks));
        }
        if (small && narrow && !tiles) part.layer.forEach((layer) => { if (layer.encoding.y) layer.encoding.y.title = null; });
      }
    } else {
      spec.width = "container";
      spec.autosize = { type: "fit-x", contains: "padding" };
      for (const { encoding } of spec.layer ?? []) for (const look of Object.keys(looks)) if (encoding[look]?.scale) encoding[look].legend = null;
    }
    return spec;
  };
  const looks = { color: "stroke", strokeDash: "stroke-dasharray", shape: null };
  const legend = (box, spec) => {
    const place = box.querySelector(".legend");
    place.replaceChildren();
    if (!spec.params?.some((one) => one.name === "alone")) return;
    const scales = Object.assign({}, ...spec.layer.map((layer) => layer.encoding));
    for (const [i, name] of scales.color.scale.domain.entries()) {
      const button = make("button", "", { type: "button", "aria-pressed": "false" });
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      for (const [key, value] of Object.entries({ width: 28, height: 10, "aria-hidden": true })) swatch.setAttribute(key, value);
      for (const [key, value] of Object.entries({ x1: 0, y1: 5, x2: 28, y2: 5, "stroke-width": 2.5, stroke: lit(scales.color.scale.range)[i], "stroke-dasharray": scales.strokeDash.scale.range[i].join(" ") })) line.setAttribute(key, value);
      swatch.append(line);
      button.append(swatch, make("span", name));
      button.addEventListener("click", () => {
        const alone = button.getAttribute("aria-pressed") !== "true";
        place.querySelectorAll("button").forEach((other) => other.setAttribute("aria-pressed", String(alone && other === button)));
        box.view.view.signal("alone", alone ? name : "").runAsync();
      });
      place.append(button);
    }
  };
  // The curves that the reader ticked, in the looks of their order.
  const ticked = async (box, spec) => {
    const table = document.querySelector(`table[data-curves="${box.dataset.figure}"]`);
    if (!table) return spec;
    const { looks: all, few, lines } = await curves(), on = new Set([...table.querySelectorAll("input:checked")].map((one) => +one.dataset.line));
    const chosen = lines[box.dataset.figure].filter((line) => on.has(line.place));
    const names = chosen.map((line) => line.name), rows = chosen.flatMap((line) => line.rows), means = rows.map((row) => row.mean);
    spec = structuredClone(spec);
    spec.datasets = Object.fromEntries(Object.keys(spec.datasets).map((key) => [key, rows]));
    for (const { encoding } of spec.layer) {
      for (const [look, values] of Object.entries(all)) {
        if (encoding[look]?.field) Object.assign(encoding[look], { scale: { domain: names, range: names.map((_, i) => values[i % values.length]) }, sort: names });
      }
      if (rows.length && encoding.y.scale) encoding.y.scale = { domain: [Math.max(0, Math.min(...means) - 3), Math.max(...means) + 3] };
    }
    for (const one of spec.params) if (one.name === "few") one.value = names.length <= few;
    return spec;
  };
  const shown = async (box) => (await figures())[box.dataset.figure][+(box.querySelector("select")?.value ?? 0)];
  const drawn = async (box) => {
    const canvas = box.querySelector(".canvas"), width = canvas.clientWidth;
    box.dataset.width = width;
    const view = await shown(box), spec = await ticked(box, view.spec);
    box.view?.finalize();
    box.view = await vegaEmbed(canvas, lit(fitted(spec, width)), { actions: false, renderer: "svg", config: theme(dark.matches), tooltip: { theme: dark.matches ? "dark" : "light" } });
    legend(box, spec);
    box.dataset.drawn = view.name;
    box.dataset.turns = +(box.dataset.turns ?? 0) + 1;
  };
  const draw = (box) => { box.turn = Promise.allSettled([box.turn]).then(() => drawn(box)); };
  const boxes = [...document.querySelectorAll(".figure")];
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !target.turn) draw(target);
  }, { rootMargin: "300px" });
  boxes.forEach((box) => near.observe(box));
  const idle = window.requestIdleCallback ?? ((call) => setTimeout(call, 200));
  const rest = async () => {
    const box = boxes.find((one) => !one.turn);
    if (!box) return;
    draw(box);
    await box.turn.catch(() => {});
    idle(rest);
  };
  addEventListener("load", () => idle(rest));
  const redraw = (which) => boxes.filter((box) => box.dataset.drawn && which(box)).forEach(draw);
  dark.addEventListener("change", () => redraw(() => true));
  let pause;
  addEventListener("resize", () => {
    clearTimeout(pause);
    pause = setTimeout(() => redraw((box) => +box.dataset.width !== box.querySelector(".canvas").clientWidth), 200);
  });
  const hand = (content, type, name) => {
    const link = make("a", "", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  for (const box of boxes) {
    const file = (view, ending) => `${box.dataset.figure} ${view.name}`.toLowerCase().replace(/[^a-z0-9]+/g, "-") + ending;
    box.querySelector("select")?.addEventListener("change", () => draw(box));
    box.querySelector(".svg").addEventListener("click", async () => {
      const view = await shown(box), config = { ...theme(false), background: "white" };
      const drawing = await vegaEmbed(make("div"), await ticked(box, structuredClone(view.spec)), { actions: false, renderer: "svg", config });
      hand(await drawing.view.toSVG(), "image/svg+xml", file(view, ".svg"));
      drawing.finalize();
    });
  }

  for (const table of document.querySelectorAll("table[data-curves]")) {
    const box = document.querySelector(`.figure[data-figure="${table.dataset.curves}"]`);
    table.addEventListener("change", (event) => event.target.dataset.line && box && draw(box));
  }

  // What is empty is folded away until it is asked for.
  for (const button of document.querySelectorAll("button.unfold")) {
    const more = button.textContent;
    button.addEventListener("click", () => {
      const part = button.closest(".fold"), open = part.classList.toggle("unfolded");
      button.textContent = open ? button.dataset.less : more;
      part.querySelectorAll("th[data-full]").forEach((head) => { head.colSpan = open ? head.dataset.full : head.dataset.folded; });
    });
  }

  // Tables: a click sorts, numbers as numbers, the missing always last.
  const valueOf = (row, button, index) => {
    const at = button.dataset.col;
    const cell = at === undefined ? row.cells[index] : row.querySelector(`[data-col="${at}"]`);
    return cell.dataset.value ?? cell.textContent.trim();
  };
  for (const button of document.querySelectorAll("table.sortable button.sort")) {
    button.addEventListener("click", () => {
      const head = button.closest("th"), table = button.closest("table"), index = head.cellIndex;
      const bodies = [...table.tBodies].filter((part) => !part.classList.contains("bounds"));
      const rows = bodies.flatMap((part) => [...part.rows]), values = new Map(rows.map((row) => [row, valueOf(row, button, index)]));
      const there = rows.filter((row) => values.get(row) !== "" && values.get(row) !== "–");
      const numeric = there.every((row) => !Number.isNaN(Number(values.get(row))));
      const first = numeric ? "descending" : "ascending", other = numeric ? "ascending" : "descending";
      const way = head.getAttribute("aria-sort") === first ? other : first;
      const sign = way === "ascending" ? 1 : -1;
      there.sort((a, b) => sign * (numeric ? values.get(a) - values.get(b) : values.get(a).localeCompare(values.get(b))));
      table.querySelectorAll("th[aria-sort]").forEach((th) => th.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", way);
      const order = [...there, ...rows.filter((row) => !there.includes(row))];
      for (const part of bodies) part.append(...order.filter((row) => row.parentNode === part));
    });
  }

  // The panel: a cell's runs, or one run's settings, versions and log.
  const panel = document.getElementById("panel"), body = document.getElementById("panel-body");
  const command = (text) => {
    const line = make("div", "", { class: "command" }), copy = make("button", "copy", { type: "button", class: "copy" });
    copy.addEventListener("click", async () => {
      await navigator.clipboard?.writeText(text);
      copy.textContent = "copied";
    });
    line.append(make("code", text), copy);
    return line;
  };
  const table = (pairs, heads) => {
    const node = make("table", "", { class: heads ? "" : "two" });
    if (heads) {
      const line = node.createTHead().insertRow();
      heads.forEach((head) => line.append(make("th", head)));
    }
    const rows = node.createTBody();
    for (const pair of pairs) {
      const line = rows.insertRow();
      pair.forEach((part, i) => {
        const cell = line.appendChild(make(i || heads ? "td" : "th"));
        part instanceof Node ? cell.append(part) : (cell.textContent = part);
      });
    }
    return node;
  };
  const percent = (share) => (typeof share === "number" ? (100 * share).toFixed(2) : "–");
  const showCell = async (id) => {
    const cell = cells[id], known = await runs();
    body.replaceChildren(make("h2", cell.title), table(cell.facts), make("h3", "How to reproduce this cell"), command(cell.command));
    if (cell.runs.length) {
      const rows = cell.runs.map((name) => {
        const run = known[name];
        return [make("a", name, { href: `#run-${name}` }), run.seed, percent(run.scores.average_accuracy), percent(run.scores.forgetting)];
      });
      body.append(make("h3", "Runs"), table(rows, ["run", "seed", "accuracy, %", "forgetting, %"]));
    }
  };
  const write = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const showRun = async (name) => {
    const run = (await runs())[name], facts = run.facts;
    const facing = [
      ["key", run.key], ["plan, sha256", run.plan.sha256], ["stream", `${run.plan.tasks} tasks, batches of ${run.plan.batch}`],
      ["data", `${run.content[0]}, sha256 ${run.content[1]}`], ["notes on the data", run.content[2].join("; ") || "–"],
      ["commit", `${facts.commit ?? "unknown"}${facts.uncommitted_changes ? " with uncommitted changes" : ""}`],
      ["versions", Object.entries({ python: facts.python, ...facts.versions }).map(([k, v]) => `${k} ${v}`).join(", ")],
      ["host", Object.values(facts.host ?? {}).join(", ")],
      ["begun", (facts.sessions ?? []).map((session) => session.started).join(", ")],
    ];
    const scores = Object.entries(run.scores).map(([k, v]) => [k.replaceAll("_", " "), `${percent(v)} %`]);
    const times = Object.entries(run.times).map(([k, v]) => [k.replaceAll("_", " "), Number(v).toFixed(1)]);
    const settings = Object.entries(run.settings).map(([k, v]) => [k, `${write(v)}${run.changed.includes(k) ? "   ← not the preset's" : ""}`]);
    body.replaceChildren(make("h2", name), make("h3", "How to reproduce this run"), command(run.command), make("h3", "Scores and times"), table([...scores, ...times]),
      make("h3", "Plan, data, versions"), table(facing), make("h3", "Settings"), table(settings), make("h3", "Log"), make("pre", run.log.join("\n") || "no log"));
  };
  const follow = async () => {
    const hash = decodeURIComponent(location.hash.slice(1));
    const cell = hash.startsWith("cell-") && hash.slice(5) in cells, run = hash.startsWith("run-");
    if (!cell && !run) return panel.open && panel.close();
    if (cell) await showCell(hash.slice(5));
    else if (hash.slice(4) in (await runs())) await showRun(hash.slice(4));
    else return;
    if (!panel.open) panel.showModal();
    panel.scrollTop = 0;
  };
  addEventListener("hashchange", follow);
  panel.addEventListener("close", () => {
    if (/^#(cell|run)-/.test(location.hash)) history.pushState(null, "", location.pathname + location.search);
  });
  panel.addEventListener("click", (event) => event.target === panel && panel.close());
  panel.querySelector(".close").addEventListener("click", () => panel.close());
  follow();
})();
