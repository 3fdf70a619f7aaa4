// One episode, one step of it: what was seen, thought and done, beside what was optimal.

import { useMemo, useState } from "preact/hooks";
import { type Address, hrefOf, short } from "./address";
import { type Episode, type Index, type Opened, type Step, textOf } from "./data";
import { Beliefs, Exchanged, Plan, Reactions, Tokens } from "./inside";
import { cellOf, Cells, ErrorCurves, Graph } from "./picture";
import { endOf } from "./list";
import { Changes, Foreign, visible } from "./text";
import { solve } from "./solver";
import { arrowsOf, WhatIf } from "./whatif";

const ENDS: Record<string, string> = { question: "a single move in a changed world",
  goal: "reached the goal", horizon: "did not reach the goal within its horizon", failure: "ended because a turn contained no valid move",
  stopped: "the recording stops before the goal", ended: "ended without reaching the goal",
};

export const named = (episode: Episode, action: number | null) =>
  action === null ? "no action" : visible(episode.actions[action] ?? `action ${action}`);

const isWrong = (step: Step) => step.a !== null && step.best !== null && !step.best.includes(step.a);

export function Head({ index, opened }: { index: Index; opened: Opened }) {
  const { columns, agents, runs } = index.table;
  const { at, episode } = opened;
  const tags = Object.entries(episode.tags).filter(([name, value]) => value !== "None" && value.length < 40 && name !== "model");
  return (
    <header class="episode-head">
      <h2><span class="agent-name">{visible(agents[columns.agent[at]])}</span>{" "}
        <span class={`end ${endOf(index, at)}`}>{ENDS[endOf(index, at)]}</span></h2>
      <p class="tags">
        {runs.length > 1 && <span>run {visible(runs[columns.run[at]])}</span>}
        {tags.map(([name, value]) => <span>{visible(name)} {visible(value)}</span>)}
        <span>trajectory {episode.trajectory}</span><span class="id" title={episode.id}>{short(episode.id)}</span>
      </p>
    </header>
  );
}

interface StepProps {
  index: Index;
  opened: Opened;
  at: number; // number of the step; that of all steps for the end
  address: Address;
}

export function Picture({ index, opened, at, address }: StepProps) {
  const { episode, shard } = opened;
  const [ways, setWays] = useState(true);
  const [what, setWhat] = useState(false);
  const step = episode.steps[at];
  const truth = step ? step.draw : episode.end;
  const saw = step?.saw;
  const seen = saw && shard.drawings[saw[0]];
  const shown = truth && shard.drawings[truth[0]];
  const phase = (step ?? episode).phase ?? -1;
  const grid = phase < 0 ? undefined : shard.worlds[episode.world]?.grid;
  const solution = useMemo(() => grid && solve(grid), [grid]);
  const cells = episode.steps.slice(0, at + 1).map((one) => cellOf(one.draw));
  if (!step) cells.push(cellOf(episode.end));
  const path = cells.filter((cell): cell is [number, number] => cell !== undefined);
  const wrong = episode.steps.slice(0, at).map(isWrong);
  const agent = cellOf(truth);
  const arrows = useMemo(() => (grid && solution && ways ? arrowsOf(grid, solution, phase, agent).arrows : undefined), [grid, phase, agent?.join(), ways]);
  const label = `the world at step ${at}`;
  return (
    <div class="pictures">
      {shown?.rows && !what && (
        <figure>
          <Cells drawing={shown} agent={agent} overlay={{ path, wrong, arrows, label }} />
          <figcaption>{seen?.rows ? "the whole world" : "the world"}{grid && ways ? "; arrows show optimal moves" : ""}
            {path.length > 1 && "; the line is its path so far, dashed where a move was not optimal"}</figcaption>
        </figure>
      )}
      {seen?.rows && !what && (
        <figure><Cells drawing={seen} agent={cellOf(saw)} overlay={{ label: "what the agent saw" }} /><figcaption>what it saw</figcaption></figure>
      )}
      {seen?.nodes && <figure><Graph drawing={seen} /><figcaption>what it has discovered; an arrow leads from a node to those that need it</figcaption></figure>}
      {episode.steps.some((one) => one.errors) && (
        <figure><ErrorCurves steps={episode.steps} at={at} />
          <figcaption>errors so far: exploration (solid) and exploitation (dashed); an error of both kinds counts in both curves</figcaption></figure>
      )}
      <Beliefs index={index} opened={opened} at={at} />
      <Plan opened={opened} at={at} />
      <Reactions index={index} opened={opened} link={(id) => hrefOf(address, { e: short(id), s: "0", b: "" })} />
      <Exchanged opened={opened} />
      {!shown?.rows && step?.text && <figure><Foreign text={textOf(shard, step.text)!} /><figcaption>what it saw (this world has no picture)</figcaption></figure>}
      {grid && shown && agent && what && (
        <WhatIf key={`${opened.at} ${at}`} grid={grid} drawing={shown} agent={agent} phase={phase} names={episode.actions} />
      )}
      {grid && (
        <p class="switches">
          <label><input type="checkbox" checked={ways} onChange={() => setWays(!ways)} /> optimal moves</label>
          <label><input type="checkbox" checked={what} data-switch="what-if" onChange={() => setWhat(!what)} /> what if …</label>
        </p>
      )}
    </div>
  );
}

