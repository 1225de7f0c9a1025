// What the agents of a run on a testbed did: a row of bars for each, and its messages as lines to the rows of others.

const BAR = 0.64;  // of the height of a row; between the rows lines are visible

function spellTraces({ spells }, fills) {
  return Object.entries(spells).filter(([, spell]) => spell.agent.length).map(([kind, spell]) => ({
    type: "bar", orientation: "h", name: kind, y: spell.agent, base: spell.begin, x: spell.end.map((end, k) => end - spell.begin[k]),
    customdata: spell.end, width: BAR, marker: { color: fills[kind], line: { color: "white", width: 0.5 } },
    hovertemplate: `agent %{y} ${kind}<br>%{base:.6~g} s to %{customdata:.6~g} s<extra></extra>` }));
}

function messageTrace({ messages }, fills) {
  const x = [], y = [], text = [];
  messages.from.forEach((from, k) => {
    const said = `agent ${from} to agent ${messages.to[k]}<br>sent ${number(messages.begin[k], 3)} s, arrived ${number(messages.end[k], 3)} s`;
    x.push(messages.begin[k], messages.end[k], null);
    y.push(from, messages.to[k], null);
    text.push(said, said, "");
  });
  return { type: "scatter", mode: "lines", name: "messages", x, y, text, opacity: 0.6, line: { color: fills.message, width: 0.8 },
    hovertemplate: "%{text}<extra></extra>" };
}

function timelineText({ messages_until: until, end }) {
  const known = until !== null && until < 0.98 * end ? ` The messages sent until ${number(until, 1)} s are known.` : "";
  return `The first ${number(end, 1)} simulated seconds. Drag to zoom, click a name to hide it.${known}`;
}

function showTimeline(state) {
  const { run, model } = state, timeline = run.timeline, plot = at("timeline");
  at("timeline-card").hidden = !timeline;
  if (!timeline) return;
  fillSwitch(at("timeline-switch"), [{ key: "beginning", title: "First iterations" }, { key: "whole", title: "Whole" }], state.span,
    (key) => { state.span = key; showTimeline(state); });
  at("timeline-about").textContent = timelineText(timeline);
  const agents = model.networks[run.network].agents.length, shown = `${run.path} ${state.span}`;
  if (isDrawn(plot, shown + timeline.end)) return;
  plot.style.height = `${Math.min(110 + 26 * agents, 640)}px`;
  const until = state.span === "beginning" ? timeline.window : timeline.end;
  Plotly.react(plot, [...spellTraces(timeline, model.timeline_fills), messageTrace(timeline, model.timeline_fills)], baseLayout({
    barmode: "overlay", hovermode: "closest", uirevision: shown, showlegend: true,
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" }, margin: { l: 46, r: 14, t: 34, b: 44 },
    xaxis: axisLayout("Simulated seconds", { range: [0, until || 1], showgrid: false, hoverformat: ".6~g" }),
    yaxis: axisLayout("agent", { range: [agents - 0.4, -0.6], showgrid: false, dtick: agents <= 24 ? 1 : undefined }),
  }), PLOTLY_CONFIG);
}
