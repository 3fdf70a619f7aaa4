// Shortest paths on a grid over (phase, cell), as goalscope.worlds.planning.shortest has them: phase 0 without the key, 1 with
// it, 2 with the door open. The recurrence is d(s) = 1 + min over moves a of d(next(s, a)), with d = 0 at the goal.

import type { GridRecord } from "./data";

export const MOVES: [number, number][] = [[-1, 0], [1, 0], [0, -1], [0, 1]]; // up, down, left, right

export interface Solution {
  phases: number;
  distance: Int32Array; // [P * H * W], -1 where the goal cannot be reached
  optimal: Uint8Array; // [P * H * W], bit a for move a
}

const same = (one: [number, number] | undefined, row: number, col: number) => one?.[0] === row && one[1] === col;

export function phasesOf(grid: GridRecord): number {
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

export function solve(grid: GridRecord): Solution {
  const [height, width] = [grid.rows.length, grid.rows[0].length];
  const cells = height * width;
  const phases = phasesOf(grid);
  const distance = new Int32Array(phases * cells).fill(-1);
  const before: number[][] = Array.from({ length: phases * cells }, () => []);
  const after = new Int32Array(phases * cells * 4).fill(-1);
  for (let phase = 0; phase < phases; phase++) {
    for (let cell = 0; cell < cells; cell++) {
      const [row, col] = [Math.floor(cell / width), cell % width];
      if (grid.rows[row][col] === "#" || (same(grid.door, row, col) && phase < 2)) continue;
      for (let action = 0; action < 4; action++) {
        const [nextRow, nextCol, nextPhase] = move(grid, row, col, phase, action);
        const next = nextPhase * cells + nextRow * width + nextCol;
        after[(phase * cells + cell) * 4 + action] = next;
        before[next].push(phase * cells + cell);
      }
    }
  }
  const queue: number[] = [];
  const goal = grid.goal!;
  for (let phase = 0; phase < phases; phase++) {
    const state = phase * cells + goal[0] * width + goal[1];
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

/** Number of a state in a solution, its phase settled where the agent stands. */
export function stateOf(grid: GridRecord, row: number, col: number, phase: number): number {
  const settled = Math.min(settle(grid, row, col, phase), phasesOf(grid) - 1);
  return (settled * grid.rows.length + row) * grid.rows[0].length + col;
}
