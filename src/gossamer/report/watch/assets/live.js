// The live page of a run: progress, agents, and links coloured by the present age of their messages.

(() => {
  const page = window.gossamerPage, state = page.state;
  const STATES = { running: "Training", ended: "Ended", failed: "Failed", silent: "Silent", gone: "Killed", vanished: "Gone", waiting: "Starting" };
  let connected = true;

  function duration(seconds) {
    if (seconds === null || seconds === undefined) return null;
    const whole = Math.round(seconds), hours = Math.floor(whole / 3600), minutes = Math.floor((whole % 3600) / 60);
    if (hours) return `${hours} h ${minutes} min`;
    return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
  }

  function build() {
    at("kind").textContent = "watch";
    document.querySelector("footer").lastChild.textContent = ". This page loads data only from gossamer watch.";
    at("live").replaceChildren(
      make("div", { class: "live-line" }, make("span", { id: "live-state", class: "pill", role: "status" }), make("span", { id: "live-progress" }), make("span", { id: "live-left" })),
      make("div", { id: "live-bar", class: "progress", role: "progressbar", "aria-label": "Share done", "aria-valuemin": "0", "aria-valuemax": "100" }, make("div")),
      make("p", { id: "live-words", hidden: true }),
      make("ul", { id: "live-flags", "aria-live": "polite", hidden: true }));
    const network = at("network").closest("figure");
    const agents = make("figure", { class: "card", id: "live-agents" },
      make("figcaption", {}, make("h3", {}, "Agents now"), make("p", { class: "about", id: "live-count" })),
      make("div", { class: "agents-now" }, make("table", { id: "agents-now" })), make("ol", { id: "live-events", hidden: true }));
    const now = make("section", { id: "now", class: "grid", "aria-label": "Right now" }, network, agents);
    at("charts").before(now);
    Plotly.Plots.resize(at("network"));  // the figure has moved to another place
    state.ages = "last";
  }

  function showProgress(live) {
    const [done, length] = live.sim_end ? [live.sim_seconds, live.sim_end] : [live.step, live.steps];
    const share = length ? Math.min(1, done / length) : null, of = live.steps ? ` of ${number(live.steps, 0)}` : "";
    const clock = live.sim_seconds === null || live.sim_seconds === undefined ? null
      : `${number(live.sim_seconds, 1)}${live.sim_end ? ` of ${number(live.sim_end, 1)}` : ""} simulated s`;
    const name = connected ? STATES[live.state] || live.state : "Not connected";
    at("live-state").textContent = name;
    at("live-state").className = `pill ${connected ? live.state : "silent"}`;
    const parts = [clock, `step ${number(live.step, 0)}${of}`, share === null ? null : `${number(100 * share, 1)} %`,
      live.epoch === null || live.epoch === undefined ? null : `epoch ${number(live.epoch, 1)}`];
    at("live-progress").textContent = parts.filter(Boolean).join(" · ");
    const left = live.left === null || live.left === undefined ? null : `about ${duration(live.left)} left`;
    at("live-left").textContent = [duration(live.seconds), left].filter(Boolean).join(" so far, ") + (left ? "" : live.seconds ? " of training" : "");
    const bar = at("live-bar");
    bar.hidden = share === null;
    bar.firstChild.style.width = `${100 * (share || 0)}%`;
    bar.className = `progress ${live.state}`;
    if (share !== null) bar.setAttribute("aria-valuenow", String(Math.round(100 * share)));
    const words = connected ? (live.state === "running" ? "" : live.words) : "The page has lost its server and tries to reconnect. The run is not affected.";
    at("live-words").textContent = words;
    at("live-words").hidden = !words;
    document.title = `${share === null ? "" : `${Math.floor(100 * share)} % `}${name.toLowerCase()} · ${state.model.header.title}`;
  }

  function showFlags(live) {
    const of = (test) => live.agents.map((agent, place) => (test(agent) ? place : -1)).filter((place) => place >= 0);
    const line = (places, text) => (places.length ? [make("li", {}, `Agent${places.length > 1 ? "s" : ""} ${places.join(", ")}: ${text}`)] : []);
    const lines = [...line(of((agent) => agent.flags.includes("not finite")), "loss is not finite"),
      ...line(of((agent) => agent.flags.includes("diverging")), "diverging"), ...line(of((agent) => agent.state === "dead"), "dead")];
    at("live-flags").hidden = !lines.length;
    at("live-flags").replaceChildren(...lines);
  }

  function showAgentsNow(live) {
    const states = live.agents.map((agent) => agent.state), kinds = [...new Set(states)];
    at("live-count").textContent = kinds.map((kind) => `${states.filter((each) => each === kind).length} ${kind}`).join(", ") + ".";
    const restarts = live.agents.some((agent) => agent.restarts), losses = live.agents.some((agent) => agent.loss !== null && agent.loss !== undefined);
    const heads = ["Agent", "State", "Step", ...(losses ? ["Training loss"] : []), ...(restarts ? ["Restarts"] : [])];
    const rows = live.agents.map((agent, place) => make("tr", { class: agent.flags.length ? "flagged" : agent.state },
      make("th", { scope: "row", class: "number" }, String(place)),
      make("td", {}, make("span", { class: `pill small ${agent.state}` }, agent.state), ...agent.flags.flatMap((flag) => [" ", make("span", { class: "pill small flag" }, flag)])),
      make("td", { class: "number" }, number(agent.step, 0)),
      ...(losses ? [make("td", { class: "number" }, agent.loss === null || agent.loss === undefined ? "–" : agent.loss.toPrecision(3))] : []),
      ...(restarts ? [make("td", { class: "number" }, String(agent.restarts || 0))] : [])));
    const head = make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col", class: text === "State" ? "" : "number" }, text))));
    at("agents-now").replaceChildren(head, make("tbody", {}, ...rows));
    at("live-events").hidden = !live.events.length;
    at("live-events").replaceChildren(...live.events.slice(-6).reverse().map(({ time, text }) =>
      make("li", {}, make("time", {}, new Date(1000 * time).toLocaleTimeString()), ` ${text}`)));
  }

  function showLive(live) {
    state.live = live;
    if (live.ages) state.run.link_ages = live.ages;
    showProgress(live);
    showFlags(live);
    showAgentsNow(live);
  }

  // Redraws only what shows the age of messages.
  function redraw() {
    if (!state.live.ages) return;
    showNetwork(state, page.inside);
    showAges(state, page.inside);
  }

  build();
  const first = state.model.live;
  state.live = first;
  if (first.ages) state.run.link_ages = first.ages;
  page.show(state.model);
  showLive(first);

  const source = new EventSource("events");
  source.addEventListener("model", (event) => {
    const model = JSON.parse(event.data);
    if (state.live.ages) for (const run of model.runs) run.link_ages = state.live.ages;
    page.show(model);
    showProgress(state.live);
  });
  source.addEventListener("status", (event) => { showLive(JSON.parse(event.data)); redraw(); });
  source.onopen = () => { connected = true; showProgress(state.live); };
  source.onerror = () => { connected = false; showProgress(state.live); };
})();
