// The viewer: a list of episodes beside one of them, or two of them side by side.

import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Address, hrefOf, readAddress, short, useAddress } from "./address";
import { type Claim, type Index, open, type Opened, readIndex } from "./data";
import { Head, Picture, Texts, Verdict } from "./episode";
import { List, readFilters, select } from "./list";
import { solve, statesOf } from "./solver";
import { visible } from "./text";

// The solver, so that anybody can compare it with goalscope.worlds.planning in the console.
Object.assign(globalThis, { goalscopeSolver: { solve, statesOf } });

const MOST_BESIDE = 200; // episodes offered to be put beside one

function find(index: Index, id: string): number | null {
  if (!id) return null;
  const wanted = `episode-${id.replace(/^episode-/, "")}`;
  const at = index.table.columns.id.findIndex((one) => one.startsWith(wanted));
  return at < 0 ? null : at;
}

function useOpened(index: Index, at: number | null): Opened | string | null {
  const [opened, set] = useState<Opened | string | null>(null);
  useEffect(() => {
    let wanted = true;
    if (at === null) set(null);
    else open(index, at).then((one) => wanted && set(one), (error) => wanted && set(String(error.message)));
    return () => {
      wanted = false;
    };
  }, [index, at]);
  return opened;
}

/** The first step at which two episodes stand elsewhere or act otherwise, null where they are alike to the end. */
export function parting(one: Opened, two: Opened): number | null {
  const most = Math.min(one.episode.steps.length, two.episode.steps.length);
  const place = (opened: Opened, at: number) => JSON.stringify([opened.episode.steps[at].draw?.slice(1), opened.episode.steps[at].a]);
  for (let at = 0; at < most; at++) if (place(one, at) !== place(two, at)) return at;
  return one.episode.steps.length === two.episode.steps.length ? null : most;
}

function Claims({ index, address, change }: { index: Index; address: Address; change: (changes: Partial<Address>, push?: boolean) => void }) {
  const known = new Set(index.table.columns.id);
  const link = ([id, value]: [string, number], claim: Claim) => known.has(id) && (
    <a href={hrefOf(address, { e: short(id), s: "0", b: "" })} data-episode={id} title={`${claim.measure} ${value}`}>{short(id).slice(0, 6)} <small>({value})</small></a>
  );
  const open = address.c !== "";
  return (
    <details class="claims" open={open} onToggle={(event) => event.currentTarget.open !== open && change({ c: event.currentTarget.open ? "all" : "" })}>
      <summary>{index.claims.length} claims, each with the episodes that influence it most</summary>
      <div class="claims-body">
        {index.claims.map((claim) => (
          <div class="claim" data-claim={claim.name}>
            <p><span class={`answer ${claim.answer.replaceAll(" ", "-")}`}>{SIGNS[claim.answer]} {claim.answer}</span> {visible(claim.question)}
              {index.claims.some((one) => one.model !== claim.model) && <em> {visible(claim.model)}</em>}</p>
            {claim.estimate && <p class="note">{visible(claim.quantity)}: {claim.estimate}, threshold {claim.threshold}; {claim.clusters} worlds</p>}
            {claim.high.length + claim.low.length > 0 && (
              <p class="links">{claim.measure}: {claim.low.length ? "highest in" : "the same in all episodes, such as"} {claim.high.map((one) => link(one, claim))}
                {claim.low.length > 0 && <> lowest in {claim.low.map((one) => link(one, claim))}</>}</p>
            )}
            {claim.run !== null && <p><a href={hrefOf(address, episodesOf(index, claim.run))}>show its episodes</a></p>}
          </div>
        ))}
      </div>
    </details>
  );
}

/** The episodes of a run; where maps were decoded in it, those that have one, the least like the truth first. */
function episodesOf(index: Index, run: number): Partial<Address> {
  const filter = `run:${encodeURIComponent(index.table.runs[run])}`;
  const read = index.table.columns.belief.some((one, at) => one !== null && index.table.columns.run[at] === run);
  return read ? { q: `${filter};belief:decoded`, o: "belief" } : { q: filter };
}

/** The first episode to look at: one that decides the strongest claim, those on what the agent is directed at first. */
function first(index: Index): string {
  const known = new Set(index.table.columns.id);
  const answered = index.claims.filter((claim) => claim.answer === "yes" || claim.answer === "no");
  const rank = (claim: Claim) => (/directed|hypothesis/.test(claim.name) ? 0 : /goal/.test(claim.name) ? 1 : 2) + (claim.answer === "yes" ? 0 : 3);
  for (const claim of [...answered].sort((one, two) => rank(one) - rank(two))) {
    const deciding = claim.answer === "no" && claim.low.length ? claim.low : claim.high;
    const there = deciding.find(([id]) => known.has(id));
    if (there) return there[0];
  }
  return "";
}

const SIGNS: Record<string, string> = { yes: "✓", no: "✗", undecided: "~", untestable: "?" };

