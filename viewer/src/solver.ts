// Shortest paths on a grid over (phase, cell), as goalscope.worlds.planning.shortest has them: phase 0 without the key, 1 with
// it, 2 with the door open. The recurrence is d(s) = 1 + min over moves a of d(next(s, a)), with d = 0 at the goal.
// On a grid with things, a phase is a configuration of them, and Python has written down the state that each move leads to.

import type { GridRecord } from "./data";

export const MOVES: [number, number][] = [[-1, 0], [1, 0], [0, -1], [0, 1]]; // up, down, left, right

export interface Solution {
  phases: number;
  distance: Int32Array; // [P * H * W], -1 where the goal cannot be reached
  optimal: Uint8Array; // [P * H * W], bit a for move a
}

const same = (one: [number, number] | undefined, row: number, col: number) => one?.[0] === row && one[1] === col;

export function phasesOf(grid: GridRecord): number {
  if (grid.leaps) return grid.leaps.length / (4 * grid.rows.length * grid.rows[0].length);
  return grid.door ? 3 : grid.key ? 2 : 1;
}

/** The state after standing on a cell: the key is picked up there, the door opens beside it. */
export function settle(grid: GridRecord, row: number, col: number, phase: number): number {
  const held = phase > 0 || same(grid.key, row, col);
  if (!grid.door) return held && grid.key ? 1 : Math.min(phase, phasesOf(grid) - 1);
  if (phase > 1) return 2;
  const beside = Math.abs(row - grid.door[0]) + Math.abs(col - grid.door[1]) === 1;
  return held && beside ? 2 : held ? 1 : 0;
}

/** [row, col, phase] after a move; into a wall, a locked door or out of the grid nothing changes. */
export function move(grid: GridRecord, row: number, col: number, phase: number, action: number): [number, number, number] {
  const [down, right] = MOVES[action];
  const [nextRow, nextCol] = [row + down, col + right];
  const cell = grid.rows[nextRow]?.[nextCol];
  if (cell === undefined || cell === "#" || (same(grid.door, nextRow, nextCol) && phase < 2)) return [row, col, phase];
  return [nextRow, nextCol, settle(grid, nextRow, nextCol, phase)];
}

/** [P * H * W * 4], the state that each move leads to; -1 from cells on which no agent can stand. */
function successors(grid: GridRecord): Int32Array {
  if (grid.leaps) return Int32Array.from(grid.leaps, (leap, at) => (at >> 2) + leap);
  const [height, width] = [grid.rows.length, grid.rows[0].length];
  const cells = height * width;
  const after = new Int32Array(phasesOf(grid) * cells * 4).fill(-1);
  for (let state = 0; state < after.length / 4; state++) {
    const [phase, row, col] = [Math.floor(state / cells), Math.floor((state % cells) / width), state % width];
    if (grid.rows[row][col] === "#" || (same(grid.door, row, col) && phase < 2)) continue;
    for (let action = 0; action < 4; action++) {
      const [nextRow, nextCol, nextPhase] = move(grid, row, col, phase, action);
      after[state * 4 + action] = nextPhase * cells + nextRow * width + nextCol;
    }
  }
  return after;
}

export function solve(grid: GridRecord): Solution {
  const cells = grid.rows.length * grid.rows[0].length;
  const phases = phasesOf(grid);
  const after = successors(grid);
  const distance = new Int32Array(phases * cells).fill(-1);
  const before: number[][] = Array.from({ length: phases * cells }, () => []);
  after.forEach((next, move) => next >= 0 && before[next].push(move >> 2));
  const queue: number[] = [];
  const goal = grid.goal!;
  for (let phase = 0; phase < phases; phase++) {
    const state = phase * cells + goal[0] * grid.rows[0].length + goal[1];
    distance[state] = 0;
    queue.push(state);
  }
  for (let at = 0; at < queue.length; at++) {
    for (const state of before[queue[at]]) {
      if (distance[state] < 0) {
        distance[state] = distance[queue[at]] + 1;
        queue.push(state);
      }
    }
  }
  const optimal = new Uint8Array(phases * cells);
  for (let state = 0; state < phases * cells; state++) {
    if (distance[state] <= 0) continue;
    for (let action = 0; action < 4; action++) {
      const next = after[state * 4 + action];
      if (next >= 0 && distance[next] === distance[state] - 1) optimal[state] |= 1 << action;
    }
  }
  return { phases, distance, optimal };
}

/** Number of the state of an agent in each cell [H * W]. The agent stands in one cell, and may come to the others in this phase
 * by a move; -1 where no move leads, or where it depends on the move in which state the agent arrives. */
export function statesOf(grid: GridRecord, phase: number, agent?: [number, number]): Int32Array {
  const [height, width] = [grid.rows.length, grid.rows[0].length];
  const cells = height * width;
  if (!grid.leaps)
    return Int32Array.from({ length: cells }, (_, cell) => settle(grid, Math.floor(cell / width), cell % width, phase) * cells + cell);
  const [after, first] = [successors(grid), phase * cells];
  const arrivals = Array.from({ length: cells }, () => new Set<number>());
  for (let at = 4 * first; at < 4 * (first + cells); at++)
    if (after[at] % cells !== (at >> 2) - first) arrivals[after[at] % cells].add(after[at]);
  const states = Int32Array.from(arrivals, (found) => (found.size === 1 ? [...found][0] : -1));
  if (agent) states[agent[0] * width + agent[1]] = first + agent[0] * width + agent[1];
  return states;
}
