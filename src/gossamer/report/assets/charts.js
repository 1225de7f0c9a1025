// Curves over the chosen axis.

// Named one by one: plotly's default buttons include one that uploads the chart.
const PLOTLY_CONFIG = { responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };
const CLUSTER_DASHES = ["solid", "6px,3px", "2px,2px", "9px,3px,2px,3px", "12px,3px", "4px,6px"];

function baseLayout(extra = {}) {
  return {
    font: { family: FONT, size: 12.5, color: INK }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 54, r: 14, t: 8, b: 44 }, showlegend: false, dragmode: touch ? false : "zoom",
    modebar: { bgcolor: "rgba(255,255,255,0.8)", color: "#8b959f", activecolor: INK },
    hoverlabel: { bgcolor: "white", bordercolor: "#c9d0d7", font: { family: FONT, size: 12 } }, ...extra,
  };
}

function axisLayout(title, extra = {}) {
  return { title: { text: title, font: { size: 12, color: SOFT }, standoff: 8 }, gridcolor: LINE, zeroline: false,
    linecolor: "#c9d0d7", ticks: "outside", ticklen: 4, tickcolor: "#c9d0d7", automargin: true, ...extra };
}

// 1, 2 and 5 of each decade; the decades alone when there are many; whatever fits into a part of one.
function logTicks(log, range) {
  const decades = range ? range[1] - range[0] : 1;
  return log ? { tickformat: "~g", dtick: decades < 0.6 ? undefined : decades < 2.5 ? "D2" : 1 } : {};
}

function yAxis(chart) {
  const range = chart.range && (chart.log ? chart.range.map(Math.log10) : chart.range);
  return axisLayout("", { type: chart.log ? "log" : "linear", range: range || undefined, autorange: !range,
    ticksuffix: chart.unit === " %" ? " %" : "", ...logTicks(chart.log, range), uirevision: chart.key });
}

function curveTraces(chart, curve, setting, axis) {
  const x = curve.x[axis], traces = [], name = plain(curve.label);
  const inside = (y) => Math.min(Math.max(y, chart.range[0]), chart.range[1]);  // a cross is visible even if the curve leaves the chart
  const dash = chart.key === "predict" && curve.part ? CLUSTER_DASHES[curve.number % CLUSTER_DASHES.length] : setting.dash;
  if (curve.low && x.length > 1) {
    traces.push({ x: [...x, ...[...x].reverse()], y: [...curve.high, ...[...curve.low].reverse()], type: "scatter", mode: "lines",
      fill: "toself", fillcolor: fade(setting.colour, 0.13), line: { width: 0 }, hoverinfo: "skip", name: `${name} band` });
  }
  const hover = chart.key === "predict" ? "predict %{y:.1f} %, clip %{customdata:.1f} %" : `%{y:.4~g}${chart.unit}`;
  traces.push({ x, y: curve.mean, type: "scatter", mode: "lines+markers", name,
    customdata: chart.key === "predict" ? curve.mean.map((share) => 100 - share) : undefined,
    line: { color: setting.colour, width: 2, dash },
    marker: { color: setting.colour, symbol: setting.symbol, size: 7.5, maxdisplayed: 8, line: { color: "white", width: 1 } },
    hovertemplate: `${hover}<extra>${name}</extra>` });
  if (curve.ends.length) {
    traces.push({ x: curve.ends.map((end) => end.x[axis]), y: curve.ends.map((end) => inside(end.y)), type: "scatter", mode: "markers",
      name: `${name} diverged`, marker: { color: setting.colour, symbol: "x", size: 12 }, hovertemplate: `diverged<extra>${name}</extra>` });
  }
  return traces;
}

function sampleOf(colour, dash) {
  const lengths = dash === "solid" ? "" : dash.replace(/px/g, "");
  const box = make("span", { class: "sample" });
  box.innerHTML = `<svg width="34" height="12" aria-hidden="true"><line x1="1" y1="6" x2="33" y2="6" stroke="${colour}" stroke-width="2.4" stroke-dasharray="${lengths}"/></svg>`;
  return box;
}

// In the chart by cluster the colour is the setting's and the dashes are the cluster's.
function clusterSamples(chart) {
  const parts = new Map();
  for (const { part, number } of chart.curves) {
    if (part) parts.set(number, (parts.get(number) ?? part) === part ? part : `cluster ${number}`);  // sizes may differ
  }
  return [...parts].slice(0, CLUSTER_DASHES.length).flatMap(([number, part]) => [" ",
    make("span", { class: "together" }, sampleOf(SOFT, CLUSTER_DASHES[number % CLUSTER_DASHES.length]), ` ${part}`)]);
}

function showChart(chart, state) {
  const { model, axis, hidden } = state;
  let card = at(`chart-${chart.key}`);
  if (!card) {
    card = make("figure", { class: "card", id: `chart-${chart.key}` },
      make("figcaption", {}, make("h3"), make("p", { class: "about" })), make("div", { class: "plot" }), make("p", { class: "empty" }));
    at("charts").append(card);
  }
  card.querySelector("h3").textContent = chart.title;
  const banded = chart.curves.some((curve) => curve.low);
  card.querySelector(".about").replaceChildren(`${chart.about}${banded ? "; band: range of the seeds" : ""}.`, ...clusterSamples(chart));
  const plot = card.querySelector(".plot"), empty = card.querySelector(".empty");
  empty.textContent = chart.empty;
  empty.hidden = chart.curves.length > 0;
  plot.hidden = !chart.curves.length;
  if (!chart.curves.length) return;
  const shown = chart.curves.filter((curve) => !hidden.has(model.settings[curve.setting].label));
  const traces = shown.flatMap((curve) => curveTraces(chart, curve, model.settings[curve.setting], axis));
  const title = model.axes.find((each) => each.key === axis).title;
  Plotly.react(plot, traces, baseLayout({
    hovermode: touch ? "closest" : "x unified", uirevision: "kept",
    xaxis: axisLayout(title, { uirevision: axis, rangemode: "tozero", hoverformat: ",.6~g" }), yaxis: yAxis(chart),
  }), PLOTLY_CONFIG);
}

// One legend for all charts: a sample of each line, a button that hides it.
function showLegend(state, refresh) {
  const { model, hidden } = state, uneven = new Set(model.settings.map((setting) => setting.runs.length)).size > 1;
  if (isDrawn(at("legend"), [model.settings.map(({ label, colour, dash, runs }) => [label, colour, dash, runs.length]), [...hidden]])) return;
  at("legend").replaceChildren(...model.settings.map((setting) => {
    const button = make("button", { type: "button", "aria-pressed": String(!hidden.has(setting.label)), onclick: () => {
      if (!hidden.delete(setting.label)) hidden.add(setting.label);
      refresh();
    } }, sampleOf(setting.colour, setting.dash), setting.label);
    if (uneven) button.append(make("small", {}, `${setting.runs.length} run${setting.runs.length > 1 ? "s" : ""}`));
    return button;
  }));
}
