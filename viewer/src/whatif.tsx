// What if goal, key or a wall stood elsewhere: optimal policy and distances, exact, computed here.

import { useMemo, useState } from "preact/hooks";
import type { GridRecord } from "./data";
import { Cells } from "./picture";
import { settle, solve, stateOf } from "./solver";

const TOOLS = ["wall", "goal", "key", "door", "agent"] as const;

export function arrowsOf(grid: GridRecord, phase: number) {
  const solution = solve(grid);
  const [height, width] = [grid.rows.length, grid.rows[0].length];
  const at = (row: number, col: number) => stateOf(grid, row, col, phase);
  const table = <T,>(value: (state: number) => T) =>
    Array.from({ length: height }, (_, row) => Array.from({ length: width }, (_, col) => value(at(row, col))));
  return {
    distances: table((state) => solution.distance[state]),
    arrows: table((state) => [0, 1, 2, 3].filter((action) => solution.optimal[state] & (1 << action))),
    solution,
  };
}

export function rowsOf(grid: GridRecord, phase: number): string[] {
  const rows = grid.rows.map((row) => [...row]);
  if (grid.goal) rows[grid.goal[0]][grid.goal[1]] = "G";
  if (grid.key && phase < 1) rows[grid.key[0]][grid.key[1]] = "K";
  if (grid.door && phase < 2) rows[grid.door[0]][grid.door[1]] = "D";
  return rows.map((row) => row.join(""));
}

function changed(grid: GridRecord, tool: (typeof TOOLS)[number], row: number, col: number, agent: [number, number]): GridRecord {
  const here = (cell?: [number, number]) => cell?.[0] === row && cell[1] === col;
  const taken = here(grid.goal) || here(grid.key) || here(grid.door) || here(agent);
  if (tool === "wall") {
    if (taken) return grid;
    const rows = grid.rows.map((line, at) =>
      at === row ? line.slice(0, col) + (line[col] === "#" ? "_" : "#") + line.slice(col + 1) : line);
    return { ...grid, rows };
  }
  if (grid.rows[row][col] === "#" || (taken && !here(agent))) return grid;
  if (tool === "door" && here(agent)) return grid;
  return tool === "agent" ? grid : { ...grid, [tool]: [row, col] };
}

export function WhatIf({ grid, agent, phase, names }: { grid: GridRecord; agent: [number, number]; phase: number; names: string[] }) {
  const [tool, setTool] = useState<(typeof TOOLS)[number]>("wall");
  const [now, setNow] = useState({ grid, agent });
  const before = useMemo(() => told(grid, agent, phase, names), [grid, agent, phase]);
  const after = useMemo(() => ({ ...told(now.grid, now.agent, phase, names), ...arrowsOf(now.grid, phase) }), [now, phase]);
  const press = (row: number, col: number) => {
    if (tool === "agent") {
      const door = now.grid.door;
      const solid = now.grid.rows[row][col] === "#" || (door && door[0] === row && door[1] === col && phase < 2);
      if (!solid) setNow({ ...now, agent: [row, col] });
    } else setNow({ ...now, grid: changed(now.grid, tool, row, col, now.agent) });
  };
  const offered = TOOLS.filter((one) => (one !== "key" || grid.key) && (one !== "door" || grid.door));
  return (
    <div class="whatif">
      <div class="tools" role="group" aria-label="what to move">
        {offered.map((one) => (
          <button class={one === tool ? "on" : ""} data-tool={one} onClick={() => setTool(one)}>
            {one === "wall" ? "add or remove a wall" : `move ${one}`}
          </button>
        ))}
        <button onClick={() => setNow({ grid, agent })}>reset</button>
      </div>
      <Cells drawing={{ rows: rowsOf(now.grid, phase) }} agent={now.agent}
        overlay={{ arrows: after.arrows, distances: after.distances, onCell: press, label: "the changed world; click a cell to change it" }} />
      <table class="facts"><tbody>
        <tr><th></th><th>original</th><th>changed</th></tr>
        <tr><th>steps to the goal</th><td>{before.steps}</td><td data-what="steps">{after.steps}</td></tr>
        <tr><th>optimal moves</th><td>{before.moves}</td><td data-what="moves">{after.moves}</td></tr>
      </tbody></table>
      <p class="note">These shortest paths are exact and computed in this page. How the agent would act there is unknown.</p>
    </div>
  );
}

function told(grid: GridRecord, agent: [number, number], phase: number, names: string[]) {
  const solution = solve(grid);
  const state = stateOf(grid, agent[0], agent[1], settle(grid, agent[0], agent[1], phase));
  const moves = [0, 1, 2, 3].filter((action) => solution.optimal[state] & (1 << action));
  const steps = solution.distance[state];
  return { steps: steps < 0 ? "out of reach" : String(steps), moves: moves.map((move) => names[move]).join(", ") || "none" };
}
