// The table of all episodes: filters, order, and as many rows as fit on the screen.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Address, short } from "./address";
import type { Index } from "./data";
import { turning } from "./inside";
import { visible } from "./text";

const ROW = 30; // pixels, as in the style
const MANY_WRONG = 0.1; // share of the cells of a decoded map

export type Filters = Record<string, string>;

export function readFilters(text: string): Filters {
  const pairs = text.split(";").filter(Boolean).map((pair) => pair.split(":").map(decodeURIComponent));
  return Object.fromEntries(pairs.filter((pair) => pair.length === 2)) as Filters;
}

export function writeFilters(filters: Filters): string {
  const pairs = Object.entries(filters).filter(([, value]) => value !== "");
  return pairs.map((pair) => pair.map(encodeURIComponent).join(":")).join(";");
}

const ORDERS: Record<string, string> = {
  "": "as stored", wrong: "most errors", share: "largest share of errors", steps: "most steps", over: "most steps beyond the shortest path",
  invalid: "most turns without a valid move", belief: "least accurate decoded map", follows: "most moves that are optimal only on the decoded map",
  id: "by id",
};

const turned = new WeakMap<Index, Map<number, Set<string>>>();

function turnedOf(index: Index) {
  const found = turned.get(index) ?? turning(index);
  turned.set(index, found);
  return found;
}

export function select(index: Index, filters: Filters, order: string): Uint32Array {
  const { columns, agents, runs, outcomes, tags } = index.table;
  const tests: ((at: number) => boolean)[] = [];
  const equal = (column: number[], names: string[], value: string | undefined) => {
    if (!value) return;
    const number = names.indexOf(value);
    tests.push((at) => column[at] === number);
  };
  equal(columns.run, runs, filters.run);
  equal(columns.agent, agents, filters.agent);
  equal(columns.outcome, outcomes, filters.outcome);
  for (const [name, names] of Object.entries(tags)) equal(columns.tags[name], names, filters[`tag ${name}`]);
  if (filters.wrong === "some") tests.push((at) => (columns.wrong[at] ?? 0) > 0);
  if (filters.wrong === "none") tests.push((at) => columns.wrong[at] === 0);
  if (filters.wrong === "invalid") tests.push((at) => columns.invalid[at] > 0);
  if (filters.turned === "same") tests.push((at) => columns.state[at] >= 0 && !turnedOf(index).has(at));
  else if (filters.turned) tests.push((at) => turnedOf(index).get(at)?.has(filters.turned) ?? false);
  if (filters.belief === "decoded") tests.push((at) => columns.belief[at] !== null);
  if (filters.belief === "follows") tests.push((at) => columns.follows[at] > 0);
  if (filters.belief === "off") tests.push((at) => (columns.belief[at] ?? 0) > MANY_WRONG);
  // One-turn questions, which ask a single move of a changed world, are shown where they are asked for.
  const chosen = filters.run || filters.turned || filters.find || columns.state.every((state) => state >= 0);
  if (filters.turns === "one") tests.push((at) => columns.state[at] >= 0);
  else if (filters.turns !== "all" && !chosen) tests.push((at) => columns.state[at] < 0);
  if (filters.find) {
    const wanted = filters.find.toLowerCase();
    tests.push((at) => columns.id[at].includes(wanted) || index.table.worlds[columns.world[at]].includes(wanted));
  }
  const rows: number[] = [];
  for (let at = 0; at < columns.id.length; at++) if (tests.every((test) => test(at))) rows.push(at);
  const keys: Record<string, (at: number) => number> = {
    wrong: (at) => columns.wrong[at] ?? -1,
    share: (at) => (columns.steps[at] ? (columns.wrong[at] ?? -1) / columns.steps[at] : -1),
    steps: (at) => columns.steps[at],
    over: (at) => columns.steps[at] - (columns.shortest[at] ?? columns.steps[at]),
    invalid: (at) => columns.invalid[at],
    belief: (at) => columns.belief[at] ?? -1,
    follows: (at) => columns.follows[at],
  };
  if (order === "id") rows.sort((one, two) => (columns.id[one] < columns.id[two] ? -1 : 1));
  else if (keys[order]) rows.sort((one, two) => keys[order](two) - keys[order](one) || one - two);
  return Uint32Array.from(rows);
}

function Choice({ name, value, values, words, set }: { name: string; value: string; values: string[]; words?: Record<string, string>; set: (value: string) => void }) {
  return (
    <label>{visible(name)}
      <select value={value} onChange={(event) => set(event.currentTarget.value)} data-filter={name}>
        <option value="">all</option>
        {values.map((one) => <option value={one}>{words?.[one] ?? visible(one).slice(0, 40)}</option>)}
      </select>
    </label>
  );
}

interface Props {
  index: Index;
  address: Address;
  rows: Uint32Array;
  at: number | null;
  change: (changes: Partial<Address>, push?: boolean) => void;
  children?: ComponentChildren;
}

