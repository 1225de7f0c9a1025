// The page: the reader's choices, and everything drawn from them. `gossamerPage.show(model)` may be called again
// with a larger model; zoom, axis, sorting and selection stay.

window.gossamerPage = (() => {
  const state = { model: null, axis: null, chosenAxis: null, hidden: new Set(), sort: { key: null, down: false }, path: null, run: null, agent: 0, ages: "mean", span: "beginning", onlyDifferences: false };

  function showHeader({ header, version, warnings }) {
    at("title").textContent = header.title;
    at("version").textContent = version;
    at("facts").replaceChildren(...header.facts.map(({ name, value, note }) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, value, note ? make("small", {}, note) : ""))));
    at("warnings").hidden = !warnings.length;
    at("warnings").replaceChildren(...warnings.map((warning) => make("li", {}, `Left out: ${warning}`)));
  }

  function showChoices() {
    const { model, run } = state;
    fillSelect(at("run"), model.runs.map((each) => each.name), model.runs.indexOf(run));
    at("run").onchange = (event) => { state.path = model.runs[event.target.value].path; showInside(); };
    const count = model.networks[run.network].agents.length;
    fillSelect(at("agent"), Array.from({ length: count }, (_, agent) => String(agent)), state.agent);
    at("agent").onchange = (event) => { state.agent = Number(event.target.value); showInside(); };
  }

  function choose() {
    const { model } = state;
    state.run = model.runs.find((run) => run.path === state.path) || model.runs[0];
    state.agent = Math.min(state.agent, model.networks[state.run.network].agents.length - 1);
    const isOpen = model.axes.some((axis) => axis.key === state.chosenAxis && !axis.why);
    state.axis = isOpen ? state.chosenAxis : model.axis;
  }

  function showCharts() {
    const choices = state.model.axes.map(({ key, switch: title, why }) => ({ key, title, why }));
    fillSwitch(at("axis"), choices, state.axis, (key) => { state.axis = state.chosenAxis = key; showCharts(); showAgents(state); });
    showLegend(state, showCharts);
    for (const chart of state.model.charts) showChart(chart, state);
  }

  function showInside() {
    choose();
    showRuns(state, showInside);
    showChoices();
    showNetwork(state, showInside);
    showAges(state, showInside);
    showAgents(state);
    showTimeline(state);
  }

  function show(model) {
    state.model = model;
    choose();
    showHeader(model);
    showCharts();
    showInside();
    showConfiguration(state);
    showCommands(state);
  }

  return { show, state, inside: showInside };
})();

window.gossamerPage.show(JSON.parse(at("model").textContent));
