// The records that Python wrote (goalscope.verdict.viewer.collect), read out of the page or of the scripts beside it.

export type Drawn = [number] | [number, number, number]; // number of a drawing, cell of the agent

export interface Drawing {
  rows?: string[];
  labels?: [number, number, string][];
  nodes?: [string, string][];
  edges?: [string, string][];
}

export interface GridRecord {
  rows: string[];
  start?: [number, number];
  goal?: [number, number];
  key?: [number, number];
  door?: [number, number];
  things?: [number, number][]; // cells that no goal can have
  leaps?: number[]; // of each state and move: number of the state that it leads to, less that of the state
}

export interface Step {
  a: number | null;
  failure?: string;
  best: number[] | null;
  from: number | null;
  to?: number;
  phase?: number;
  policy?: number[];
  reward?: number;
  draw?: Drawn;
  saw?: Drawn;
  held?: string[]; // names of the things that the agent carries
  text?: number[];
  prompt?: boolean;
  reasoning?: number[];
  answer?: number[];
  tries?: [number[] | null, string][];
  belief?: { own: Drawn; control: Drawn; wrong: [number, number]; fits: number[] }; // decoded maps, cells that are wrong
  plan?: [number[], number[]]; // decoded next actions, and those of a random network
  tokens?: number[]; // lines of the shard
  sites?: Record<string, number[]>; // where in the tokens activations were read
  errors?: string[]; // of a task world: exploration, exploitation
  measures?: Record<string, number>;
}

export interface Episode {
  id: string;
  world: string;
  horizon: number;
  trajectory: number;
  actions: string[];
  tags: Record<string, string>;
  end?: Drawn;
  phase?: number; // at the end
  measures: Record<string, number>;
  steps: Step[];
}

// Thing moved, site, layers, and by patch: share of runs whose action follows the source, and their number.
export type Patched = [string, string, string, Record<string, [number, number]>];

export interface Shard {
  episodes: Episode[];
  worlds: Record<string, { kind: string; cluster: string; grid?: GridRecord; patched?: Patched[] }>;
  lines: string[];
  drawings: Drawing[];
}

export interface Columns {
  id: string[];
  run: number[];
  agent: number[];
  world: number[];
  outcome: number[];
  steps: number[];
  invalid: number[];
  wrong: (number | null)[];
  shortest: (number | null)[];
  shard: number[];
  state: number[]; // of which versions with one thing changed were asked, -1 for none
  moved: number[]; // what was changed
  first: (number | null)[]; // first action
  belief: (number | null)[]; // share of cells that are wrong on its decoded maps
  follows: number[]; // turns that are wrong in truth and right on the decoded map
  tags: Record<string, number[]>;
}

export interface Claim {
  model: string;
  name: string;
  question: string;
  answer: string;
  says: string;
  quantity: string;
  estimate: string;
  threshold: number | null;
  unit: string;
  clusters: number;
  n: number;
  run: number | null;
  measure: string;
  high: [string, number][];
  low: [string, number][];
}

export interface Index {
  title: string;
  version: string;
  folder: string;
  shards: number;
  claims: Claim[];
  table: {
    columns: Columns;
    runs: string[];
    agents: string[];
    worlds: string[];
    outcomes: string[];
    measures: string[];
    tags: Record<string, string[]>;
    moved: string[];
    left_out: string[];
    notes: Record<string, string>; // run -> what its decoded maps are, or why there are none
  };
}

async function unpack<T>(packed: string): Promise<T> {
  const letters = atob(packed);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as T;
}

function block(name: string): string {
  const element = document.getElementById(name);
  if (!element?.textContent) throw new Error(`This page is incomplete, its part “${name}” is missing: write it again with goalscope view.`);
  return element.textContent;
}

export function readIndex(): Promise<Index> {
  return unpack<Index>(block("index"));
}

const waiting = new Map<number, (packed: string) => void>();

Object.assign(globalThis, {
  goalscopeShard(number: number, packed: string) {
    waiting.get(number)?.(packed);
    waiting.delete(number);
  },
});

function fetchScript(folder: string, number: number): Promise<string> {
  return new Promise((resolve, reject) => {
    waiting.set(number, resolve);
    const script = document.createElement("script");
    script.src = `${encodeURIComponent(folder)}/${number}.js`;
    script.onload = () => script.remove();
    script.onerror = () =>
      reject(new Error(`The file ${folder}/${number}.js must lie beside this page: send the folder with it.`));
    document.head.append(script);
  });
}

const MOST_SHARDS = 12; // kept unpacked
const shards = new Map<number, Promise<Shard>>();

export function readShard(index: Index, number: number): Promise<Shard> {
  let shard = shards.get(number);
  if (!shard) {
    shard = (async () => unpack<Shard>(index.folder ? await fetchScript(index.folder, number) : block(`shard-${number}`)))();
    shards.set(number, shard);
    shard.catch(() => shards.delete(number));
    if (shards.size > MOST_SHARDS) shards.delete(shards.keys().next().value as number);
  }
  return shard;
}

export interface Opened {
  at: number; // row of the table
  shard: Shard;
  episode: Episode;
}

export async function open(index: Index, at: number): Promise<Opened> {
  const shard = await readShard(index, index.table.columns.shard[at]);
  const episode = shard.episodes.find((one) => one.id === index.table.columns.id[at]);
  if (!episode) throw new Error(`This page does not contain the steps of ${index.table.columns.id[at]}: write it again with goalscope view.`);
  return { at, shard, episode };
}

export function textOf(shard: Shard, numbers: number[] | undefined | null): string | null {
  return numbers ? numbers.map((number) => shard.lines[number]).join("\n") : null;
}