export function Verdict({ opened, at, index }: Omit<StepProps, "address">) {
  const { episode } = opened;
  const step = episode.steps[at];
  if (!step) {
    return <div class="verdict"><p><strong>The end</strong> after {episode.steps.length} of at most {episode.horizon} steps.</p>
      <Measures title="Measures of this episode" values={episode.measures} index={index} /></div>;
  }
  const right = step.best === null || step.a === null ? "" : isWrong(step) ? "not optimal" : "optimal";
  const moves = episode.actions.map((_, action) => action).filter((action) => step.policy || step.best?.includes(action) || action === step.a);
  const best = step.best ?? [];
  return (
    <div class="verdict">
      <p class="action"><strong>{named(episode, step.a)}</strong>{" "}
        {step.failure && <span class="bad">∅ {visible(step.failure)}</span>}
        {right && <span class={right === "optimal" ? "good" : "bad"}>{right === "optimal" ? "✓" : "✗"} {right}</span>}
        {(step.from !== null || step.to !== undefined) && <span> · {step.from ?? "out of reach"} → {step.to ?? "out of reach"} steps to the goal</span>}
        {step.errors && step.errors.length > 0 && <span class="bad"> · {step.errors.join(" and ")} error</span>}
        {step.reward !== undefined && <span> · reward {step.reward}</span>}
        {step.held && <span class="held"> · carries {visible(step.held.join(", "))}</span>}
      </p>
      {(step.policy || step.best) && <table class="facts">
        <thead><tr><th>action</th>{step.policy && <th>probability</th>}{step.best && <th>optimal policy</th>}</tr></thead>
        <tbody>{moves.map((action) => (
          <tr class={action === step.a ? "taken" : ""}>
            <th>{named(episode, action)}{action === step.a && " ◂"}</th>
            {step.policy && <td><Bar value={step.policy[action]} /></td>}
            {step.best && <td><Bar value={best.includes(action) ? 1 / best.length : 0} /></td>}
          </tr>
        ))}</tbody>
      </table>}
      {!step.policy && <p class="note">The probabilities of its actions were not recorded.</p>}
      <Measures title="Measures of this step" values={step.measures ?? {}} index={index} />
      <Measures title="Measures of this episode" values={episode.measures} index={index} folded />
    </div>
  );
}

function Bar({ value }: { value: number }) {
  return <span class="bar"><i style={{ width: `${Math.round(60 * value)}px` }} />{value.toFixed(2)}</span>;
}

function Measures({ title, values, index, folded }: { title: string; values: Record<string, number>; index: Index; folded?: boolean }) {
  const entries = Object.entries(values);
  if (!entries.length) return null;
  return (
    <details open={!folded}>
      <summary>{title}</summary>
      <table class="facts"><tbody>{entries.map(([number, value]) => (
        <tr><th>{visible(index.table.measures[Number(number)])}</th><td>{Number(value.toPrecision(4))}</td></tr>
      ))}</tbody></table>
    </details>
  );
}

export function Texts({ opened, at }: Pick<StepProps, "opened" | "at">) {
  const { episode, shard } = opened;
  const [whole, setWhole] = useState(false);
  const step = episode.steps[at];
  if (!step) return null;
  const before = at > 0 ? textOf(shard, episode.steps[at - 1].text) : null;
  const now = textOf(shard, step.text);
  const [reasoning, answer] = [textOf(shard, step.reasoning), textOf(shard, step.answer)];
  return (
    <div class="texts">
      {step.tries?.map(([text, failure], number) => (
        <section><h3>Attempt {number + 1}: no valid move ({visible(failure)}), so it was asked again</h3><Foreign text={textOf(shard, text) ?? ""} /></section>
      ))}
      {reasoning !== null && <section><h3>Reasoning</h3><Foreign text={reasoning} /></section>}
      {answer !== null && <section><h3>Answer</h3><Foreign text={answer} /></section>}
      <Tokens opened={opened} at={at} />
      <section>
        <h3>{step.prompt ? "Prompt" : "What it saw"}
          {before !== null && <button class="small" onClick={() => setWhole(!whole)}>{whole ? "show only changes" : "show all"}</button>}</h3>
        {now === null ? <p class="note">Not available: the recorded episode does not match its world, or the world cannot be built here.</p>
          : <Changes before={before} now={now} whole={whole} />}
      </section>
    </div>
  );
}
