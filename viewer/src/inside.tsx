// What is read inside a model at a step, always beside a random network; and what it did where one thing was changed.

import { useMemo, useState } from "preact/hooks";
import { type Index, type Opened } from "./data";
import { cellOf, Cells } from "./picture";
import { visible } from "./text";

const ARROWS = ["↑", "↓", "←", "→"];
const MAP_CLAIM = "holds a map of the walls";
const NOTHING = "nothing"; // changed in the state as it was

const share = (value: number) => `${(100 * value).toFixed(1)} %`;

export function Beliefs({ index, opened, at }: { index: Index; opened: Opened; at: number }) {
  const { episode, shard } = opened;
  const run = index.table.columns.run[opened.at];
  const note = index.table.notes[index.table.runs[run]];
  const step = episode.steps[at];
  if (note && !step?.belief && at === 0 && !episode.steps.some((one) => one.belief)) return <p class="note">{belongs(note)}</p>;
  if (!step?.belief) return null;
  const { own, control, wrong, fits } = step.belief;
  const claim = index.claims.find((one) => one.name === MAP_CLAIM && one.run === run);
  const fitting = step.a === null ? null : fits.includes(step.a);
  return (
    <figure class="beliefs">
      <div class="pair">
        {([["decoded from the model", own, wrong[0]], ["decoded from a random network", control, wrong[1]]] as const).map(([name, drawn, off]) => (
          <div data-decoded={name}>
            <Cells drawing={shard.drawings[drawn[0]]} agent={cellOf(drawn)} overlay={{ label: name }} />
            <p class="note">{name}: {share(off)} of the cells wrong</p>
          </div>
        ))}
      </div>
      <figcaption>
        Left: the map that a probe decodes from the model at this step. Right: what the same kind of probe decodes from a random network.
        Only what the left map gets right beyond the right one is evidence about the model.{" "}
        {fits.length === 0 ? "On the decoded map no path leads to the goal." : fitting === null ? ""
          : fitting ? "The action is optimal on the decoded map." : "The action is not optimal on the decoded map."}
        {note && ` Probe: ${visible(note)}.`}
        {claim && ` Over all test grids, is its map better than that of random networks? ${claim.answer} (${claim.estimate})`}
      </figcaption>
    </figure>
  );
}

const belongs = (note: string) =>
  note.startsWith("Decoded") ? visible(note) : "No map was decoded in this episode, because the probe was fitted on its grid or its activations were not read.";

export function Plan({ opened, at }: { opened: Opened; at: number }) {
  const { episode } = opened;
  const plan = episode.steps[at]?.plan;
  if (!plan) return null;
  const taken = episode.steps.slice(at).map((step) => step.a);
  const lines: [string, (number | null)[]][] = [
    ["decoded plan", plan[0]], ["decoded from a random network", plan[1]], ["actions taken", taken.slice(0, Math.max(plan[0].length, 8))],
  ];
  return (
    <table class="facts plan"><tbody>{lines.map(([name, actions]) => (
      <tr><th>{name}</th><td>{actions.map((action, place) => (
        <span class={action === taken[place] ? "same" : ""} title={action === null ? "no action" : visible(episode.actions[action] ?? String(action))}>
          {action === null ? "∅" : (ARROWS[action] ?? action)}</span>
      ))}{actions.length === 0 && "no action"}</td></tr>
    ))}</tbody></table>
  );
}

/** Scrolls a strip to the first token that was read. */
const toRead = (strip: HTMLElement | null) => {
  const read = strip?.querySelector<HTMLElement>(".read");
  if (strip && read) strip.scrollTop = read.offsetTop - strip.offsetTop - 60;
};

/** Tokens of prompt and output, those marked whose activations were read. */
export function Tokens({ opened, at }: { opened: Opened; at: number }) {
  const { episode, shard } = opened;
  const [open, setOpen] = useState(false);
  const { tokens, sites } = episode.steps[at] ?? {};
  if (!tokens || !sites) return null;
  const named = new Map<number, string>();
  for (const [site, positions] of Object.entries(sites)) for (const position of positions) named.set(position, site);
  return (
    <details class="tokens" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{tokens.length} tokens, activations read at {Object.keys(sites).map(visible).join(", ")}</summary>
      {open && <p class="strip" dir="ltr" ref={toRead}>{tokens.map((line, position) => (
        <span class={named.has(position) ? "read" : ""} title={`token ${position}${named.has(position) ? `, site ${named.get(position)}` : ""}`}>
          {visible(shard.lines[line]).replace(/\n/g, "⏎") || "·"}</span>
      ))}</p>}
    </details>
  );
}

interface Version {
  moved: string;
  ids: string[];
  actions: (number | null)[];
}