export function List({ index, address, rows, at, change, children }: Props) {
  const { columns, agents, runs, outcomes, tags, moved } = index.table;
  const read = useMemo(() => columns.belief.some((one) => one !== null), [index]);
  const filters = useMemo(() => readFilters(address.q), [address.q]);
  const set = (name: string, value: string) => change({ q: writeFilters({ ...filters, [name]: value }) });
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const box = useRef<HTMLDivElement>(null);
  const folded = useRef(!(address.q || address.o)); // filters are folded until somebody uses them
  const questions = useMemo(() => columns.state.filter((state) => state >= 0).length, [index]);
  const whole = !(filters.run || filters.turned || filters.find || filters.turns) && questions < columns.id.length;
  const hidden = whole ? questions : 0;
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setHeight(entry.contentRect.height));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const place = at === null ? -1 : rows.indexOf(at);
    const element = box.current!;
    if (place >= 0 && (place * ROW < element.scrollTop || (place + 1) * ROW > element.scrollTop + element.clientHeight))
      element.scrollTop = Math.max(0, place * ROW - element.clientHeight / 2);
  }, [at, rows]);
  const first = Math.max(0, Math.floor(top / ROW) - 5);
  const last = Math.min(rows.length, first + Math.ceil(height / ROW) + 10);
  return (
    <section class="list" aria-label="episodes">
      {children}
      <details class="fold" open={folded.current === false} onToggle={(event) => { folded.current = !event.currentTarget.open; }}>
        <summary>Filter and order{address.q || address.o ? " (in use)" : ""}</summary>
      <div class="filters">
        {runs.length > 1 && <Choice name="run" value={filters.run ?? ""} values={runs} set={(value) => set("run", value)} />}
        {agents.length > 1 && <Choice name="agent" value={filters.agent ?? ""} values={agents} set={(value) => set("agent", value)} />}
        {outcomes.length > 1 && <Choice name="outcome" value={filters.outcome ?? ""} values={outcomes} words={END} set={(value) => set("outcome", value)} />}
        {Object.entries(tags).map(([name, values]) => (
          <Choice name={name} value={filters[`tag ${name}`] ?? ""} values={sorted(values)} set={(value) => set(`tag ${name}`, value)} />
        ))}
        <label>moves
          <select value={filters.wrong ?? ""} data-filter="wrong" onChange={(event) => set("wrong", event.currentTarget.value)}>
            <option value="">all</option><option value="some">with errors</option><option value="none">without errors</option>
            <option value="invalid">a turn without a valid move</option>
          </select>
        </label>
        {moved.length > 1 && (
          <label>its move changes with
            <select value={filters.turned ?? ""} data-filter="turned" onChange={(event) => set("turned", event.currentTarget.value)}>
              <option value="">all</option>{moved.filter((one) => one !== "nothing").map((one) => <option value={one}>{visible(one)}</option>)}
              <option value="same">none of these</option>
            </select>
          </label>
        )}
        {read && (
          <label>decoded map
            <select value={filters.belief ?? ""} data-filter="belief" onChange={(event) => set("belief", event.currentTarget.value)}>
              <option value="">all</option><option value="decoded">available</option>
              <option value="off">{`over ${100 * MANY_WRONG} % of cells wrong`}</option>
              <option value="follows">a move is optimal only on it</option>
            </select>
          </label>
        )}
        <label>order
          <select value={address.o} data-filter="order" onChange={(event) => change({ o: event.currentTarget.value })}>
            {Object.entries(ORDERS).filter(([value]) => read || (value !== "belief" && value !== "follows")).map(([value, name]) => <option value={value}>{name}</option>)}
          </select>
        </label>
        <label>id of episode or world
          <input type="search" value={filters.find ?? ""} data-filter="find" onInput={(event) => set("find", event.currentTarget.value)} />
        </label>
      </div>
      </details>
      <p class="count" data-count={rows.length}>
        {rows.length.toLocaleString("en")} of {columns.id.length.toLocaleString("en")} episodes
        {address.q && <button onClick={() => change({ q: "" })}>clear filters</button>}
        {hidden > 0 && <button data-show="one" onClick={() => set("turns", "all")}>{`show ${hidden.toLocaleString("en")} single moves in changed worlds`}</button>}
      </p>
      <div class="row head" aria-hidden="true">
        <span>agent</span><span>outcome</span><span>steps</span><span>errors</span><span>world</span>
      </div>
      <div class="rows" ref={box} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
        <div style={{ height: `${rows.length * ROW}px`, position: "relative" }}>
          {[...rows.slice(first, last)].map((row, place) => (
            <button class={row === at ? "row chosen" : "row"} key={row} data-id={columns.id[row]}
              style={{ transform: `translateY(${(first + place) * ROW}px)` }}
              onClick={() => change({ e: short(columns.id[row]), s: "0", b: "" }, true)}>
              <span title={visible(agents[columns.agent[row]])}>{visible(agents[columns.agent[row]])}</span>
              <span class={`end ${endOf(index, row)}`}>{END[endOf(index, row)] ?? endOf(index, row)}</span>
              <span>{columns.steps[row]}{columns.shortest[row] !== null && <small> / {columns.shortest[row]}</small>}</span>
              <span>{columns.wrong[row] ?? "–"}{columns.invalid[row] > 0 && <small title="turns without a valid move"> +{columns.invalid[row]}∅</small>}</span>
              <span class="id">{columns.id[row] && index.table.worlds[columns.world[row]].replace(/^[a-z]+-/, "").slice(0, 8)}</span>
            </button>
          ))}
        </div>
      </div>
    </section>
  );
}

/** How an episode ended; a one-turn question has no end to judge. */
export function endOf(index: Index, at: number): string {
  return index.table.columns.state[at] >= 0 ? "question" : index.table.outcomes[index.table.columns.outcome[at]];
}

const END: Record<string, string> = { question: "one move", goal: "✓ goal", horizon: "✗ no goal", failure: "∅ no move", stopped: "… cut off", ended: "✗ ended" };

function sorted(values: string[]): string[] {
  return [...values].sort((one, two) => Number(one) - Number(two) || (one < two ? -1 : 1));
}
