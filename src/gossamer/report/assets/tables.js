// The sortable table of runs, the configuration with its differences, the commands.

const LESS_FIRST = ["seed", "loss", "consensus", "seconds", "sim_seconds", "seconds_to_target", "steps_to_target", "megabytes_to_target"];

function sortedRuns(model, sort) {
  if (!sort.key) return model.runs;
  const sign = sort.down ? -1 : 1, isNumbers = model.columns.find((column) => column.key === sort.key)?.digits !== null;
  // In a column of numbers: numbers, words such as "not reached", then what is missing, in both directions.
  const rank = (value) => (value === null || value === undefined ? 2 : isNumbers && typeof value !== "number" ? 1 : 0);
  return [...model.runs].sort((one, other) => {
    const [a, b] = [one[sort.key], other[sort.key]];
    if (rank(a) || rank(b)) return rank(a) - rank(b);
    return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  });
}

function headOf({ key, title, digits, about }, state, refresh) {
  const { sort } = state, order = sort.key === key ? (sort.down ? "descending" : "ascending") : "none";
  const button = make("button", { type: "button", title: about || null, onclick: () => {
    sort.down = sort.key === key ? !sort.down : digits !== null && !LESS_FIRST.includes(key);
    sort.key = key;
    showRuns(state, refresh);
    at("runs").querySelector(`th[data-key="${key}"] button`).focus();
  } }, title);
  return make("th", { scope: "col", "data-key": key, "aria-sort": order, class: digits === null ? null : "number" }, button);
}

function showRuns(state, refresh) {
  const { model, sort } = state;
  const body = sortedRuns(model, sort).map((run) => make("tr", {
    class: run === state.run ? "chosen" : null, onclick: () => { state.path = run.path; refresh(); },
  }, ...model.columns.map(({ key, digits }) => {
    const text = number(run[key], digits ?? undefined);
    if (key === "name") return make("th", { scope: "row" }, make("button", { type: "button", title: `${run.path}: show details`, "aria-pressed": String(run === state.run) }, text));
    const cell = make("td", { class: digits === null ? "words" : "number", title: digits === null ? text : null }, text);
    if (key === "status" && !run.orderly) cell.prepend("⚠ ");
    if (key === "setting") cell.prepend(make("i", { class: "dot", style: `background:${model.settings[run.setting_number].colour}` }));
    return cell;
  })));
  if (!isDrawn(at("runs"), [model.columns, sort]))
    at("runs").replaceChildren(make("thead", {}, make("tr", {}, ...model.columns.map((column) => headOf(column, state, refresh)))), make("tbody"));
  at("runs").tBodies[0].replaceChildren(...body);
}

function showConfiguration(state) {
  const { model } = state, several = model.settings.length > 1;
  at("only").hidden = !several;
  at("only-differences").checked = state.onlyDifferences;
  at("only-differences").onchange = (event) => { state.onlyDifferences = event.target.checked; showConfiguration(state); };
  const rows = model.configuration.filter((row) => !state.onlyDifferences || row.differs);
  at("configuration").replaceChildren(
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Setting"), ...model.settings.map((setting) => make("th", { scope: "col" }, setting.label)))),
    make("tbody", {}, ...rows.map((row) => make("tr", { class: row.differs ? "differs" : null },
      make("th", { scope: "row" }, row.differs ? make("b", { title: "differs between settings" }, "≠ ") : "", row.key), ...row.values.map((value) => make("td", {}, value))))));
}

// Lines break before a flag, not inside it.
function flagsOf(command) {
  return command.split(/ (?=--)/).flatMap((flag, place) => [place ? " " : "", flag.length < 60 ? make("span", {}, flag) : flag]);
}

function showCommands(state) {
  at("commands").replaceChildren(...state.model.settings.map((setting) => {
    const seeds = setting.other_seeds.length ? `Other seeds: --seed ${setting.other_seeds.join(", ")}` : "";
    const line = make("div", { class: "card command" }, make("h3", {}, setting.label));
    if (setting.command) {
      const button = make("button", { type: "button", class: "copy", onclick: () => copyText(setting.command, button) }, "Copy");
      line.append(make("pre", { tabindex: "0" }, make("code", {}, ...flagsOf(setting.command))), button);
    }
    if (seeds || setting.note) line.append(make("p", { class: "about" }, setting.note || seeds));
    return line;
  }));
}
