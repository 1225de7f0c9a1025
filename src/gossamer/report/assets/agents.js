// One agent of a run compared with the others.

const AGENT_CHARTS = [
  { key: "accuracy", title: "Test accuracy (%)", unit: " %" }, { key: "loss", title: "Test loss", unit: "", log: true },
  { key: "consensus", title: "Distance from average model", unit: "", log: true }, { key: "predict", title: "Predict share (%)", unit: " %" },
  { key: "train_loss", title: "Training loss", unit: "", log: true }, { key: "bytes_sent", title: "Sent (MB)", unit: " MB" },
  { key: "iterations", title: "Iterations", unit: "" }, { key: "waiting", title: "Time waiting (simulated s)", unit: " s" },
  { key: "down", title: "Time down (simulated s)", unit: " s" },
];
const MOST_LINES = 64;  // with more agents the others are a band

function neighbourText(state) {
  const network = state.model.networks[state.run.network], agent = state.agent, ages = state.run.mean_ages;
  const mine = network.links.filter(([i, k]) => i === agent || k === agent).map(([i, k, late]) => [i === agent ? k : i, late]);
  const list = (late) => mine.filter((each) => each[1] === late).map(([other]) => {
    const age = ages && ages[agent][other];
    return age ? `${other} (age ${number(age, 1)})` : `${other}`;
  }).join(", ") || "none";
  const shown = mine.length > 40 ? `${mine.length} neighbours` : `Hears reliably from ${list(0)}; late from ${list(1)}`;
  return network.circles.length ? `In cluster ${network.cluster_of[agent]}. ${shown}.` : `${shown}.`;
}

function othersTraces(series, agent, x) {
  if (series.length > MOST_LINES) {
    const column = (pick) => x.map((_, k) => { const held = series.map((one) => one[k]).filter((value) => value !== null); return held.length ? pick(...held) : null; });
    const low = column(Math.min), high = column(Math.max);
    return [{ x: [...x, ...[...x].reverse()], y: [...high, ...low.reverse()], type: "scatter", mode: "lines", fill: "toself",
      fillcolor: "rgba(120,132,144,0.25)", line: { width: 0 }, hoverinfo: "skip", name: "all agents" }];
  }
  return series.map((y, other) => ({ x, y, other })).filter(({ other }) => other !== agent).map(({ y, other }) => ({
    x, y, type: "scatter", mode: "lines", name: `agent ${other}`, line: { color: "rgba(120,132,144,0.45)", width: 1.2 },
    hovertemplate: `%{y:.4~g}<extra>agent ${other}</extra>` }));
}

function logRange(series) {
  const values = series.flat().filter((value) => value > 0);
  return [Math.log10(Math.min(...values)), Math.log10(Math.max(...values))];
}

function showAgents(state) {
  const { run, agent, model, axis } = state, x = run.places[axis];
  at("agent-title").textContent = `Agent ${agent} of ${run.name}`;
  at("agent-about").textContent = `${neighbourText(state)} Grey: the other agents.`;
  const title = model.axes.find((each) => each.key === axis).title;
  for (const chart of AGENT_CHARTS) {
    const series = run.agents[chart.key], id = `agent-${chart.key}`;
    let card = at(id);
    if (!card) {
      card = make("figure", { class: "card", id }, make("figcaption", {}, make("h3", {}, chart.title)), make("div", { class: "plot small" }));
      at("agents").append(card);
    }
    card.hidden = !series || series.every((one) => one.every((value) => value === null));
    if (card.hidden) continue;
    const mine = { x, y: series[agent], type: "scatter", mode: "lines+markers", name: `agent ${agent}`, line: { color: "#0072B2", width: 2.6 },
      marker: { size: 6, maxdisplayed: 10 }, hovertemplate: `%{y:.4~g}${chart.unit}<extra>agent ${agent}</extra>` };
    Plotly.react(card.querySelector(".plot"), [...othersTraces(series, agent, x), mine], baseLayout({
      hovermode: "closest", uirevision: run.path, xaxis: axisLayout(title, { uirevision: `${run.path} ${axis}`, rangemode: "tozero" }),
      yaxis: axisLayout("", { type: chart.log ? "log" : "linear", ...logTicks(chart.log, logRange(series)), ticksuffix: chart.unit === " %" ? " %" : "" }),
    }), PLOTLY_CONFIG);
  }
}
