// The network of a run, links coloured by the age of their messages, and the ages as a heat map.

function linkAges(network, ages) {
  const known = (i, k) => ages && ages[i][k] !== null && ages[i][k] !== undefined ? ages[i][k] : null;
  return network.links.map(([i, k, late, declared]) => {
    const measured = [known(i, k), known(k, i)].filter((age) => age !== null);
    return { i, k, late, measured: measured.length > 0, age: measured.length ? Math.max(...measured) : declared, there: known(i, k), back: known(k, i) };
  });
}

function linkTraces(network, links, oldest) {
  const groups = new Map();
  for (const link of links) {
    const step = Math.round((8 * Math.min(link.age, oldest)) / oldest), key = `${link.late}/${step}`;
    if (!groups.has(key)) groups.set(key, { late: link.late, share: step / 8, x: [], y: [] });
    const [from, to] = [network.agents[link.i], network.agents[link.k]], group = groups.get(key);
    group.x.push(from[0], to[0], null);
    group.y.push(from[1], to[1], null);
  }
  const thin = links.length > 150;
  return [...groups.values()].sort((a, b) => a.share - b.share).map((group) => ({
    x: group.x, y: group.y, type: "scatter", mode: "lines", hoverinfo: "skip", name: group.late ? "late links" : "reliable links",
    line: { color: group.share < 0.02 ? "#93a1ae" : ageColour(group.share), width: thin ? 0.9 : group.late ? 1.8 : 2.4, dash: group.late ? "6px,4px" : "solid" },
  }));
}

function middles(network, links) {
  const age = (value) => (value === null ? "none" : number(value, 1));
  const text = (link) => `agents ${link.i} and ${link.k}: ${link.late ? "late" : "reliable"} link<br>` + (link.measured
    ? `age ${age(link.there)} at ${link.i}, ${age(link.back)} at ${link.k}` : `declared delay ${link.age}`);
  const middle = (link, d) => 0.62 * network.agents[link.i][d] + 0.38 * network.agents[link.k][d];
  return { x: links.map((link) => middle(link, 0)), y: links.map((link) => middle(link, 1)), text: links.map(text), type: "scatter",
    mode: "markers", marker: { size: 9, opacity: 0 }, hovertemplate: "%{text}<extra></extra>", name: "links" };
}

// On a narrow screen a wide network is rotated by a quarter turn.
function upright(network, plot) {
  const span = (d) => Math.max(...network.agents.map((agent) => agent[d])) - Math.min(...network.agents.map((agent) => agent[d]));
  if (plot.clientWidth > 480 || span(0) <= 1.1 * span(1)) return network;
  const turn = ([x, y, ...rest]) => [y, -x, ...rest];
  return { ...network, agents: network.agents.map(turn), circles: network.circles.map(turn) };
}

