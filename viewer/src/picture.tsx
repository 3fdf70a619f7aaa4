// The drawings of worlds: cells, a graph, or neither.

import type { Drawing, Drawn, Step } from "./data";
import { visible } from "./text";

const SIDE = 24;
const ARROWS = ["↑", "↓", "←", "→"];
const KNOWN: Record<string, string> = { "#": "wall", _: "open", "*": "fog", " ": "fog", G: "goal", g: "goal", K: "key", D: "door", A: "read",
  a: "read" };

export interface Overlay {
  path?: [number, number][]; // cells before and including the present one
  wrong?: boolean[]; // of each move of the path
  arrows?: (number[] | null)[][]; // optimal moves of each cell
  distances?: number[][];
  onCell?: (row: number, col: number) => void;
  label: string;
}

export function Cells({ drawing, agent, overlay }: { drawing: Drawing; agent?: [number, number]; overlay: Overlay }) {
  const rows = drawing.rows!;
  const [height, width] = [rows.length, rows[0].length];
  const path = overlay.path ?? [];
  const isOpen = (row: number, col: number) => "#_* ".includes(rows[row][col]);
  const labels = drawing.labels ?? [];
  const legend = new Set(labels.filter(([row, col]) => !isOpen(row, col)).map(([row, col, name]) => visible(`${rows[row][col]} ${name}`)));
  return (
    <><svg class="cells" viewBox={`-1 -1 ${width * SIDE + 2} ${height * SIDE + 2}`} role="img" aria-label={overlay.label}
      style={{ maxWidth: `${Math.max(width * 34, 200)}px` }}>
      {rows.map((line, row) => [...line].map((symbol, col) => (
        <g class={overlay.onCell ? "cell press" : "cell"} onClick={overlay.onCell && (() => overlay.onCell!(row, col))}
          data-cell={`${row},${col}`}>
          <rect x={col * SIDE} y={row * SIDE} width={SIDE} height={SIDE} class={KNOWN[symbol] ?? "other"} />
          {!isOpen(row, col) && (
            <text x={(col + 0.5) * SIDE} y={(row + 0.7) * SIDE} class="symbol">{visible(symbol)}</text>
          )}
          {overlay.distances && overlay.distances[row][col] >= 0 && symbol === "_" && (
            <text x={col * SIDE + 3} y={row * SIDE + 9} class="distance">{overlay.distances[row][col]}</text>
          )}
          {symbol === "_" && overlay.arrows?.[row][col]?.map((move) => (
            <text x={(col + 0.5) * SIDE + [5, 0, -6, 6][move]} y={(row + 0.5) * SIDE + [-2, 10, 4, 4][move]} class="arrow">
              {ARROWS[move]}
            </text>
          ))}
        </g>
      )))}
      {path.slice(1).map((cell, at) => {
        const from = path[at];
        const wrong = overlay.wrong?.[at];
        return (
          <line x1={(from[1] + 0.5) * SIDE} y1={(from[0] + 0.5) * SIDE} x2={(cell[1] + 0.5) * SIDE} y2={(cell[0] + 0.5) * SIDE}
            class={wrong ? "path wrong" : "path"} />
        );
      })}
      {agent && (
        <g><circle cx={(agent[1] + 0.5) * SIDE} cy={(agent[0] + 0.5) * SIDE} r={SIDE * 0.36} class="agent" />
          <text x={(agent[1] + 0.5) * SIDE} y={(agent[0] + 0.7) * SIDE} class="symbol me">A</text></g>
      )}
      {labels.map(([row, col, name]) => isOpen(row, col) && (
        <g><title>{visible(name)}</title>
          <text x={(col + 0.5) * SIDE} y={(row + (agent?.[0] === row && agent[1] === col ? 0.96 : 0.62)) * SIDE} class="label">
            {visible(name).slice(0, 7)}</text></g> // below the agent where it stands there
      ))}
    </svg>
    {legend.size > 0 && <p class="note legend">{[...legend].map((entry) => <span>{entry}</span>)}</p>}</>
  );
}