function Viewer({ index }: { index: Index }) {
  const [address, change] = useAddress();
  useEffect(() => {
    // A page that is opened without an address begins with the episode that decides most; on narrow screens with the list.
    if (!location.hash && !address.e && innerWidth > 800) {
      const id = first(index);
      if (id) change({ e: short(id), s: "0" });
    }
  }, [index]);
  const rows = useMemo(() => select(index, readFilters(address.q), address.o), [index, address.q, address.o]);
  const at = find(index, address.e);
  const opened = useOpened(index, at);
  const beside = useOpened(index, find(index, address.b));
  const steps = opened && typeof opened !== "string" ? opened.episode.steps.length : 0;
  const both = opened && beside && typeof opened !== "string" && typeof beside !== "string";
  const parts = both ? parting(opened, beside) : null;
  const most = both ? Math.max(steps, beside.episode.steps.length) : steps;
  const step = Math.min(Math.max(0, Number.parseInt(address.s, 10) || 0), most);
  // In a notebook the page lies in a frame: it says which step is looked at, and hears nothing.
  useEffect(() => {
    if (parent !== window && at !== null) parent.postMessage({ episode: index.table.columns.id[at], step }, "*");
  }, [at, step]);
  // From the address, not from what is drawn: keys may come faster than drawings.
  const present = () => Math.min(Math.max(0, Number.parseInt(readAddress().s, 10) || 0), most);
  const go = (to: number) => change({ s: String(Math.min(Math.max(0, to), most)) });
  const leap = (by: number) => {
    const place = at === null ? -1 : rows.indexOf(at);
    const next = rows[Math.min(rows.length - 1, Math.max(0, place + by))];
    if (next !== undefined && next !== at) change({ e: short(index.table.columns.id[next]), s: "0", b: "" });
  };
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const name = (event.target as HTMLElement).tagName;
      const typing = name === "SELECT" || (name === "INPUT" && (event.target as HTMLInputElement).type !== "checkbox");
      if (typing || event.ctrlKey || event.altKey || event.metaKey) return;
      const act: Record<string, () => void> = {
        ArrowLeft: () => go(present() - 1), ArrowRight: () => go(present() + 1), Home: () => go(0), End: () => go(most),
        ArrowDown: () => leap(1), ArrowUp: () => leap(-1),
      };
      if (act[event.key] && (at !== null || event.key === "ArrowDown")) {
        event.preventDefault();
        act[event.key]();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  return (
    <div class={at === null ? "viewer" : "viewer reading"}>
      <List index={index} address={address} rows={rows} at={at} change={change}>
        <h1>{visible(index.title)} <small>goalscope {index.version}</small></h1>
        {index.claims.length > 0 && <Claims index={index} address={address} change={change} />}
      </List>
      <main>
        {at === null && (address.e ? <p class="wait">This page does not contain the episode {visible(address.e)}.</p>
          : <p class="wait">Choose an episode from the list. The arrow keys ← → move by one step, ↑ ↓ by one episode. The address of the page always links to what you see.</p>)}
        {typeof opened === "string" && <p class="wait bad">{opened}</p>}
        {at !== null && opened && typeof opened !== "string" && (
          <>
            <div class="bar-of-steps">
              <button class="back" onClick={() => change({ e: "", s: "", b: "" }, true)}>← episodes</button>
              <button aria-label="previous step" disabled={step === 0} onClick={() => go(step - 1)}>‹</button>
              <input type="range" min={0} max={most} value={step} aria-label="step" onInput={(event) => go(Number(event.currentTarget.value))}
                onKeyDown={(event) => event.stopPropagation()} />
              <button aria-label="next step" disabled={step === most} onClick={() => go(step + 1)}>›</button>
              <output data-step={step}>{step === most ? `end, ${most} steps` : `step ${step} of ${most}`}</output>
            </div>
            <Beside index={index} at={at} address={address} change={change} />
            {both && parts === null && <p class="parting">Both episodes take the same steps.</p>}
            {parts !== null && <p class="parting">The two episodes differ from step {parts} on{" "}
              <button class="small" data-go="parting" onClick={() => go(parts)}>go there</button></p>}
            <div class={both ? "two" : "one"}>
              {[opened, both ? beside : null].map((one) => one && typeof one !== "string" && <Column index={index} opened={one} at={step} address={address} />)}
            </div>
            {typeof beside === "string" && <p class="wait bad">{beside}</p>}
          </>
        )}
      </main>
    </div>
  );
}

function Column({ index, opened, at, address }: { index: Index; opened: Opened; at: number; address: Address }) {
  const step = Math.min(at, opened.episode.steps.length);
  return (
    <article data-id={opened.episode.id}>
      <Head index={index} opened={opened} />
      <div class="look">
        <Picture index={index} opened={opened} at={step} address={address} />
        <Verdict index={index} opened={opened} at={step} />
      </div>
      <Texts opened={opened} at={step} />
    </article>
  );
}

function Beside({ index, at, address, change }: { index: Index; at: number; address: Address; change: (changes: Partial<Address>) => void }) {
  const { columns, agents, runs, outcomes } = index.table;
  const others: number[] = [];
  for (let other = 0; other < columns.id.length && others.length < MOST_BESIDE; other++)
    if (other !== at && columns.world[other] === columns.world[at]) others.push(other);
  if (!others.length) return <p class="note beside">There is no other episode in this world.</p>;
  return (
    <label class="beside">compare with another episode in the same world:{" "}
      <select value={address.b} data-filter="beside" onChange={(event) => change({ b: event.currentTarget.value })}>
        <option value="">none</option>
        {others.map((other) => (
          <option value={short(columns.id[other])}>
            {`${visible(agents[columns.agent[other]])} · ${runs[columns.run[other]]} · ${outcomes[columns.outcome[other]]} · ${columns.steps[other]} steps`}
          </option>
        ))}
      </select>
    </label>
  );
}

const place = document.getElementById("app")!;
readIndex().then(
  (index) => {
    document.title = `${visible(index.title)}: episodes`;
    place.textContent = "";
    render(<Viewer index={index} />, place);
  },
  (error) => {
    place.textContent = `This page cannot be read: ${error.message}`;
  },
);