function showNetwork(state, refresh) {
  const run = state.run, plot = at("network"), network = upright(state.model.networks[run.network], plot), fills = state.model.fills;
  const ages = state.ages === "last" ? run.link_ages : run.mean_ages, links = linkAges(network, ages);
  const oldest = Math.max(1, ...links.map((link) => link.age)), many = network.agents.length > 60;
  const dead = (agent) => Boolean(state.live) && state.live.agents[agent]?.state === "dead";
  const away = (agent) => dead(agent) || (Boolean(state.live) && state.live.agents[agent]?.state === "down");
  const ill = (agent) => Boolean(state.live) && (dead(agent) || state.live.agents[agent]?.flags.length > 0);
  const colour = (agent) => (away(agent) ? "#ffffff" : fills[network.cluster_of[agent] % fills.length]);
  at("network-title").textContent = network.title;
  at("network-about").textContent = `${network.num_links - network.num_late} reliable links (solid), ${network.num_late} late ones (dashed${network.num_late ? `: ${network.late.replace("late link, ", "")}` : ""}).`
    + (network.links.length < network.num_links ? ` ${network.links.length} of ${network.num_links} are drawn.` : "")
    + (!ages ? " Links are coloured by their declared delay." : state.live && state.ages === "last" ? " Coloured by the age of what agents hold right now." : "");
  const nodes = {
    x: network.agents.map(([x]) => x), y: network.agents.map(([, y]) => y), type: "scatter", mode: many ? "markers" : "markers+text",
    text: network.agents.map((_, agent) => String(agent)), textfont: { size: 12, color: INK }, name: "agents",
    customdata: network.agents.map((_, agent) => (run.agents.accuracy ? number(run.agents.accuracy[agent].at(-1), 1) : "–")),
    hovertemplate: "agent %{text}: accuracy %{customdata} %<extra></extra>",
    marker: { size: many ? 9 : 27, color: network.agents.map((_, agent) => colour(agent)), opacity: 1,
      line: { color: network.agents.map((_, agent) => (ill(agent) ? "#c0291b" : agent === state.agent ? "#000000" : "#5b6875")), width: network.agents.map((_, agent) => (ill(agent) || agent === state.agent ? 3.5 : 1)) } },
  };
  const scale = { x: [null], y: [null], type: "scatter", mode: "markers", hoverinfo: "skip", name: "scale", marker: { size: 0.1, color: [0], cmin: 0, cmax: oldest,
    colorscale: AGE_SCALE, showscale: true, colorbar: { title: { text: ages ? "age" : "delay", font: { size: 11 } }, thickness: 9, len: 0.7, outlinewidth: 0, tickfont: { size: 11 } } } };
  const circles = network.circles.map(([x, y, r], cluster) => ({ type: "circle", x0: x - r, x1: x + r, y0: y - r, y1: y + r, layer: "below",
    fillcolor: fade(fills[cluster % fills.length], 0.22), line: { color: fade(fills[cluster % fills.length], 0.9), width: 1 } }));
  const bare = { visible: false, fixedrange: true };
  Plotly.react(plot, [...linkTraces(network, links, oldest), middles(network, links), nodes, scale], baseLayout({
    shapes: circles, margin: { l: 6, r: 6, t: 6, b: 6 }, hovermode: "closest", dragmode: false, xaxis: { ...bare },
    yaxis: { ...bare, scaleanchor: "x" }, uirevision: run.path }), { ...PLOTLY_CONFIG, displayModeBar: false });
  listen(plot, (point) => { if (point.data.name === "agents") { state.agent = point.pointNumber; refresh(); } });
}

function listen(plot, act) {
  plot.removeAllListeners("plotly_click");
  plot.on("plotly_click", (event) => act(event.points[0]));
}

function showAges(state, refresh) {
  const run = state.run, ages = state.ages === "last" ? run.link_ages : run.mean_ages;
  fillSwitch(at("ages-switch"), [{ key: "mean", title: "Whole run" }, { key: "last", title: state.live ? "Now" : "Last interval" }], state.ages, (key) => { state.ages = key; refresh(); });
  at("ages-switch").hidden = at("ages").hidden = !ages;
  at("no-ages").hidden = Boolean(ages);
  at("no-ages").textContent = run.no_ages;
  at("ages-about").textContent = ages ? "Age in iterations of the messages that receivers held." : "";
  if (!ages) return;
  const names = ages.map((_, agent) => agent), few = names.length <= 14;
  const oldest = Math.max(1, ...ages.flat().map((age) => age || 0));
  Plotly.react(at("ages"), [{
    z: ages, x: names, y: names, type: "heatmap", colorscale: AGE_SCALE, zmin: 0, zmax: oldest, xgap: few ? 2 : 0, ygap: few ? 2 : 0, hoverongaps: false,
    text: few ? ages.map((row) => row.map((age) => (age === null ? "" : number(age, age < 10 && age % 1 ? 1 : 0)))) : undefined, texttemplate: few ? "%{text}" : undefined,
    hovertemplate: "agent %{y} held messages of agent %{x}:<br>%{z:.1f} iterations old<extra></extra>",
    colorbar: { title: { text: "age", font: { size: 11 } }, thickness: 9, len: 0.7, outlinewidth: 0, tickfont: { size: 11 } },
  }], baseLayout({
    margin: { l: 46, r: 8, t: 8, b: 44 }, uirevision: run.path, dragmode: false,
    xaxis: axisLayout("sender", { showgrid: false, dtick: few ? 1 : undefined, constrain: "domain", fixedrange: true }),
    yaxis: axisLayout("receiver", { showgrid: false, dtick: few ? 1 : undefined, autorange: "reversed", scaleanchor: "x", constrain: "domain", fixedrange: true }),
  }), { ...PLOTLY_CONFIG, displayModeBar: false });
  listen(at("ages"), (point) => { state.agent = point.y; refresh(); });
}