/** A graph in layers: a node stands to the right of all that lead to it. */
export function Graph({ drawing }: { drawing: Drawing }) {
  const nodes = drawing.nodes!;
  const layer = new Map(nodes.map(([name]) => [name, 0]));
  for (let round = 0; round < nodes.length; round++)
    for (const [from, to] of drawing.edges ?? [])
      layer.set(to, Math.min(nodes.length, Math.max(layer.get(to)!, layer.get(from)! + 1)));
  const layers: string[][] = [];
  for (const [name] of nodes) (layers[Math.min(layer.get(name)!, nodes.length)] ??= []).push(name);
  const columns = layers.filter(Boolean);
  const place = new Map<string, [number, number]>();
  columns.forEach((names, x) => names.forEach((name, y) => place.set(name, [x * 130 + 62, y * 44 + 24])));
  const height = Math.max(...columns.map((names) => names.length)) * 44 + 8;
  const states = new Map(nodes);
  return (
    <svg class="graph" viewBox={`0 0 ${columns.length * 130} ${height}`} role="img" aria-label="graph of what needs what"
      style={{ maxWidth: `${columns.length * 150}px` }}>
      {drawing.edges?.map(([from, to]) => {
        const [start, end] = [place.get(from)!, place.get(to)!];
        return <path class="edge" d={`M${start[0] + 54} ${start[1]} L${end[0] - 54} ${end[1]} m-6 -4 l6 4 l-6 4`} />;
      })}
      {[...place].map(([name, [x, y]]) => (
        <g class={`node ${(states.get(name) ?? "").replace(" ", "-")}`}>
          <title>{`${visible(name)}: ${states.get(name)}`}</title>
          <rect x={x - 54} y={y - 17} width="108" height="34" rx="5" />
          <text x={x} y={y - 2}>{visible(name).slice(0, 16)}</text>
          <text x={x} y={y + 11} class="state">{states.get(name)}</text>
        </g>
      ))}
    </svg>
  );
}

export function cellOf(drawn: Drawn | undefined): [number, number] | undefined {
  return drawn && drawn.length === 3 ? [drawn[1], drawn[2]] : undefined;
}

/** Errors of exploration and exploitation after 0, 1, ... actions, up to the present step dark, beyond it pale. */
export function ErrorCurves({ steps, at }: { steps: Step[]; at: number }) {
  const [width, height, left] = [300, 90, 22];
  const curves = ["exploration", "exploitation"].map((kind) => {
    const counts = [0];
    for (const step of steps) counts.push(counts[counts.length - 1] + Number(step.errors?.includes(kind) ?? false));
    return counts;
  });
  const most = Math.max(1, ...curves.map((counts) => counts[counts.length - 1]));
  const x = (step: number) => left + (step / Math.max(1, steps.length)) * (width - left - 4);
  const y = (count: number) => height - 16 - (count / most) * (height - 24);
  const line = (counts: number[], until: number) =>
    counts.slice(0, until + 1).map((count, step) => (step ? `H${x(step)}V${y(count)}` : `M${x(0)} ${y(0)}`)).join("");
  return (
    <svg class="curves" viewBox={`0 0 ${width} ${height}`} role="img" style={{ maxWidth: `${width}px` }}
      aria-label={`errors so far: exploration ${curves[0][at]}, exploitation ${curves[1][at]}`}>
      <path class="axis" d={`M${left} 4V${y(0)}H${width - 4}`} />
      {curves.map((counts, kind) => (
        <g class={kind ? "exploitation" : "exploration"} data-errors={counts[at]}>
          <path class="later" d={line(counts, steps.length)} /><path d={line(counts, at)} />
        </g>
      ))}
      <text x={left - 4} y={12} text-anchor="end">{most}</text><text x={left - 4} y={y(0)} text-anchor="end">0</text>
      <text x={x(at)} y={height - 3} text-anchor="middle">{at}</text>
    </svg>
  );
}
