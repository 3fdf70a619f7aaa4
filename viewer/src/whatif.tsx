// What if goal, key or a wall stood elsewhere: optimal policy and distances, exact, computed here. Things stay where they are,
// and with them the walls, since how things act may depend on walls.

import { useMemo, useState } from "preact/hooks";
import type { Drawing, GridRecord } from "./data";
import { Cells } from "./picture";
import { type Solution, solve, statesOf } from "./solver";

const TOOLS = ["wall", "goal", "key", "door", "agent"] as const;

const movesIn = (solution: Solution, state: number) => [0, 1, 2, 3].filter((action) => solution.optimal[state] & (1 << action));

export function arrowsOf(grid: GridRecord, solution: Solution, phase: number, agent?: [number, number]) {
  const width = grid.rows[0].length;
  const states = statesOf(grid, phase, agent);
  const table = <T,>(value: (state: number) => T) =>
    grid.rows.map((line, row) => [...line].map((_, col) => value(states[row * width + col])));
  return {
    distances: table((state) => solution.distance[state] ?? -1),
    arrows: table((state) => movesIn(solution, state)),
  };
}

/** A phase of a world; where things are drawn, the goal alone can have moved. */
function rowsOf(grid: GridRecord, phase: number, drawing: Drawing): string[] {
  const rows = (grid.leaps ? drawing.rows! : grid.rows).map((row) => [...(grid.leaps ? row.replace("G", "_") : row)]);
  if (grid.goal) rows[grid.goal[0]][grid.goal[1]] = "G";
  if (grid.key && phase < 1 && !grid.leaps) rows[grid.key[0]][grid.key[1]] = "K";
  if (grid.door && phase < 2 && !grid.leaps) rows[grid.door[0]][grid.door[1]] = "D";
  return rows.map((row) => row.join(""));
}

function changed(grid: GridRecord, tool: (typeof TOOLS)[number], row: number, col: number, agent: [number, number]): GridRecord {
  const here = (cell?: [number, number]) => cell?.[0] === row && cell[1] === col;
  const taken = [grid.goal, grid.key, grid.door, ...(grid.things ?? [])].some(here);
  if (taken || (here(agent) && tool !== "goal")) return grid;
  if (tool === "wall") {
    const rows = grid.rows.map((line, at) =>
      at === row ? line.slice(0, col) + (line[col] === "#" ? "_" : "#") + line.slice(col + 1) : line);
    return { ...grid, rows };
  }
  return grid.rows[row][col] === "#" ? grid : { ...grid, [tool]: [row, col] };
}

interface Props {
  grid: GridRecord;
  drawing: Drawing;
  agent: [number, number];
  phase: number;
  names: string[];
}

export function WhatIf({ grid, drawing, agent, phase, names }: Props) {
  const [tool, setTool] = useState<(typeof TOOLS)[number]>(grid.leaps ? "goal" : "wall");
  const [now, setNow] = useState({ grid, agent });
  const solution = useMemo(() => solve(now.grid), [now.grid]);
  const after = useMemo(() => arrowsOf(now.grid, solution, phase, agent), [solution, phase]);
  const before = useMemo(() => answers(grid, solve(grid), phase, agent, agent, names), [grid, agent, phase]);
  const then = answers(now.grid, solution, phase, agent, now.agent, names);
  const press = (row: number, col: number) => {
    if (tool !== "agent") setNow({ ...now, grid: changed(now.grid, tool, row, col, now.agent) });
    else if (canStand(now.grid, phase, agent, row, col)) setNow({ ...now, agent: [row, col] });
  };
  const offered = TOOLS.filter((one) => (one !== "key" || grid.key) && (one !== "door" || grid.door)
    && (!grid.leaps || one === "goal" || one === "agent"));
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
      <Cells drawing={{ rows: rowsOf(now.grid, phase, drawing), labels: drawing.labels }} agent={now.agent}
        overlay={{ arrows: after.arrows, distances: after.distances, onCell: press, label: "the changed world; click a cell to change it" }} />
      <table class="facts"><tbody>
        <tr><th></th><th>original</th><th>changed</th></tr>
        <tr><th>steps to the goal</th><td>{before.steps}</td><td data-what="steps">{then.steps}</td></tr>
        <tr><th>optimal moves</th><td>{before.moves}</td><td data-what="moves">{then.moves}</td></tr>
      </tbody></table>
      <p class="note">These shortest paths are exact and computed in this page. How the agent would act there is unknown.
        {grid.leaps && " Walls and things keep their places, because how things act may depend on them."}</p>
    </div>
  );
}

function canStand(grid: GridRecord, phase: number, agent: [number, number], row: number, col: number): boolean {
  const locked = grid.door && grid.door[0] === row && grid.door[1] === col && phase < 2;
  if (grid.leaps) return statesOf(grid, phase, agent)[row * grid.rows[0].length + col] >= 0;
  return grid.rows[row][col] !== "#" && !locked;
}

/** What is said of an agent in a cell, whether it stands there or came from another cell, that of the agent. */
function answers(grid: GridRecord, solution: Solution, phase: number, agent: [number, number], cell: [number, number], names: string[]) {
  const state = statesOf(grid, phase, agent)[cell[0] * grid.rows[0].length + cell[1]];
  const steps = solution.distance[state];
  const moves = movesIn(solution, state).map((move) => names[move]);
  return { steps: steps < 0 ? "out of reach" : String(steps), moves: moves.join(", ") || "none" };
}