/** The first actions of an agent in the versions of a state, those of the state as it was first. */
export function versionsOf(index: Index, at: number): Version[] {
  const { columns, moved } = index.table;
  const found = new Map<number, Version>();
  if (columns.state[at] < 0) return [];
  for (let other = 0; other < columns.id.length; other++) {
    if (columns.state[other] !== columns.state[at] || columns.agent[other] !== columns.agent[at] || columns.run[other] !== columns.run[at]) continue;
    const world = columns.world[other];
    const version = found.get(world) ?? { moved: moved[columns.moved[other]], ids: [], actions: [] };
    version.ids.push(columns.id[other]);
    version.actions.push(columns.first[other]);
    found.set(world, version);
  }
  return [...found.values()].sort((one, two) => Number(two.moved === NOTHING) - Number(one.moved === NOTHING) || (one.moved < two.moved ? -1 : 1));
}

/** For each episode, the things after whose change no first action of the state was taken again. */
export function turning(index: Index): Map<number, Set<string>> {
  const { columns, moved } = index.table;
  const before = new Map<string, Set<number | null>>();
  const after = new Map<string, Map<number, Set<number | null>>>();
  const key = (at: number) => `${columns.run[at]} ${columns.agent[at]} ${columns.state[at]}`;
  for (let at = 0; at < columns.id.length; at++) {
    if (columns.state[at] < 0) continue;
    if (moved[columns.moved[at]] === NOTHING) {
      if (!before.has(key(at))) before.set(key(at), new Set());
      before.get(key(at))!.add(columns.first[at]);
    } else {
      if (!after.has(key(at))) after.set(key(at), new Map());
      const worlds = after.get(key(at))!;
      if (!worlds.has(columns.world[at])) worlds.set(columns.world[at], new Set());
      worlds.get(columns.world[at])!.add(columns.first[at]);
    }
  }
  const turned = new Map<number, Set<string>>();
  for (let at = 0; at < columns.id.length; at++) {
    const then = after.get(key(at))?.get(columns.world[at]);
    const now = before.get(key(at));
    if (columns.state[at] < 0 || !then || !now) continue;
    if (![...then].some((action) => now.has(action))) turned.set(at, new Set([moved[columns.moved[at]]]));
  }
  return turned;
}

export function Reactions({ index, opened, link }: { index: Index; opened: Opened; link: (id: string) => string }) {
  const versions = useMemo(() => versionsOf(index, opened.at), [index, opened.at]);
  if (versions.length < 2) return null;
  const here = opened.episode.id;
  return (
    <details class="reactions" open>
      <summary>Its moves when one thing is changed</summary>
      <table class="facts"><thead><tr><th>changed</th><th>its move</th><th>answers</th></tr></thead><tbody>
        {versions.map(({ moved, ids, actions }) => (
          <tr class={ids.includes(here) ? "taken" : ""} data-moved={moved}>
            <th>{moved === NOTHING ? "nothing" : visible(moved)}</th>
            <td>{actions.map((action) => (action === null ? "∅" : (opened.episode.actions[action] ?? String(action)))).map(visible).join(", ")}</td>
            <td>{ids.map((id, number) => <a href={link(id)} data-episode={id}>{number + 1}</a>)}</td>
          </tr>
        ))}
      </tbody></table>
      <p class="note">Its answers in this state, and in copies of it in which one thing is changed. A single state says little; the claims
        decide over all states what its moves depend on.</p>
    </details>
  );
}

/** What it did with activations of the changed grid in place of its own. */
export function Exchanged({ opened }: { opened: Opened }) {
  const places = opened.shard.worlds[opened.episode.world]?.patched;
  if (!places?.length) return null;
  const patches = [...new Set(places.flatMap(([, , , by]) => Object.keys(by)))].sort((one, two) => Number(two === "source") - Number(one === "source"));
  return (
    <details class="exchanged">
      <summary>Its moves with activations from a changed version of this grid</summary>
      <table class="facts"><thead><tr><th>moved</th><th>site</th><th>layers</th>{patches.map((one) => <th>{visible(one)}</th>)}</tr></thead><tbody>
        {places.map(([moved, site, layers, by]) => (
          <tr><th>{visible(moved)}</th><td>{visible(site)}</td><td>{visible(layers)}</td>
            {patches.map((one) => <td data-patch={one}>{by[one] ? `${by[one][0]} (n = ${by[one][1]})` : "–"}</td>)}</tr>
        ))}
      </tbody></table>
      <p class="note">Share of runs whose move is optimal for the grid that the activations come from (source), beside controls of the same size.
        A single grid says little; the report has intervals over all grids.</p>
    </details>
  );
}
